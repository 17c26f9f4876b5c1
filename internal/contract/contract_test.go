// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/contract"
	"github.com/kruisectl/kruisectl/manifests"
)

// served reads the CRDs of manifests/crds, by plural.
func served(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	files, err := fs.Glob(manifests.Files, "crds/*.yaml")
	require.NoError(t, err)
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		text, err := manifests.Files.ReadFile(file)
		require.NoError(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, crd), file)
		if crd.Kind == "CustomResourceDefinition" {
			out[crd.Spec.Names.Plural] = crd
		}
	}
	require.NotEmpty(t, out)
	return out
}

func lines(t *testing.T, file string) []string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// differences lists how have falls short of want, and what it has beyond it.
func differences(want, have []contract.Field) (missing, added []string) {
	present := map[string]contract.Field{}
	for _, f := range have {
		present[f.Key()] = f
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Key()] = true
		h, ok := present[w.Key()]
		if !ok {
			missing = append(missing, w.Key()+"\tfield")
			continue
		}
		if h.Type != w.Type || h.Required != w.Required || h.Default != w.Default {
			missing = append(missing, w.Key()+"\ttype, required or default")
		}
		for _, c := range w.Constraints {
			if !slices.Contains(h.Constraints, c) {
				missing = append(missing, w.Key()+"\t"+c)
			}
		}
		for _, c := range h.Constraints {
			if !slices.Contains(w.Constraints, c) {
				added = append(added, w.Key()+"\t"+c)
			}
		}
	}
	for _, h := range have {
		if !wanted[h.Key()] {
			added = append(added, h.Key()+"\tfield")
		}
	}
	return missing, added
}

func TestFields(t *testing.T) {
	text, err := os.ReadFile("testdata/crd-fields.tsv")
	require.NoError(t, err)
	all, err := contract.ParseFields(string(text))
	require.NoError(t, err)

	var missing, added []string
	for plural, crd := range served(t) {
		want := slices.DeleteFunc(slices.Clone(all), func(f contract.Field) bool { return f.Resource != plural })
		require.NotEmpty(t, want, "%s is not part of the contract", plural)
		m, a := differences(want, contract.Fields(crd))
		missing, added = append(missing, m...), append(added, a...)
	}
	require.Empty(t, missing, "the contract wants these")

	var allowed []string
	for _, line := range lines(t, "testdata/additions.tsv") {
		cut := strings.LastIndex(line, "\t")
		require.NotEmpty(t, line[cut+1:], "an addition without a reason: %s", line)
		allowed = append(allowed, line[:cut])
	}
	slices.Sort(added)
	slices.Sort(allowed)
	require.Equal(t, allowed, added, "list every addition, and no other, in testdata/additions.tsv with a reason")
}

func TestVersions(t *testing.T) {
	want := lines(t, "testdata/crds.tsv")
	kinds := served(t)
	missing := map[string]bool{}
	var have []string
	for _, crd := range kinds {
		have = append(have, contract.Versions(crd)...)
	}
	for _, line := range want {
		if plural := strings.Split(line, "\t")[1]; kinds[plural] == nil {
			missing[plural] = true
			continue
		}
		require.Contains(t, have, line)
	}
	require.Len(t, have, len(want)-countMissing(want, missing), "versions beyond the contract")

	t.Logf("kinds of the contract that are not served yet: %d", len(missing))
	listed := lines(t, "testdata/missing.txt")
	for plural := range missing {
		require.Contains(t, listed, plural, "add it to testdata/missing.txt")
	}
	require.Len(t, listed, len(missing), "testdata/missing.txt lists a kind that is served")
}

func countMissing(lines []string, missing map[string]bool) int {
	n := 0
	for _, line := range lines {
		if missing[strings.Split(line, "\t")[1]] {
			n++
		}
	}
	return n
}

func TestConversionStanza(t *testing.T) {
	for plural, crd := range served(t) {
		if len(crd.Spec.Versions) < 2 {
			continue
		}
		c := crd.Spec.Conversion
		require.NotNil(t, c, plural)
		require.Equal(t, apiextensionsv1.WebhookConverter, c.Strategy, plural)
		require.Equal(t, []string{"v1", "v1beta1"}, c.Webhook.ConversionReviewVersions, plural)
		require.Equal(t, apiextensionsv1.ServiceReference{
			Namespace: "kruise-system", Name: "kruise-webhook-service", Path: new("/convert"), Port: new(int32(443)),
		}, *c.Webhook.ClientConfig.Service, plural)
		require.Empty(t, c.Webhook.ClientConfig.CABundle, "%s: the manager writes it", plural)
	}
}

// A test of the test: each kind of deviation is found.
func TestDifferences(t *testing.T) {
	field := func(change func(*contract.Field)) []contract.Field {
		f := contract.Field{Resource: "r", Version: "v1", Path: "spec.a", Type: "string", Constraints: []string{"maxLength=3"}}
		change(&f)
		return []contract.Field{f}
	}
	same := func(*contract.Field) {}
	for name, c := range map[string]struct {
		want, have     []contract.Field
		missing, added []string
	}{
		"nothing":               {field(same), field(same), nil, nil},
		"a field is gone":       {field(same), nil, []string{"r\tv1\tspec.a\tfield"}, nil},
		"a field is new":        {nil, field(same), nil, []string{"r\tv1\tspec.a\tfield"}},
		"another type":          {field(same), field(func(f *contract.Field) { f.Type = "integer" }), []string{"r\tv1\tspec.a\ttype, required or default"}, nil},
		"another default":       {field(same), field(func(f *contract.Field) { f.Default = "x" }), []string{"r\tv1\tspec.a\ttype, required or default"}, nil},
		"required now":          {field(same), field(func(f *contract.Field) { f.Required = true }), []string{"r\tv1\tspec.a\ttype, required or default"}, nil},
		"a constraint is gone":  {field(same), field(func(f *contract.Field) { f.Constraints = nil }), []string{"r\tv1\tspec.a\tmaxLength=3"}, nil},
		"a constraint is new":   {field(same), field(func(f *contract.Field) { f.Constraints = append(f.Constraints, "rule=x") }), nil, []string{"r\tv1\tspec.a\trule=x"}},
		"a constraint is other": {field(same), field(func(f *contract.Field) { f.Constraints = []string{"maxLength=4"} }), []string{"r\tv1\tspec.a\tmaxLength=3"}, []string{"r\tv1\tspec.a\tmaxLength=4"}},
	} {
		t.Run(name, func(t *testing.T) {
			missing, added := differences(c.want, c.have)
			require.Equal(t, c.missing, missing)
			require.Equal(t, c.added, added)
		})
	}
	_, err := contract.ParseFields("too\tfew")
	require.Error(t, err)
	parsed, err := contract.ParseFields("r\tv1\tspec.a\tstring\t\t\tenum=['a', 'b'] format=x\n")
	require.NoError(t, err)
	require.Equal(t, []string{"enum=['a', 'b']", "format=x"}, parsed[0].Constraints)
}
