// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// maker creates jobs, or finds active ones that the same command made before.
type maker struct {
	f     *factory.Factory
	c     client.Client
	opts  apply.Options
	force bool
	doing string
}

// made is a job and what was done: "created", or "already active".
type made struct {
	target.Object
	sentence string
}

// job makes or finds an ImagePullJob.
func (m maker) job(ctx context.Context, want *v1beta1.ImagePullJob) (made, error) {
	v1beta1.SetDefaultsImagePullJob(want)
	return m.make(ctx, target.ImagePullJob, want, func(u *unstructured.Unstructured) (same, ended bool, err error) {
		have, err := fetch.As[v1beta1.ImagePullJob](u)
		if err != nil {
			return false, false, err
		}
		v1beta1.SetDefaultsImagePullJob(have)
		return sameSpec(have.Spec.Image, want.Spec.Image, have.Spec.ImagePullJobTemplate, want.Spec.ImagePullJobTemplate), have.Status.CompletionTime != nil, nil
	})
}

// list makes or finds an ImageListPullJob.
func (m maker) list(ctx context.Context, want *v1beta1.ImageListPullJob) (made, error) {
	v1beta1.SetDefaultsImageListPullJob(want)
	return m.make(ctx, target.ImageListPullJob, want, func(u *unstructured.Unstructured) (same, ended bool, err error) {
		have, err := fetch.As[v1beta1.ImageListPullJob](u)
		if err != nil {
			return false, false, err
		}
		v1beta1.SetDefaultsImageListPullJob(have)
		return sameSpec(have.Spec.Images, want.Spec.Images, have.Spec.ImagePullJobTemplate, want.Spec.ImagePullJobTemplate), have.Status.CompletionTime != nil, nil
	})
}

// sameSpec compares defaulted specs. How many nodes pull at once is no difference: a
// percentage means another number when nodes come and go.
func sameSpec(haveImages, wantImages any, have, want v1beta1.ImagePullJobTemplate) bool {
	have.Parallelism, want.Parallelism = nil, nil
	return equality.Semantic.DeepEqual(haveImages, wantImages) && equality.Semantic.DeepEqual(have, want)
}

func (m maker) make(ctx context.Context, k *target.Kind, want client.Object, compare func(*unstructured.Unstructured) (same, ended bool, err error)) (made, error) {
	mapping, err := fetch.Version(m.c.RESTMapper(), k)
	if err != nil {
		return made{}, &out.Failure{Doing: m.doing, Cause: err, Next: m.f.Name() + " version"}
	}
	u, err := fetch.Encode(want, mapping.GroupVersionKind)
	if err != nil {
		return made{}, err
	}
	obj := target.Object{Kind: k, GVK: mapping.GroupVersionKind, Resource: mapping.Resource, Live: u}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GVK)
	err = m.c.Get(ctx, client.ObjectKeyFromObject(u), live)
	switch {
	case apierrors.IsNotFound(err):
		return m.send(ctx, obj, "created")
	case err != nil:
		return made{}, &out.Failure{Doing: m.doing, Cause: err}
	}
	same, ended, err := compare(live)
	if err != nil {
		return made{}, err
	}
	if same && !ended && live.GetDeletionTimestamp() == nil {
		obj.Live = live
		return made{obj, "already active"}, nil
	}
	if !m.force {
		why := "a job of this name with another spec exists"
		if same {
			why = "a job of this name has finished"
		}
		return made{}, &out.Failure{Doing: m.doing, Why: why, Cause: fmt.Errorf("%s exists", obj),
			Next: m.f.Name() + " image status " + jobWord(obj) + "\nrepeat with --force to replace it, or with --name to make another", Object: obj.Short()}
	}
	if err := m.replace(ctx, live); err != nil {
		return made{}, err
	}
	return m.send(ctx, obj, "replaced")
}

func (m maker) send(ctx context.Context, obj target.Object, sentence string) (made, error) {
	if m.opts.DryRun == apply.DryRunClient {
		return made{obj, sentence}, nil
	}
	co := []client.CreateOption{client.FieldOwner(m.opts.FieldManager)}
	if m.opts.DryRun == apply.DryRunServer {
		co = append(co, client.DryRunAll)
		// A server dry run of a replacement would meet the job that is not deleted.
		if sentence == "replaced" {
			obj.Live.SetName("")
			obj.Live.SetGenerateName("pull-")
		}
	}
	if err := m.c.Create(ctx, obj.Live, co...); err != nil {
		return made{}, refused(m.f, m.doing, err)
	}
	return made{obj, sentence}, nil
}

// replace deletes a job and waits until its name is free.
func (m maker) replace(ctx context.Context, live *unstructured.Unstructured) error {
	if m.opts.DryRun != apply.DryRunNone {
		return nil
	}
	uid := live.GetUID()
	err := m.c.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	for err == nil {
		if err = m.c.Get(ctx, client.ObjectKeyFromObject(live), live); err == nil && live.GetUID() != uid {
			return nil
		}
		if err == nil {
			err = m.f.Sleep(ctx, 200*time.Millisecond)
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return &out.Failure{Doing: m.doing, Why: "the present job cannot be replaced", Cause: err}
}

// refused translates the webhook's answer when the feature gate is off.
func refused(f *factory.Factory, doing string, err error) error {
	fail := &out.Failure{Doing: doing, Cause: err}
	for _, gate := range []string{"ImagePullJobGate", "KruiseDaemon"} {
		if strings.Contains(err.Error(), "feature-gate "+gate) {
			fail.Why = "feature gate " + gate + " is off"
			fail.Next = f.Name() + " feature-gates enable " + gate
		}
	}
	return fail
}

// print writes what was done to jobs: a line each, or one document.
func (m maker) print(format out.Format, jobs []made) error {
	if !format.Machine() || len(jobs) == 1 {
		for _, j := range jobs {
			if err := object.Done(m.f.Out, format, m.opts, j.Object, j.sentence); err != nil {
				return err
			}
		}
		return nil
	}
	return object.List(m.f.Out, format, objectsOf(jobs))
}

func objectsOf(jobs []made) []target.Object {
	var list []target.Object
	for _, j := range jobs {
		list = append(list, j.Object)
	}
	return list
}

// jobWord is what names a job in a command: lists need their type.
func jobWord(o target.Object) string {
	if o.Kind == target.ImageListPullJob {
		return "ilpj/" + o.Live.GetName()
	}
	return o.Live.GetName()
}

// open opens the client and the namespace.
func open(f *factory.Factory, doing string) (client.WithWatch, string, error) {
	c, err := f.WatchClient()
	if err != nil {
		return nil, "", &out.Failure{Doing: doing, Cause: err}
	}
	ns, err := f.Namespace()
	return c, ns, err
}

var errNoImage = errors.New("name at least one image")
