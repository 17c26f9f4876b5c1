// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OutdatedObject is an object that a newer version would not accept as it is.
type OutdatedObject struct {
	Object  string `json:"object"`
	Message string `json:"message"`
	// Fix says what to write instead.
	Fix string `json:"fix"`
}

var integerText = regexp.MustCompile(`^[0-9]+$`)

// OutdatedObjects lists CloneSets whose maxUnavailable, maxSurge or partition is a number
// written as text, which is refused since 1.9 (install.md 8).
func (c *Cluster) OutdatedObjects(ctx context.Context) ([]OutdatedObject, error) {
	items, err := c.list(ctx, gvkCloneSet)
	if err != nil {
		return nil, err
	}
	list := []OutdatedObject{}
	for _, item := range items {
		for _, path := range [][]string{
			{"spec", "updateStrategy", "maxUnavailable"}, {"spec", "updateStrategy", "maxSurge"},
			{"spec", "updateStrategy", "partition"}, {"spec", "scaleStrategy", "maxUnavailable"},
		} {
			value, _, _ := unstructured.NestedFieldNoCopy(item.Object, path...)
			text, ok := value.(string)
			if !ok || !integerText.MatchString(text) {
				continue
			}
			field := path[0] + "." + path[1] + "." + path[2]
			list = append(list, OutdatedObject{
				Object:  Name(&item),
				Message: fmt.Sprintf("%s: %s is the text %q, which is refused from now on", Name(&item), field, text),
				Fix:     fmt.Sprintf("write %s: %s without quotes", path[2], text),
			})
		}
	}
	return list, nil
}
