// SPDX-License-Identifier: Apache-2.0

package imagelistpulljob

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

// hashLabel is on a list job, and on each of its children, with the hash of the template.
const hashLabel = appsv1.ControllerRevisionHashLabelKey

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Job *v1beta1.ImageListPullJob // active: neither deleted nor complete
	// Children are the ImagePullJobs that Job controls, in any order.
	Children []*v1beta1.ImagePullJob
}

// Plan is what act must do, as data. The zero Plan but for Status means "nothing to do".
type Plan struct {
	// Hash is what the label of the job has to be.
	Hash   string
	Status v1beta1.ImageListPullJobStatus
	// Create are children to make, one an image, in the order of spec.images.
	Create []*v1beta1.ImagePullJob
	// Delete are children that are outdated, superfluous, or of an image that left the list.
	Delete []*v1beta1.ImagePullJob
	// Refused are the images for which no valid child can be made. They are in Status too.
	Refused []v1beta1.FailedImageStatus
}

// Decide returns the children to make and to delete, and the status (images.md 9).
func Decide(s Snapshot, now time.Time) Plan {
	p := Plan{Hash: templateHash(&s.Job.Spec.ImagePullJobTemplate)}
	p.Status.StartTime = s.Job.Status.StartTime
	if p.Status.StartTime == nil {
		p.Status.StartTime = &metav1.Time{Time: now}
	}
	p.Status.Desired = int32(len(s.Job.Spec.Images))
	picked := map[string]*v1beta1.ImagePullJob{}
	for i, image := range s.Job.Spec.Images {
		if slices.Contains(s.Job.Spec.Images[:i], image) {
			p.count(picked[image]) // validation does not let it through
			continue
		}
		want := newChild(s.Job, image, p.Hash)
		child := pick(s.Children, want)
		picked[image] = child
		if child == nil {
			p.create(want)
			continue
		}
		p.count(child)
		if failed, is := failure(child); is {
			p.Status.FailedImageStatuses = append(p.Status.FailedImageStatuses, failed)
		}
	}
	for _, child := range byAge(s.Children) {
		if child.DeletionTimestamp == nil && picked[child.Spec.Image] != child {
			p.Delete = append(p.Delete, child)
		}
	}
	if s.Job.Spec.CompletionPolicy.Type != v1beta1.Never && p.Status.Completed == p.Status.Desired {
		p.Status.CompletionTime = &metav1.Time{Time: now}
	}
	return p
}

// create plans a child, unless it is one that validation refuses: then trying does not help,
// and the list job has to say so itself.
func (p *Plan) create(child *v1beta1.ImagePullJob) {
	errs := valid.ImagePullJob(child)
	if len(errs) == 0 {
		p.Create = append(p.Create, child)
		return
	}
	refused := v1beta1.FailedImageStatus{Name: child.Spec.Image, Message: "no ImagePullJob can be made: " + errs.ToAggregate().Error()}
	p.Refused = append(p.Refused, refused)
	p.Status.FailedImageStatuses = append(p.Status.FailedImageStatuses, refused)
}

// count adds a child to the status; nil is one that does not exist yet.
func (p *Plan) count(child *v1beta1.ImagePullJob) {
	if child == nil {
		return
	}
	s := child.Status
	if s.Active > 0 {
		p.Status.Active++
	}
	if s.StartTime == nil {
		return
	}
	if s.Desired == s.Failed+s.Succeeded {
		p.Status.Completed++
	}
	if s.Desired == s.Succeeded {
		p.Status.Succeeded++
	}
}

// failure tells of a child that nodes gave up, as far as the child knows why.
func failure(child *v1beta1.ImagePullJob) (v1beta1.FailedImageStatus, bool) {
	if child.Status.Failed == 0 {
		return v1beta1.FailedImageStatus{}, false
	}
	message := fmt.Sprintf("%d of %d nodes failed; kubectl get ImagePullJob %s -n %s -o yaml lists them",
		child.Status.Failed, child.Status.Desired, child.Name, child.Namespace)
	if _, causes, any := strings.Cut(child.Status.Message, "; "); any {
		message += "; " + causes
	}
	return v1beta1.FailedImageStatus{ImagePullJob: child.Name, Name: child.Spec.Image, Message: message}, true
}

// pick chooses the child that is what want would be; of several, the oldest. Labels of
// another implementation have another hash: then the template itself decides.
func pick(children []*v1beta1.ImagePullJob, want *v1beta1.ImagePullJob) *v1beta1.ImagePullJob {
	for _, child := range byAge(children) {
		if child.DeletionTimestamp != nil || child.Spec.Image != want.Spec.Image {
			continue
		}
		if child.Labels[hashLabel] == want.Labels[hashLabel] {
			return child
		}
		defaulted := child.DeepCopy()
		v1beta1.SetDefaultsImagePullJob(defaulted)
		if equality.Semantic.DeepEqual(defaulted.Spec, want.Spec) {
			return child
		}
	}
	return nil
}

func byAge(children []*v1beta1.ImagePullJob) []*v1beta1.ImagePullJob {
	return slices.SortedFunc(slices.Values(children), func(a, b *v1beta1.ImagePullJob) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// newChild is the defaulted job for one image of a list.
func newChild(job *v1beta1.ImageListPullJob, image, hash string) *v1beta1.ImagePullJob {
	child := &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, GenerateName: job.Name + "-",
			Labels:          map[string]string{hashLabel: hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, kind)},
		},
		Spec: v1beta1.ImagePullJobSpec{Image: image, ImagePullJobTemplate: *job.Spec.ImagePullJobTemplate.DeepCopy()},
	}
	v1beta1.SetDefaultsImagePullJob(child)
	return child
}

// kind is that of list jobs.
var kind = v1beta1.GroupVersion.WithKind("ImageListPullJob")

// templateHash is short and a valid label.
func templateHash(t *v1beta1.ImagePullJobTemplate) string {
	raw, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a template is not JSON: %v", err)) // it has no field that could fail
	}
	h := fnv.New32a()
	_, _ = h.Write(raw) // never fails
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}
