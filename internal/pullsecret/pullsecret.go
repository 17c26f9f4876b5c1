// SPDX-License-Identifier: Apache-2.0

// Package pullsecret keeps copies of the pull secrets of ImagePullJobs in the one namespace
// whose secrets the node agents may read. Decide is pure; Syncer reads and writes. Several
// jobs share one copy, which lists them and goes with the last of them. Rules: images.md 7.
package pullsecret

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Annotations on a copy.
const (
	// SourceAnnotation is the namespace/name of the secret that was copied.
	SourceAnnotation = "imagepulljobs.kruise.io/source-key"
	// ReferencesAnnotation lists the namespace/name of the jobs that use the copy, sorted,
	// separated by commas.
	ReferencesAnnotation = "imagepulljobs.kruise.io/references"
	// ModeAnnotation is v1beta1.PullSecretModeBatch on shared copies.
	ModeAnnotation = "imagepulljobs.kruise.io/mode"
)

// DefaultNamespace holds the copies unless KRUISE_DAEMON_CONFIG_NS says otherwise.
const DefaultNamespace = "kruise-daemon-config"

// Snapshot is what Decide looks at. Nobody writes to it.
type Snapshot struct {
	Namespace string // of the copies
	Job       types.NamespacedName
	// Wanted are the job's secrets by name, in its namespace; nothing is wanted any more
	// when Released is true.
	Wanted   []string
	Released bool
	// Sources has those of Wanted that exist.
	Sources map[string]*corev1.Secret
	// Copies are the secrets of Namespace, in any order.
	Copies []*corev1.Secret
}

// Plan is what has to be written, and what the NodeImages have to refer to.
type Plan struct {
	Create, Update, Delete []*corev1.Secret
	// References are sorted like Wanted; a wanted secret that does not exist has none.
	References []v1beta1.ReferenceObject
	// Missing are the wanted secrets that do not exist.
	Missing []string
}

// Empty reports whether nothing has to be written.
func (p Plan) Empty() bool { return len(p.Create)+len(p.Update)+len(p.Delete) == 0 }

// Decide returns the writes after which every wanted secret has one copy that names the
// job, and no other copy names it.
func Decide(s Snapshot) Plan {
	var p Plan
	if s.Job.Namespace == s.Namespace {
		// The agents can read these as they are.
		if !s.Released {
			for _, name := range s.Wanted {
				p.References = append(p.References, v1beta1.ReferenceObject{Namespace: s.Namespace, Name: name})
			}
		}
		return p
	}
	picked := pick(s)
	for _, secret := range s.copies() {
		if picked[secret.Annotations[SourceAnnotation]] != secret && references(secret).has(s.Job) {
			p.release(secret, s.Job)
		}
	}
	if s.Released {
		return p
	}
	for _, name := range slices.Compact(slices.Clone(s.Wanted)) {
		p.claim(s, name, picked[sourceKey(s.Job.Namespace, name)])
	}
	return p
}

// copies returns the usable copies in a fixed order, so that every pass picks the same one.
func (s Snapshot) copies() []*corev1.Secret {
	var usable []*corev1.Secret
	for _, secret := range s.Copies {
		if secret.DeletionTimestamp == nil && secret.Annotations[SourceAnnotation] != "" {
			usable = append(usable, secret)
		}
	}
	slices.SortFunc(usable, func(a, b *corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	return usable
}

// pick chooses one copy per wanted source: one that names the job already wins, since old
// versions made a copy per job and going back and forth between them never ends.
func pick(s Snapshot) map[string]*corev1.Secret {
	picked := map[string]*corev1.Secret{}
	if s.Released {
		return picked
	}
	for _, secret := range s.copies() {
		source := secret.Annotations[SourceAnnotation]
		namespace, name, _ := strings.Cut(source, "/")
		if namespace != s.Job.Namespace || !slices.Contains(s.Wanted, name) {
			continue
		}
		if src := s.Sources[name]; src != nil && src.Type != secret.Type {
			continue // the source was made anew; the type of a secret cannot be changed
		}
		if best := picked[source]; best == nil || !references(best).has(s.Job) && references(secret).has(s.Job) {
			picked[source] = secret
		}
	}
	return picked
}

func (p *Plan) release(secret *corev1.Secret, job types.NamespacedName) {
	refs := references(secret).without(job)
	if len(refs) == 0 {
		p.Delete = append(p.Delete, secret)
		return
	}
	changed := secret.DeepCopy()
	changed.Annotations[ReferencesAnnotation] = refs.String()
	p.Update = append(p.Update, changed)
}

func (p *Plan) claim(s Snapshot, name string, existing *corev1.Secret) {
	source := s.Sources[name]
	if source == nil {
		p.Missing = append(p.Missing, name)
		if existing != nil && references(existing).has(s.Job) {
			// The source is gone, its copy still works for what is being pulled.
			p.References = append(p.References, referenceTo(existing))
		}
		return
	}
	if existing == nil {
		created := newCopy(s.Namespace, source, s.Job)
		p.Create = append(p.Create, created)
		p.References = append(p.References, referenceTo(created))
		return
	}
	p.References = append(p.References, referenceTo(existing))
	if references(existing).has(s.Job) && maps.EqualFunc(existing.Data, source.Data, bytes.Equal) {
		return
	}
	changed := existing.DeepCopy()
	changed.Data = maps.Clone(source.Data)
	changed.Annotations[ReferencesAnnotation] = references(existing).with(s.Job).String()
	p.Update = append(p.Update, changed)
}

// newCopy names the copy after a hash of the source and its type, so that two passes that do
// not see each other's work create the same object and the second one notices.
func newCopy(namespace string, source *corev1.Secret, job types.NamespacedName) *corev1.Secret {
	key := sourceKey(source.Namespace, source.Name)
	hash := sha256.Sum256([]byte(key + "\x00" + string(source.Type)))
	annotations := map[string]string{}
	maps.Copy(annotations, source.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	annotations[SourceAnnotation] = key
	annotations[ReferencesAnnotation] = refList{job}.String()
	annotations[ModeAnnotation] = v1beta1.PullSecretModeBatch
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        strings.TrimRight(source.Name[:min(len(source.Name), 246)], "-.") + "-" + hex.EncodeToString(hash[:3]),
			Labels:      maps.Clone(source.Labels),
			Annotations: annotations,
		},
		Type: source.Type,
		Data: maps.Clone(source.Data),
	}
}

func referenceTo(secret *corev1.Secret) v1beta1.ReferenceObject {
	return v1beta1.ReferenceObject{Namespace: secret.Namespace, Name: secret.Name, Mode: secret.Annotations[ModeAnnotation]}
}

func sourceKey(namespace, name string) string { return namespace + "/" + name }

// References returns the jobs that a copy names; none for secrets that are no copies.
func References(annotations map[string]string) []types.NamespacedName {
	var jobs []types.NamespacedName
	for item := range strings.SplitSeq(annotations[ReferencesAnnotation], ",") {
		if namespace, name, ok := strings.Cut(strings.TrimSpace(item), "/"); ok {
			jobs = append(jobs, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return jobs
}

// refList is the value of ReferencesAnnotation.
type refList []types.NamespacedName

func references(secret *corev1.Secret) refList { return References(secret.Annotations) }

func (l refList) has(job types.NamespacedName) bool { return slices.Contains(l, job) }

func (l refList) without(job types.NamespacedName) refList {
	return slices.DeleteFunc(slices.Clone(l), func(have types.NamespacedName) bool { return have == job })
}

func (l refList) with(job types.NamespacedName) refList { return append(l.without(job), job) }

func (l refList) String() string {
	texts := make([]string, 0, len(l))
	for _, job := range l {
		texts = append(texts, job.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}
