// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"encoding/json"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inOldWords returns raw, an UPDATE of old that changes nothing but metadata, with the spec in
// the words of old. The API server compares JSON, in which an absent field is not an empty one,
// and counts a generation for the difference; a conversion writes every empty field, so that a
// manifest in an older version would count one each time that it is put. before and after are
// raw without and with defaults.
//
// It says false when the specs differ in more than empty fields, be it in fields that our types
// do not know: those are the client's to change.
func inOldWords(old, raw []byte, before, after client.Object) ([]byte, bool) {
	full, err := merge(raw, before, after)
	if err != nil {
		return nil, false
	}
	var was, is map[string]json.RawMessage
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(full, &is) != nil || was["spec"] == nil {
		return nil, false
	}
	var oldSpec, newSpec any
	if json.Unmarshal(was["spec"], &oldSpec) != nil || is["spec"] != nil && json.Unmarshal(is["spec"], &newSpec) != nil {
		return nil, false
	}
	if !reflect.DeepEqual(sparse(oldSpec), sparse(newSpec)) {
		return nil, false
	}
	is["spec"] = was["spec"]
	kept, err := json.Marshal(is)
	return kept, err == nil
}

// sparse returns v without fields that are empty; nil when nothing is left. Whether an empty
// field means something is for the types to say.
func sparse(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if rest := sparse(value); rest != nil {
				out[key] = rest
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = sparse(v[i])
		}
		return out
	case string:
		if v == "" {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}
