// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// templateAnnotation holds the webhooks as the installer wrote them, as a JSON array.
	templateAnnotation = "template"
	convertPath        = "/convert"
)

// target is where this server is reached and by whose word; the functions below make
// configurations agree with it. They are pure.
type target struct {
	settings Settings
	ca       []byte
	serves   func(path string) bool
}

// dropped is a webhook that the installer wrote and that this manager does not serve.
type dropped struct{ configuration, webhook, path string }

// view is what the two kinds of webhooks have in common.
type view[W any] struct {
	config func(*W) *admissionv1.WebhookClientConfig
	name   func(*W) string
}

func mutatingView() view[admissionv1.MutatingWebhook] {
	return view[admissionv1.MutatingWebhook]{
		config: func(w *admissionv1.MutatingWebhook) *admissionv1.WebhookClientConfig { return &w.ClientConfig },
		name:   func(w *admissionv1.MutatingWebhook) string { return w.Name },
	}
}

func validatingView() view[admissionv1.ValidatingWebhook] {
	return view[admissionv1.ValidatingWebhook]{
		config: func(w *admissionv1.ValidatingWebhook) *admissionv1.WebhookClientConfig { return &w.ClientConfig },
		name:   func(w *admissionv1.ValidatingWebhook) string { return w.Name },
	}
}

// webhooks returns the webhooks that a configuration must have and the template to keep in
// its annotation. An empty template is taken from the current webhooks.
func webhooks[W any](t target, v view[W], configuration, template string, current []W) (want []W, kept string, drops []dropped, err error) {
	entries := slices.Clone(current)
	if template == "" {
		// The CA is of the day, it has no place in the template.
		for i := range entries {
			v.config(&entries[i]).CABundle = nil
		}
		raw, err := json.Marshal(entries)
		if err != nil {
			return nil, "", nil, fmt.Errorf("making the template of %s: %w", configuration, err)
		}
		template = string(raw)
	} else {
		entries = nil
		if err := json.Unmarshal([]byte(template), &entries); err != nil {
			return nil, "", nil, fmt.Errorf("annotation %q of %s: %w; set it to the empty string to make it anew from the webhooks", templateAnnotation, configuration, err)
		}
	}
	for i := range entries {
		cc := v.config(&entries[i])
		path := servicePath(*cc)
		if !t.serves(path) {
			drops = append(drops, dropped{configuration, v.name(&entries[i]), path})
			continue
		}
		t.point(cc, path)
		want = append(want, entries[i])
	}
	return want, template, drops, nil
}

// point makes cc reach path of this server.
func (t target) point(cc *admissionv1.WebhookClientConfig, path string) {
	cc.CABundle = t.ca
	if t.settings.Host != "" {
		cc.Service, cc.URL = nil, new(t.settings.url(path))
		return
	}
	if cc.Service == nil { // a URL that the installer chose stays
		return
	}
	service := *cc.Service // the current webhooks share it
	service.Namespace, service.Name = t.settings.Namespace, t.settings.ServiceName
	cc.Service = &service
}

// servicePath is the path that cc calls, of its Service or its URL.
func servicePath(cc admissionv1.WebhookClientConfig) string {
	switch {
	case cc.Service != nil && cc.Service.Path != nil:
		return *cc.Service.Path
	case cc.URL != nil:
		return urlPath(*cc.URL)
	}
	return ""
}

// foreignCA names the webhooks with a known path that do not trust the CA.
func foreignCA[W any](t target, v view[W], current []W) []string {
	var names []string
	for i := range current {
		cc := v.config(&current[i])
		if t.serves(servicePath(*cc)) && !sameCA(cc.CABundle, t.ca) {
			names = append(names, v.name(&current[i]))
		}
	}
	return names
}

// convertible reports whether the manager converts the kind of crd: the CRD asks for a
// webhook, and the first listed version that scheme knows is one of ours.
func convertible(crd *apiextensionsv1.CustomResourceDefinition, scheme *runtime.Scheme) bool {
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
		return false
	}
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return scheme.Recognizes(schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind})
	})
}

// conversion returns the stanza that a convertible CRD must have. What the current one says
// besides the client configuration stays, so that an equal one is never rewritten.
func (t target) conversion(current *apiextensionsv1.CustomResourceConversion) *apiextensionsv1.CustomResourceConversion {
	cc := apiextensionsv1.WebhookClientConfig{CABundle: t.ca}
	if t.settings.Host != "" {
		cc.URL = new(t.settings.url(convertPath))
	} else {
		cc.Service = &apiextensionsv1.ServiceReference{
			Namespace: t.settings.Namespace, Name: t.settings.ServiceName, Port: new(int32(443)), Path: new(convertPath),
		}
	}
	if w := current.Webhook; w != nil && w.ClientConfig != nil && apiequality.Semantic.DeepEqual(*w.ClientConfig, cc) {
		return current
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: &cc, ConversionReviewVersions: []string{"v1", "v1beta1"}},
	}
}

// sameCA compares PEM without regard to white space at the ends.
func sameCA(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }
