// SPDX-License-Identifier: Apache-2.0

package runtimehash

import (
	"encoding/json"
	"hash/fnv"
)

func fnvOf(text string) uint64 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return uint64(h.Sum32())
}

func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}
