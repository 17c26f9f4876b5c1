// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// row is one Pod before and after the rollout.
type row struct {
	pod                           string
	uid, ip, node                 [2]string
	image                         [2]string
	appRestarts, sidecarRestarts  int32
	pulled, touched               time.Time
	imageKnown, touchKnown, known bool
}

// compare joins the Pods of before and after by name, and adds when the node had the new
// image and when the Pod was touched.
func compare(before, after []corev1.Pod, nodeImages []v1beta1.NodeImage) []row {
	was := map[string]corev1.Pod{}
	for _, p := range before {
		was[p.Name] = p
	}
	var rows []row
	for _, p := range after {
		old, known := was[p.Name]
		r := row{
			pod: p.Name, known: known,
			uid:             [2]string{string(old.UID), string(p.UID)},
			ip:              [2]string{old.Status.PodIP, p.Status.PodIP},
			node:            [2]string{old.Spec.NodeName, p.Spec.NodeName},
			image:           [2]string{image(old), image(p)},
			appRestarts:     restarts(p, "app") - restarts(old, "app"),
			sidecarRestarts: restarts(p, "sidecar") - restarts(old, "sidecar"),
		}
		r.pulled, r.imageKnown = pulledAt(nodeImages, p.Spec.NodeName)
		r.touched, r.touchKnown = touchedAt(p)
		rows = append(rows, r)
	}
	return rows
}

func image(p corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == "app" {
			return c.Image
		}
	}
	return ""
}

func restarts(p corev1.Pod, container string) int32 {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			return s.RestartCount
		}
	}
	return 0
}

// pulledAt is when the node reported that it has the new image.
func pulledAt(nodeImages []v1beta1.NodeImage, node string) (time.Time, bool) {
	for _, n := range nodeImages {
		if n.Name != node {
			continue
		}
		for _, tag := range n.Status.ImageStatuses["nginx"].Tags {
			if "nginx:"+tag.Tag == newImage && tag.Phase == v1beta1.ImagePhaseSucceeded && tag.CompletionTime != nil {
				return tag.CompletionTime.Time, true
			}
		}
	}
	return time.Time{}, false
}

// touchedAt is the start of the Pod's in-place update, from the record it carries.
func touchedAt(p corev1.Pod) (time.Time, bool) {
	var state struct {
		UpdateTimestamp time.Time `json:"updateTimestamp"`
	}
	err := json.Unmarshal([]byte(p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]), &state)
	return state.UpdateTimestamp, err == nil && !state.UpdateTimestamp.IsZero()
}

func printTable(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tUID\tIP\tNODE\tIMAGE\tAPP RESTARTS\tSIDECAR RESTARTS\tIMAGE ON NODE\tPOD TOUCHED")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s -> %s\t+%d\t+%d\t%s\t%s\n", r.pod,
			same(r.uid), same(r.ip), same(r.node), r.image[0], r.image[1], r.appRestarts, r.sidecarRestarts,
			clock(r.pulled, r.imageKnown), clock(r.touched, r.touchKnown))
	}
	_ = w.Flush()
}

// same shows a value that must not change: once with "same", or both.
func same(v [2]string) string {
	if v[0] == v[1] {
		return v[1] + " (same)"
	}
	return v[0] + " -> " + v[1]
}

func clock(t time.Time, known bool) string {
	if !known {
		return "-"
	}
	return t.UTC().Format(time.TimeOnly)
}

// verdict fails for every Pod of which the table does not show what the demo promises.
func verdict(out io.Writer, rows []row) error {
	var errs []error
	if len(rows) != replicas {
		errs = append(errs, fmt.Errorf("%d Pods, want %d", len(rows), replicas))
	}
	for _, r := range rows {
		switch {
		case !r.known:
			errs = append(errs, fmt.Errorf("Pod %s is new", r.pod))
		case r.uid[0] != r.uid[1] || r.ip[0] != r.ip[1] || r.node[0] != r.node[1]:
			errs = append(errs, fmt.Errorf("Pod %s did not keep UID, IP and node", r.pod))
		case r.image != [2]string{oldImage, newImage}:
			errs = append(errs, fmt.Errorf("Pod %s: image %s -> %s", r.pod, r.image[0], r.image[1]))
		case r.appRestarts != 1 || r.sidecarRestarts != 0:
			errs = append(errs, fmt.Errorf("Pod %s: app restarted %d times, sidecar %d times", r.pod, r.appRestarts, r.sidecarRestarts))
		case !r.imageKnown || !r.touchKnown || r.touched.Before(r.pulled):
			errs = append(errs, fmt.Errorf("Pod %s was touched at %s, its node had the image at %s", r.pod, clock(r.touched, r.touchKnown), clock(r.pulled, r.imageKnown)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d Pods updated in place: same UID, IP and node; only container app restarted; image on the node first.\n", len(rows), replicas)
	return nil
}
