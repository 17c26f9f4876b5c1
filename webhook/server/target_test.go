// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func hook(name, path string) admissionv1.MutatingWebhook {
	return admissionv1.MutatingWebhook{Name: name, ClientConfig: admissionv1.WebhookClientConfig{
		Service: &admissionv1.ServiceReference{Namespace: "elsewhere", Name: "old", Path: &path, Port: new(int32(443))},
	}}
}

func pointed(w admissionv1.MutatingWebhook) admissionv1.MutatingWebhook {
	w = *w.DeepCopy()
	w.ClientConfig.Service.Namespace, w.ClientConfig.Service.Name = "kruise-system", "kruise-webhook-service"
	w.ClientConfig.CABundle = []byte("ca")
	return w
}

func inCluster() target {
	s, err := FromEnv(func(string) string { return "" })
	if err != nil {
		panic(err)
	}
	return target{settings: s, ca: []byte("ca"), serves: func(path string) bool { return path == "/a" || path == "/b" }}
}

func TestWebhooks(t *testing.T) {
	outside := inCluster()
	outside.settings.Host = "1.2.3.4"
	url := pointed(hook("a", "/a"))
	url.ClientConfig.Service, url.ClientConfig.URL = nil, new("https://1.2.3.4:9876/a")
	trusted := hook("a", "/a")
	trusted.ClientConfig.CABundle = []byte("of the installer")
	cases := map[string]struct {
		target   target
		template string
		current  []admissionv1.MutatingWebhook
		want     []admissionv1.MutatingWebhook
		kept     string
		drops    []dropped
		err      bool
	}{
		"without a template the webhooks become it": {
			target: inCluster(), current: []admissionv1.MutatingWebhook{trusted, hook("gone", "/gone")},
			want:  []admissionv1.MutatingWebhook{pointed(hook("a", "/a"))},
			kept:  `[{"name":"a","clientConfig":{"service":{"namespace":"elsewhere","name":"old","path":"/a","port":443}},"sideEffects":null,"admissionReviewVersions":null},{"name":"gone","clientConfig":{"service":{"namespace":"elsewhere","name":"old","path":"/gone","port":443}},"sideEffects":null,"admissionReviewVersions":null}]`,
			drops: []dropped{{"cfg", "gone", "/gone"}},
		},
		"the template wins over edits of the webhooks": {
			target: inCluster(), template: `[{"name":"b","clientConfig":{"service":{"namespace":"x","name":"y","path":"/b","port":443}}}]`,
			current: []admissionv1.MutatingWebhook{hook("a", "/a")},
			want:    []admissionv1.MutatingWebhook{pointed(hook("b", "/b"))},
			kept:    `[{"name":"b","clientConfig":{"service":{"namespace":"x","name":"y","path":"/b","port":443}}}]`,
		},
		"a host replaces the Service by a URL": {
			target: outside, template: `[{"name":"a","clientConfig":{"service":{"namespace":"x","name":"y","path":"/a","port":443}}}]`,
			want: []admissionv1.MutatingWebhook{url},
			kept: `[{"name":"a","clientConfig":{"service":{"namespace":"x","name":"y","path":"/a","port":443}}}]`,
		},
		"a URL in the template is taken by its path": {
			target: outside, template: `[{"name":"a","clientConfig":{"url":"https://old:1/a"}}]`,
			want: []admissionv1.MutatingWebhook{url}, kept: `[{"name":"a","clientConfig":{"url":"https://old:1/a"}}]`,
		},
		"a template that is no JSON is an error": {target: inCluster(), template: "{", err: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := make([]admissionv1.MutatingWebhook, len(tc.current))
			for i := range tc.current {
				before[i] = *tc.current[i].DeepCopy()
			}
			want, kept, drops, err := webhooks(tc.target, mutatingView(), "cfg", tc.template, tc.current)
			if (err != nil) != tc.err {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tc.want, want); diff != "" {
				t.Errorf("webhooks differ (-want +got):\n%s", diff)
			}
			if !tc.err && kept != tc.kept {
				t.Errorf("template = %s\nwant       %s", kept, tc.kept)
			}
			if diff := cmp.Diff(tc.drops, drops, cmp.AllowUnexported(dropped{})); diff != "" {
				t.Errorf("drops differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.current, cmp.Transformer("nil", func(s []admissionv1.MutatingWebhook) int { return len(s) })); diff != "" {
				t.Errorf("the current webhooks were changed:\n%s", diff)
			}
		})
	}
}

func TestConversion(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crd := func(kind string, strategy apiextensionsv1.ConversionStrategyType) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "apps.kruise.io", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind},
			Versions:   []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1"}, {Name: "v1beta1"}},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: strategy},
		}}
	}
	for obj, want := range map[*apiextensionsv1.CustomResourceDefinition]bool{
		crd("CloneSet", apiextensionsv1.WebhookConverter): true,
		crd("CloneSet", apiextensionsv1.NoneConverter):    false,
		crd("Future", apiextensionsv1.WebhookConverter):   false,
	} {
		if got := convertible(obj, scheme); got != want {
			t.Errorf("convertible(%s, %s) = %t", obj.Spec.Names.Kind, obj.Spec.Conversion.Strategy, got)
		}
	}
	tg := inCluster()
	first := tg.conversion(&apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter})
	cc := first.Webhook.ClientConfig
	if cc.Service.Namespace != "kruise-system" || cc.Service.Name != "kruise-webhook-service" || *cc.Service.Port != 443 || *cc.Service.Path != "/convert" || string(cc.CABundle) != "ca" {
		t.Errorf("client configuration = %+v", cc)
	}
	if diff := cmp.Diff([]string{"v1", "v1beta1"}, first.Webhook.ConversionReviewVersions); diff != "" {
		t.Error(diff)
	}
	if second := tg.conversion(first); second != first {
		t.Error("an equal stanza is written again")
	}
	tg.ca = []byte("new")
	if third := tg.conversion(first); third == first || string(third.Webhook.ClientConfig.CABundle) != "new" {
		t.Error("a new CA is not written")
	}
	tg.settings.Host = "hooks.example.com"
	if u := tg.conversion(first).Webhook.ClientConfig; u.Service != nil || *u.URL != "https://hooks.example.com:9876/convert" {
		t.Errorf("client configuration = %+v", u)
	}
}
