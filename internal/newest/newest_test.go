// SPDX-License-Identifier: Apache-2.0

package newest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/internal/newest"
)

func pod(uid, version string) *corev1.Pod {
	p := &corev1.Pod{}
	p.UID, p.ResourceVersion = types.UID(uid), version
	return p
}

func TestMemoryKnowsTheNewestVersion(t *testing.T) {
	start := time.Unix(1000, 0)
	const limit = 10 * time.Second
	cases := map[string]struct {
		note   func(*newest.Memory[*corev1.Pod])
		cached string
		after  time.Duration
		want   string
		worth  newest.Knowledge
	}{
		"nothing is known":                          {cached: "5", want: "5"},
		"the cache is behind the write":             {note: saw("7"), cached: "5", want: "7"},
		"more digits are newer":                     {note: saw("10"), cached: "9", want: "10"},
		"the cache shows the write":                 {note: saw("7"), cached: "7", want: "7"},
		"the cache is past the write":               {note: saw("7"), cached: "8", want: "8"},
		"versions that cannot be compared":          {note: saw("x"), cached: "5", want: "5"},
		"the cache stays behind for long":           {note: saw("7"), cached: "5", after: limit + 1, want: "7", worth: newest.Doubtful},
		"another object of the name":                {note: func(m *newest.Memory[*corev1.Pod]) { m.Saw(pod("b", "7"), start) }, cached: "5", want: "5"},
		"the object is gone and the cache has it":   {note: func(m *newest.Memory[*corev1.Pod]) { m.Gone(pod("a", "7"), start) }, cached: "9", want: "7", worth: newest.Gone},
		"a gone object that the cache has for long": {note: func(m *newest.Memory[*corev1.Pod]) { m.Gone(pod("a", "7"), start) }, cached: "9", after: limit + 1, want: "7", worth: newest.Doubtful},
		"what the API server says ends the doubt":   {note: func(m *newest.Memory[*corev1.Pod]) { saw("7")(m); m.Saw(pod("a", "6"), start.Add(limit)) }, cached: "5", after: limit + 1, want: "6"},
		"what nobody asks for is forgotten":         {note: func(m *newest.Memory[*corev1.Pod]) { saw("7")(m); m.Saw(pod("b", "1"), start.Add(10*limit+1)) }, cached: "5", want: "5"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			memory := newest.New[*corev1.Pod](limit)
			if tc.note != nil {
				tc.note(memory)
			}
			got, worth := memory.Of(pod("a", tc.cached), start.Add(tc.after))
			require.Equal(t, tc.want, got.ResourceVersion)
			require.Equal(t, tc.worth, worth)
		})
	}
}

func saw(version string) func(*newest.Memory[*corev1.Pod]) {
	return func(m *newest.Memory[*corev1.Pod]) { m.Saw(pod("a", version), time.Unix(1000, 0)) }
}
