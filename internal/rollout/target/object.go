// SPDX-License-Identifier: Apache-2.0

package target

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one resolved target.
type Object struct {
	Kind *Kind
	// GVK holds the served version that was read; patches must use the same.
	GVK schema.GroupVersionKind
	// Resource is the plural at GVK.
	Resource schema.GroupVersionResource
	// Live is the object as read.
	Live *unstructured.Unstructured
	// Note says how an ambiguous word was understood; "" when it was clear.
	Note string
}

// String is "<singular>.<group>/<name>", the form of result lines.
func (o Object) String() string { return o.Kind.Resource() + "/" + o.Live.GetName() }

// Short is "<word>/<name>" as used in hints; the word names no other kind.
func (o Object) Short() string { return Short(o.Kind, o.Live.GetName()) }

// Title is "<word> <namespace>/<name>" for sentences.
func (o Object) Title() string {
	if o.Kind.ClusterScoped {
		return o.Kind.Word() + " " + o.Live.GetName()
	}
	return o.Kind.Word() + " " + o.Live.GetNamespace() + "/" + o.Live.GetName()
}

// Short is "<word>/<name>"; the word names no other kind.
func Short(k *Kind, name string) string { return k.Word() + "/" + name }

// NotServedError says that the server has none of the versions this tool speaks.
type NotServedError struct {
	Kind   *Kind
	Served []string
}

func (e *NotServedError) Error() string {
	served := "the server serves none"
	if len(e.Served) > 0 {
		served = "the server serves " + strings.Join(e.Served, ", ")
	}
	return fmt.Sprintf("%s is not served: this tool speaks %s of it, %s", e.Kind.Spelling(), strings.Join(e.Kind.Versions, ", "), served)
}
