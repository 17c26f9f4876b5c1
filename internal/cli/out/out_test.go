// SPDX-License-Identifier: Apache-2.0

package out

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestExitCode(t *testing.T) {
	cases := map[string]struct {
		err  error
		want int
	}{
		"no error":                      {nil, 0},
		"any error":                     {errors.New("x"), 1},
		"a usage error":                 {Usagef("x"), 2},
		"a wrapped usage error":         {fmt.Errorf("y: %w", Usagef("x")), 2},
		"a verdict":                     {Silent(CodeFailed), 3},
		"a failure has its own code":    {&Failure{Doing: "x", Code: CodeTimeout}, 4},
		"a failure without a code":      {&Failure{Doing: "x", Cause: errors.New("y")}, 1},
		"a failure because of usage":    {&Failure{Doing: "x", Cause: Usagef("y")}, 2},
		"SIGINT":                        {fmt.Errorf("waiting: %w", &Signal{Code: CodeInterrupted}), 130},
		"SIGTERM":                       {&Signal{Code: CodeTerminated}, 143},
		"a context that was cancelled":  {context.Canceled, 130},
		"nothing to say and no failure": {Silent(0), 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ExitCode(tc.err); got != tc.want {
				t.Errorf("ExitCode() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestWorst(t *testing.T) {
	cases := map[string]struct {
		codes []int
		want  int
	}{
		"none":                               {nil, 0},
		"all well":                           {[]int{0, 0}, 0},
		"some failed":                        {[]int{0, 3}, 8},
		"all failed the same way":            {[]int{3, 3}, 3},
		"all failed, the worst counts":       {[]int{4, 3}, 3},
		"one object keeps its code":          {[]int{7}, 7},
		"one in progress beside one that is": {[]int{0, 7}, 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Worst(tc.codes); got != tc.want {
				t.Errorf("Worst(%v) = %d, want %d", tc.codes, got, tc.want)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: 422,
		Message: `admission webhook "vcloneset.kb.io" denied the request: CloneSet is invalid`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Field: "spec.replicas", Message: "must be 0 or more"}, {Field: "spec.template", Message: "must match the selector"},
		}},
	}}
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "vcloneset.kb.io": failed to call webhook: Post "https://kruise-webhook-service.kruise-system.svc:443/x": connection refused`))
	cases := map[string]struct {
		err  error
		want string
	}{
		"three parts": {
			&Failure{Doing: "undo cloneset shop/web", Why: "no revision differs", Cause: errors.New("1 revision is stored"), Next: "kruisectl rollout history cloneset/web"},
			"error: cannot undo cloneset shop/web: no revision differs\n  cause: 1 revision is stored\n  next:  kruisectl rollout history cloneset/web\n"},
		"a webhook's causes, one per line": {
			&Failure{Doing: "pause cloneset shop/web", Cause: denied},
			"error: cannot pause cloneset shop/web\n  cause: admission webhook vcloneset.kb.io denied the request\n" +
				"         spec.replicas: must be 0 or more\n         spec.template: must match the selector\n"},
		"a webhook that is down names its Service": {
			&Failure{Doing: "pause cloneset shop/web", Cause: &WebhookDown{Webhook: "vcloneset.kb.io", Namespace: "kruise-system", Service: "kruise-webhook-service", Endpoints: 0, Err: errors.New("connection refused")}},
			"error: cannot pause cloneset shop/web\n  cause: the admission webhook vcloneset.kb.io did not answer; Service kruise-system/kruise-webhook-service has 0 ready endpoints\n" +
				"         connection refused\n  next:  kruisectl status\n"},
		"silence": {Silent(3), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			Print(&b, Style{}, "kruisectl", tc.err)
			if diff := cmp.Diff(tc.want, b.String()); diff != "" {
				t.Errorf("Print() differs (-want +got):\n%s", diff)
			}
		})
	}
	if hook, ns, svc, ok := CalledWebhook(down); !ok || hook != "vcloneset.kb.io" || ns != "kruise-system" || svc != "kruise-webhook-service" {
		t.Errorf("CalledWebhook() = %q %q %q %v", hook, ns, svc, ok)
	}
	forbidden := Explain(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no")), "kruisectl")
	if forbidden.Code != "Forbidden" || len(forbidden.Next) == 0 {
		t.Errorf("a forbidden request gives no hint: %+v", forbidden)
	}
}

func TestTable(t *testing.T) {
	table := Table{
		Columns: []Column{{Name: "POD"}, {Name: "NODE", Drop: 2}, {Name: "AGE", Drop: 1}, {Name: "IMAGES", Wide: true}},
		Rows:    [][]string{{"web-a", "node-1", "3h", "repo/web:1"}, {"web-long-name", "", "12d", ""}},
	}
	cases := map[string]struct {
		style Style
		wide  bool
		want  string
	}{
		"an empty cell is a dash":             {Style{}, false, "POD            NODE    AGE\nweb-a          node-1  3h\nweb-long-name  -       12d\n"},
		"wide has more columns":               {Style{}, true, "POD            NODE    AGE  IMAGES\nweb-a          node-1  3h   repo/web:1\nweb-long-name  -       12d  -\n"},
		"a narrow terminal drops by priority": {Style{TTY: true, Width: 20}, false, "POD            AGE\nweb-a          3h\nweb-long-name  12d\n"},
		"a pipe drops nothing":                {Style{Width: 20}, false, "POD            NODE    AGE\nweb-a          node-1  3h\nweb-long-name  -       12d\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := table.Print(&b, tc.style, tc.wide); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, b.String()); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	doc := map[string]any{"kind": "Thing", "name": "a", "n": 3, "items": []any{map[string]any{"name": "x"}, map[string]any{"name": "y"}}}
	cases := map[string]string{
		"json":                     "{\n    \"items\": [\n        {\n            \"name\": \"x\"\n        },\n        {\n            \"name\": \"y\"\n        }\n    ],\n    \"kind\": \"Thing\",\n    \"n\": 3,\n    \"name\": \"a\"\n}\n",
		"yaml":                     "items:\n- name: x\n- name: \"y\"\nkind: Thing\n\"n\": 3\nname: a\n",
		"jsonl":                    "{\"items\":[{\"name\":\"x\"},{\"name\":\"y\"}],\"kind\":\"Thing\",\"n\":3,\"name\":\"a\"}\n",
		"jsonpath={.name}":         "a",
		"jsonpath=.name":           "a",
		"go-template={{.kind}}":    "Thing",
		"custom-columns=N:.name":   "N\nx\ny\n",
		"custom-columns=N:.absent": "N\n-\n-\n",
	}
	allowed := []string{"json", "yaml", "jsonl", "jsonpath", "go-template", "custom-columns"}
	for raw, want := range cases {
		t.Run(raw, func(t *testing.T) {
			f, err := ParseFormat(raw, allowed)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := f.Write(&b, doc); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.String()); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
	for _, bad := range []string{"xml", "jsonpath", "jsonpath={.a", "go-template={{", "custom-columns=x", "json=1"} {
		if _, err := ParseFormat(bad, allowed); !IsUsage(err) {
			t.Errorf("ParseFormat(%q) = %v, want a usage error", bad, err)
		}
	}
}

func TestProgressInLineMode(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	var b bytes.Buffer
	p := NewProgress(&b, clk, ProgressOptions{Heartbeat: 30 * time.Second})
	p.Update("0 of 3")
	p.Update("0 of 3")
	clk.SetTime(time.Unix(1009, 0))
	p.Update("1 of 3")
	p.Beat()
	clk.SetTime(time.Unix(1040, 0))
	p.Beat()
	p.Finish()
	want := "[00:00] 0 of 3\n[00:09] 1 of 3\n[00:40] still waiting: 1 of 3\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	if strings.ContainsAny(b.String(), "\r\x1b") {
		t.Error("line mode moves the cursor")
	}
}

func TestProgressOnATerminalIsReplaced(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	var b bytes.Buffer
	p := NewProgress(&b, clk, ProgressOptions{Style: Style{TTY: true, Width: 20}})
	p.Update("one\ntwo")
	p.Update("a line that is longer than the terminal")
	p.Finish()
	want := "[00:00] one\ntwo\n\x1b[2A\x1b[J[00:00] a line tha~\n\x1b[1A\x1b[J"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"rollout", "why", "set", "image", "status", "history"}
	cases := map[string][]string{"rolout": {"rollout"}, "hsitory": {"history"}, "stat": {"status", "set"}, "zzz": nil, "roll": {"rollout"}}
	for word, want := range cases {
		if got := Nearest(word, words, 3); !slices.Equal(got, want) {
			t.Errorf("Nearest(%q) = %v, want %v", word, got, want)
		}
	}
}

func TestAgeAndElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "-", 5 * time.Second: "5s", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 124 * time.Hour: "5d4h", 300 * time.Hour: "12d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%s) = %s, want %s", d, got, want)
		}
	}
	if got := Elapsed(3723 * time.Second); got != "1:02:03" {
		t.Errorf("Elapsed() = %s", got)
	}
}

func TestStyle(t *testing.T) {
	if got := (Style{Color: true}).Paint(Failed, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("Paint() = %q", got)
	}
	if got := (Style{}).Paint(Failed, "x"); got != "x" {
		t.Errorf("Paint() without colour = %q", got)
	}
	if got := (Style{ASCII: true}).Symbol(OK); got != "[ok]" {
		t.Errorf("Symbol() in ASCII = %q", got)
	}
	if Cells("\x1b[31mab\x1b[0m") != 2 {
		t.Error("Cells() counts escape sequences")
	}
}
