// SPDX-License-Identifier: Apache-2.0

// Package image pulls images before a rollout needs them: the commands
// `kruisectl image …`.
package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Pull images to nodes beforehand",
		Example: "  kruisectl image pull repo/web:2 --wait\n" +
			"  kruisectl image status pull-web-1a2b3",
	}
	cmd.AddCommand(newPull(f), newStatus(f), newWait(f))
	return []*cobra.Command{cmd}
}

var jobKinds = []*target.Kind{target.ImagePullJob}

// job is an ImagePullJob as read: typed, and in the version that was read.
type job struct {
	target.Object
	hub *v1beta1.ImagePullJob
}

func decode(o target.Object) (job, error) {
	hub, err := hubOf(o.Live)
	return job{Object: o, hub: hub}, err
}

func hubOf(u *unstructured.Unstructured) (*v1beta1.ImagePullJob, error) {
	hub := &v1beta1.ImagePullJob{}
	if u.GroupVersionKind().Version != "v1alpha1" {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hub); err != nil {
			return nil, fmt.Errorf("reading ImagePullJob %s: %w", u.GetName(), err)
		}
		return hub, nil
	}
	old := &v1alpha1.ImagePullJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, old); err != nil {
		return nil, fmt.Errorf("reading ImagePullJob %s: %w", u.GetName(), err)
	}
	return old.ToHub(), nil
}

// statusOf reads the job anew and joins it with the NodeImages; those may be hidden.
func statusOf(ctx context.Context, f *factory.Factory, j job, minSucceeded *intstr.IntOrString) (pull.Status, error) {
	c, err := f.Client()
	if err != nil {
		return pull.Status{}, err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(j.GVK)
	if err := c.Get(ctx, client.ObjectKeyFromObject(j.Live), u); err != nil {
		return pull.Status{}, err
	}
	if u.GetUID() != j.Live.GetUID() {
		return pull.Status{}, errReplaced
	}
	hub, err := hubOf(u)
	if err != nil {
		return pull.Status{}, err
	}
	var nodes v1beta1.NodeImageList
	err = c.List(ctx, &nodes)
	switch {
	case apierrors.IsForbidden(err):
		f.Note("details hidden: cannot list nodeimages")
	case err != nil:
		return pull.Status{}, fmt.Errorf("listing nodeimages: %w", err)
	}
	return pull.Of(hub, nodes.Items, minSucceeded), nil
}

var errReplaced = errors.New("another job of the same name took its place")

// resolve reads the jobs that the arguments name; a bare word is a job's name here.
func resolve(ctx context.Context, f *factory.Factory, command string, args []string) ([]job, error) {
	v := target.Verb{Command: command, Kinds: jobKinds}
	if len(args) == 0 {
		return nil, out.UsageNext(f.Name()+" "+command+" JOB", errors.New("name at least one job"))
	}
	var names []target.Name
	for _, a := range args {
		n := target.Name{Kinds: jobKinds, Name: a, Typed: "imagepulljob/" + a}
		for _, prefix := range []string{"imagepulljob/", "imagepulljobs/", "ipj/"} {
			if len(a) > len(prefix) && a[:len(prefix)] == prefix {
				n.Name = a[len(prefix):]
			}
		}
		names = append(names, n)
	}
	objects, err := object.Resolve(ctx, f, v, names)
	if err != nil {
		return nil, err
	}
	var jobs []job
	for _, o := range objects {
		j, err := decode(o)
		if err != nil {
			return nil, object.Failure(f, command, o, err, "")
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// completeJobs offers the names of jobs.
func completeJobs(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return object.ListNames(cmd.Context(), f, jobKinds, ""), cobra.ShellCompDirectiveNoFileComp
	}
}
