// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/valid"
)

// What status.message tells at most: how many causes, nodes of each, and bytes of a cause.
const (
	maxCauses, maxNames = 3, 3
	maxCause            = 200
)

// progress begins the message of a job that runs (images.md 6.3).
func progress(status v1beta1.ImagePullJobStatus) string {
	if status.Desired == 0 {
		return "job is running, no progress"
	}
	return fmt.Sprintf("job is running, progress %.1f%%", 100*float64(status.Succeeded+status.Failed)/float64(status.Desired))
}

// sentence joins what there is to say.
func sentence(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// complaints tells why nodes failed, what hit most nodes first; nothing of nodes that gave
// no reason.
func complaints(failed []string, messages map[string]string) string {
	byCause := map[string][]string{}
	for _, node := range slices.Sorted(slices.Values(failed)) {
		if cause := oneLine(messages[node]); cause != "" {
			byCause[cause] = append(byCause[cause], node)
		}
	}
	causes := slices.SortedFunc(maps.Keys(byCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byCause[b]), len(byCause[a])), strings.Compare(a, b))
	})
	var parts []string
	for _, cause := range causes[:min(len(causes), maxCauses)] {
		parts = append(parts, fmt.Sprintf("%s: %s", enumerate.Some(byCause[cause], maxNames), cause))
	}
	if more := len(causes) - maxCauses; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more reasons", more))
	}
	return strings.Join(parts, "; ")
}

// fullNodes tells which nodes cannot take the task.
func fullNodes(full []string) string {
	if len(full) == 0 {
		return ""
	}
	return fmt.Sprintf("%s cannot get the task: the NodeImage lists %d images, the most there may be", enumerate.Some(slices.Sorted(slices.Values(full)), maxNames), valid.MaxNodeImages)
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}
