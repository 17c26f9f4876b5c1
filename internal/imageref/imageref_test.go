// SPDX-License-Identifier: Apache-2.0

package imageref

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const digest = "sha256:59bc5d24e6286c567201f6524f6cf5b5bfb547df27e9ed7146671a0b9caf53c3"

func TestParse(t *testing.T) {
	cases := map[string]struct {
		image, name, tag, full, repository string
		invalid                            bool
	}{
		"a bare name means latest of the library":      {image: "nginx", name: "nginx", tag: "latest", full: "nginx:latest", repository: "docker.io/library/nginx"},
		"docker.io and library are left out":           {image: "docker.io/library/nginx:1.18", name: "nginx", tag: "1.18", full: "nginx:1.18", repository: "docker.io/library/nginx"},
		"docker.io alone is left out":                  {image: "docker.io/acme/app:v1", name: "acme/app", tag: "v1", full: "acme/app:v1", repository: "docker.io/acme/app"},
		"index.docker.io is docker.io":                 {image: "index.docker.io/acme/app:v1", name: "acme/app", tag: "v1", full: "acme/app:v1", repository: "docker.io/acme/app"},
		"other registries stay":                        {image: "registry.k8s.io/e2e-test-images/nginx:1.14-4", name: "registry.k8s.io/e2e-test-images/nginx", tag: "1.14-4", full: "registry.k8s.io/e2e-test-images/nginx:1.14-4", repository: "registry.k8s.io/e2e-test-images/nginx"},
		"a port is not a tag":                          {image: "localhost:5000/app", name: "localhost:5000/app", tag: "latest", full: "localhost:5000/app:latest", repository: "localhost:5000/app"},
		"a digest is the tag and is joined with an at": {image: "acme/app@" + digest, name: "acme/app", tag: digest, full: "acme/app@" + digest, repository: "docker.io/acme/app"},
		"with tag and digest the digest wins":          {image: "acme/app:v1@" + digest, name: "acme/app", tag: digest, full: "acme/app@" + digest, repository: "docker.io/acme/app"},
		"upper case names are invalid":                 {image: "ACME/App", invalid: true},
		"the empty string is invalid":                  {image: "", invalid: true},
		"a scheme is invalid":                          {image: "https://docker.io/nginx", invalid: true},
		"a bare image id is invalid":                   {image: strings.TrimPrefix(digest, "sha256:"), invalid: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.image)
			if tc.invalid {
				if err == nil {
					t.Fatalf("Parse(%q) = %v, want an error", tc.image, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := (Ref{Name: tc.name, Tag: tc.tag}); got != want {
				t.Errorf("Parse(%q) = %+v, want %+v", tc.image, got, want)
			}
			if got.String() != tc.full {
				t.Errorf("String() = %q, want %q", got.String(), tc.full)
			}
			if got.Repository() != tc.repository {
				t.Errorf("Repository() = %q, want %q", got.Repository(), tc.repository)
			}
		})
	}
}

func TestIn(t *testing.T) {
	tags := []string{"<none>:<none>", "docker.io/library/nginx:1.18", "registry.k8s.io/pause:3.10"}
	digests := []string{"docker.io/library/nginx@" + digest}
	cases := map[string]struct {
		image string
		want  bool
	}{
		"a short name matches the runtime's long one":   {"nginx:1.18", true},
		"another tag does not match":                    {"nginx:1.19", false},
		"another registry does not match":               {"registry.k8s.io/nginx:1.18", false},
		"a digest is looked up among the repo digests":  {"nginx@" + digest, true},
		"a digest of another repository does not match": {"acme/nginx@" + digest, false},
		"tag and digest together match by the digest":   {"nginx:other@" + digest, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ref, err := Parse(tc.image)
			if err != nil {
				t.Fatal(err)
			}
			if got := ref.In(tags, digests); got != tc.want {
				t.Errorf("%v.In() = %v, want %v", ref, got, tc.want)
			}
		})
	}
}

// What NodeImage stores must lead back to the same name and tag, or the node would pull,
// and the job would wait for, something else.
func TestStringParsesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]string{"", "docker.io/", "docker.io/library/", "quay.io/", "localhost:5000/", "10.0.0.1:80/a/"}).Draw(t, "host")
		path := rapid.StringMatching(`[a-z0-9]{1,8}(/[a-z0-9]{1,8}(-[a-z0-9]{1,4})?)?`).Draw(t, "path")
		suffix := rapid.SampledFrom([]string{"", ":v1", ":1.2.3-alpine", "@" + digest, ":v1@" + digest}).Draw(t, "suffix")
		first, err := Parse(host + path + suffix)
		if err != nil {
			t.Skip("not a reference")
		}
		second, err := Parse(first.String())
		if err != nil {
			t.Fatalf("%q does not parse: %v", first.String(), err)
		}
		if first != second {
			t.Fatalf("%+v became %+v", first, second)
		}
		if !first.In([]string{host + path + suffix}, []string{host + path + suffix}) {
			t.Fatalf("%v is not found under its own reference", first)
		}
	})
}
