// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// sync makes everything right once. The order matters: a certificate is on disk before
// anybody is told to trust it.
func (c *Controller) sync(ctx context.Context) error {
	a, err := c.provider().ensure(ctx)
	if err != nil {
		return err
	}
	// Only the file provider reads the CA's key back, so only it leaves the key on disk.
	changed, err := writeAtomically(c.settings.CertDir, c.clock.Now().Format("06_01_02_15_04_05"), a.byName(c.settings.files() && !c.settings.External))
	if err != nil {
		return err
	}
	if changed {
		log.FromContext(ctx).Info("Wrote the webhook certificate", "dir", c.settings.CertDir, "expires", expiry(a.Cert))
	}
	t := target{settings: c.settings, ca: a.CACert, serves: c.serves}
	if c.settings.External {
		err = c.checkExternal(ctx, t)
	} else {
		err = errors.Join(c.ensureConfigurations(ctx, t), c.ensureCRDs(ctx, t))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certExpiry = expiry(a.Cert)
	return err
}

func (c *Controller) ensureConfigurations(ctx context.Context, t target) error {
	m, v, err := c.configurations(ctx)
	if err != nil {
		return err
	}
	oldM, oldV := m.DeepCopy(), v.DeepCopy()
	want, template, drops, err := webhooks(t, mutatingView(), m.Name, m.Annotations[templateAnnotation], m.Webhooks)
	if err != nil {
		return err
	}
	m.Webhooks = want
	setTemplate(m, template)
	wantV, template, dropsV, err := webhooks(t, validatingView(), v.Name, v.Annotations[templateAnnotation], v.Webhooks)
	if err != nil {
		return err
	}
	v.Webhooks = wantV
	setTemplate(v, template)
	c.report(ctx, append(drops, dropsV...))

	var errs []error
	if !apiequality.Semantic.DeepEqual(oldM, m) {
		errs = append(errs, c.update(ctx, m))
	}
	if !apiequality.Semantic.DeepEqual(oldV, v) {
		errs = append(errs, c.update(ctx, v))
	}
	return errors.Join(errs...)
}

// configurations reads both; the manager never creates them, the installer does.
func (c *Controller) configurations(ctx context.Context) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration, error) {
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: MutatingConfiguration}, m); err != nil {
		return nil, nil, missing("MutatingWebhookConfiguration", MutatingConfiguration, err)
	}
	if err := c.client.Get(ctx, types.NamespacedName{Name: ValidatingConfiguration}, v); err != nil {
		return nil, nil, missing("ValidatingWebhookConfiguration", ValidatingConfiguration, err)
	}
	return m, v, nil
}

func missing(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("not found %s %s: apply the manifests again", kind, name)
	}
	return fmt.Errorf("reading %s %s: %w", kind, name, err)
}

func setTemplate(obj client.Object, template string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[templateAnnotation] = template
	obj.SetAnnotations(annotations)
}

// update writes obj with the resource version that was read, so that what somebody applies
// in between is not lost: the conflict makes the sync run again.
func (c *Controller) update(ctx context.Context, obj client.Object) error {
	if err := c.client.Update(ctx, obj); err != nil {
		return fmt.Errorf("updating %T %s: %w", obj, obj.GetName(), err)
	}
	log.FromContext(ctx).Info("Pointed webhooks at this manager", "configuration", obj.GetName())
	return nil
}

// report logs drops once each and keeps them for the metric.
func (c *Controller) report(ctx context.Context, drops []dropped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range drops {
		if slices.Contains(c.drops, d) {
			continue
		}
		if gate := c.gatedOff(d.path); gate != "" {
			log.FromContext(ctx).V(1).Info("A webhook is left out as its feature is off", "configuration", d.configuration, "webhook", d.webhook, "gate", gate)
			continue
		}
		log.FromContext(ctx).Info("A webhook of the manifests is left out: this manager has no handler at its path",
			"configuration", d.configuration, "webhook", d.webhook, "path", d.path)
	}
	c.drops = drops
}

func (c *Controller) ensureCRDs(ctx context.Context, t target) error {
	return c.eachConvertible(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) error {
		want := t.conversion(crd.Spec.Conversion)
		if want == crd.Spec.Conversion {
			return nil
		}
		crd.Spec.Conversion = want
		return c.update(ctx, crd)
	})
}

// eachConvertible calls f for every CRD that the manager converts, read live, and returns
// all errors.
func (c *Controller) eachConvertible(ctx context.Context, f func(*apiextensionsv1.CustomResourceDefinition) error) error {
	objs, err := c.crds.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	var errs []error
	for _, obj := range objs {
		m, err := meta.Accessor(obj)
		if err != nil || !ours(m.GetName()) {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: m.GetName()}, crd); err != nil {
			if !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("reading CustomResourceDefinition %s: %w", m.GetName(), err))
			}
			continue
		}
		if convertible(crd, c.scheme) {
			errs = append(errs, f(crd))
		}
	}
	return errors.Join(errs...)
}

// checkExternal writes nothing; it names every object that does not trust the external CA.
func (c *Controller) checkExternal(ctx context.Context, t target) error {
	m, v, err := c.configurations(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if names := foreignCA(t, mutatingView(), m.Webhooks); len(names) > 0 {
		errs = append(errs, fmt.Errorf("caBundle of MutatingWebhookConfiguration %s does not match the external caBundle (webhooks %s)", m.Name, strings.Join(names, ", ")))
	}
	if names := foreignCA(t, validatingView(), v.Webhooks); len(names) > 0 {
		errs = append(errs, fmt.Errorf("caBundle of ValidatingWebhookConfiguration %s does not match the external caBundle (webhooks %s)", v.Name, strings.Join(names, ", ")))
	}
	errs = append(errs, c.eachConvertible(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) error {
		w := crd.Spec.Conversion.Webhook
		if w == nil || w.ClientConfig == nil || !sameCA(w.ClientConfig.CABundle, t.ca) {
			return fmt.Errorf("caBundle of CustomResourceDefinition %s does not match the external caBundle", crd.Name)
		}
		return nil
	}))
	return errors.Join(errs...)
}
