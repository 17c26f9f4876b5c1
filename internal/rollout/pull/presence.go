// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// How an image is known to be on a node.
const (
	// Present: the node agent pulled it, or found it there.
	Present = "Present"
	// PresentKubelet: the kubelet lists it. It lists only the largest images.
	PresentKubelet = "PresentOnKubelet"
	// NotKnown: nobody says that it is there. It may be all the same.
	NotKnown = "Unknown"
)

// Presence is one node and what is known of one image there.
type Presence struct {
	Node string `json:"node"`
	// State is Present, PresentKubelet, NotKnown, or the phase of a pull that is not done.
	State    string `json:"state"`
	Progress int32  `json:"progress"`
	// Since is when the node agent had it; zero when unknown.
	Since time.Time `json:"since,omitzero"`
	// Size is in bytes; 0 when unknown.
	Size    int64  `json:"sizeBytes"`
	Message string `json:"message"`
}

// Has reports that the image is known to be on the node.
func (p Presence) Has() bool { return p.State == Present || p.State == PresentKubelet }

// Where finds one image on all nodes, sorted by node. nodes may be nil when they cannot be
// read.
func Where(ref imageref.Ref, nodeImages []v1beta1.NodeImage, nodes []corev1.Node) []Presence {
	byNode := map[string]Presence{}
	for i := range nodes {
		byNode[nodes[i].Name] = onKubelet(ref, &nodes[i])
	}
	for i := range nodeImages {
		ni := &nodeImages[i]
		p, ok := byNode[ni.Name]
		if !ok {
			p = Presence{Node: ni.Name, State: NotKnown}
		}
		for _, t := range ni.Status.ImageStatuses[ref.Name].Tags {
			if t.Tag == ref.Tag {
				p = p.agent(t)
			}
		}
		byNode[ni.Name] = p
	}
	list := make([]Presence, 0, len(byNode))
	for _, p := range byNode {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Presence) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

func onKubelet(ref imageref.Ref, node *corev1.Node) Presence {
	p := Presence{Node: node.Name, State: NotKnown}
	for _, im := range node.Status.Images {
		if ref.In(im.Names, im.Names) {
			p.State, p.Size = PresentKubelet, im.SizeBytes
		}
	}
	return p
}

// agent adds what the node agent says. What the kubelet has seen is not taken back by a
// pull that goes on or failed.
func (p Presence) agent(t v1beta1.ImageTagStatus) Presence {
	if t.Phase == v1beta1.ImagePhaseSucceeded {
		p.State, p.Progress, p.Message = Present, 100, t.ImageID
		if t.CompletionTime != nil {
			p.Since = t.CompletionTime.Time
		}
		return p
	}
	p.Progress, p.Message = t.Progress, t.Message
	if !p.Has() {
		p.State = string(t.Phase)
	}
	return p
}

// Missing are the nodes of wanted on which the image is not known to be.
func Missing(list []Presence, wanted []string) []string {
	has := map[string]bool{}
	for _, p := range list {
		has[p.Node] = p.Has()
	}
	var names []string
	for _, n := range wanted {
		if !has[n] {
			names = append(names, n)
		}
	}
	return names
}

// Coverage is how far an image has come to the nodes of a workload.
type Coverage struct {
	Image string `json:"image"`
	// Job is the job that pulls it beforehand.
	Job string `json:"job"`
	// Present of Nodes have it.
	Present int `json:"present"`
	Nodes   int `json:"nodes"`
	// Failed are nodes where the pull failed.
	Failed int `json:"failed"`
	// Done: the job has ended.
	Done bool `json:"done"`
}

// Cover counts on which of nodes an image is: where a node agent has it, or a Pod runs it
// already.
func Cover(job *v1beta1.ImagePullJob, nodes []string, agents map[string]*v1beta1.NodeImage, running map[string]bool) Coverage {
	c := Coverage{Image: job.Spec.Image, Job: job.Name, Nodes: len(nodes), Done: job.Status.CompletionTime != nil}
	ref, err := imageref.Parse(job.Spec.Image)
	if err != nil {
		return c
	}
	for _, n := range nodes {
		state := ""
		if ni := agents[n]; ni != nil {
			for _, t := range ni.Status.ImageStatuses[ref.Name].Tags {
				if t.Tag == ref.Tag {
					state = string(t.Phase)
				}
			}
		}
		switch {
		case running[n] || state == string(v1beta1.ImagePhaseSucceeded):
			c.Present++
		case state == string(v1beta1.ImagePhaseFailed):
			c.Failed++
		}
	}
	return c
}

// String is "image web:2 on 7 of 10 nodes", with the failures.
func (c Coverage) String() string {
	text := fmt.Sprintf("image %s on %d of %d nodes", c.Image, c.Present, c.Nodes)
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d failed", c.Failed)
	}
	return text
}
