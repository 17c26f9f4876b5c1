// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// auditEvent is what is read of an event of the API server's audit log.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// writes counts API writes of one kind of user, by "verb resource/subresource".
type writes struct {
	Succeeded map[string]int `json:"succeeded"`
	Conflicts int            `json:"conflicts"`
	Failed    int            `json:"failed"`
	Total     int            `json:"total"` // those that succeeded, events and leases left out
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// byManager and byAgents choose whose requests are counted: the manager's, and those of the
// node agents, whoever plays them, about NodeImages.
func byManager(e auditEvent) bool { return e.User.Username == managerUser }
func byAgents(e auditEvent) bool {
	return e.User.Username != managerUser && e.ObjectRef.Resource == "nodeimages"
}

// countWrites reads an audit log and counts the writes that of chooses. Leases are the price of
// leader election and events are for people; both are listed but not in Total.
func countWrites(log io.Reader, of func(auditEvent) bool) (writes, error) {
	w := writes{Succeeded: map[string]int{}}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 4<<20)
	for n := 1; lines.Scan(); n++ {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return w, fmt.Errorf("line %d of the audit log: %w", n, err)
		}
		if e.Stage != "ResponseComplete" || !of(e) || !slices.Contains(writeVerbs, e.Verb) {
			continue
		}
		w.count(e)
	}
	return w, lines.Err()
}

func (w *writes) count(e auditEvent) {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	switch code := e.ResponseStatus.Code; {
	case code == 409:
		w.Conflicts++
	case code >= 300:
		w.Failed++
	default:
		w.Succeeded[e.Verb+" "+resource]++
		if e.ObjectRef.Resource != "events" && e.ObjectRef.Resource != "leases" {
			w.Total++
		}
	}
}
