// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// Labels that this tool puts on jobs.
const (
	// PredownloadForLabel says for which workload a job pulls: <kind>.<name>.
	PredownloadForLabel = "cli.kruise.io/predownload-for"
	// RetryOfLabel names the job whose failed nodes a job pulls on again.
	RetryOfLabel = "cli.kruise.io/retry-of"
)

// maxName is the length of a job's name that leaves room for what is added to it: a label
// value holds no more.
const maxName = 63

// Name is the name of a job for images and a selection: the same command makes the same
// name, so that it is found again. Images must not be empty.
func Name(images []string, selection string) (string, error) {
	var refs []string
	first := ""
	for _, image := range images {
		ref, err := imageref.Parse(image)
		if err != nil {
			return "", err
		}
		refs = append(refs, ref.String())
		if first == "" {
			first = ref.Name[strings.LastIndexByte(ref.Name, '/')+1:]
		}
	}
	first = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(first))
	sum := short(strings.Join(refs, ",") + "\x00" + selection)
	return "pull-" + strings.Trim(first[:min(len(first), maxName-11)], "-") + "-" + sum, nil
}

// short is five letters and digits that stand for text.
func short(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return (strconv.FormatUint(uint64(h.Sum32()), 36) + "00000")[:5]
}

// PredownloadFor is the value of PredownloadForLabel. A name too long for a label is cut
// and told apart by its hash.
func PredownloadFor(kind, name string) string {
	v := strings.ToLower(kind) + "." + name
	if len(v) > maxName {
		v = v[:maxName-6] + "-" + short(v)
	}
	return v
}

var retried = regexp.MustCompile(`^(.*)-retry-([0-9]+)$`)

// ErrNoneFailed is returned by Retry for a job without failed nodes.
var ErrNoneFailed = errors.New("no node failed")

// Retry makes the job that pulls again on the nodes where job failed, otherwise the same:
// <name>-retry-1, or the next number that taken does not report.
func Retry(job *v1beta1.ImagePullJob, failed []string, taken func(name string) bool) (*v1beta1.ImagePullJob, error) {
	if len(failed) == 0 {
		return nil, ErrNoneFailed
	}
	base := job.Name
	if m := retried.FindStringSubmatch(base); m != nil {
		base = m[1]
	}
	name := ""
	for n := 1; name == "" || taken(name); n++ {
		name = fmt.Sprintf("%s-retry-%d", base, n)
	}
	next := &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: name, Labels: map[string]string{RetryOfLabel: label(job.Name)}},
		Spec:       *job.Spec.DeepCopy(),
	}
	if v := job.Labels[PredownloadForLabel]; v != "" {
		next.Labels[PredownloadForLabel] = v
	}
	next.Spec.PodSelector = nil
	next.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: slices.Sorted(slices.Values(failed))}
	return next, nil
}

// label makes a label value of a name: names may be longer.
func label(name string) string {
	if len(name) > maxName {
		return name[:maxName-6] + "-" + short(name)
	}
	return name
}
