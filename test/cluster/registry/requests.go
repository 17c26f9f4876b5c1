// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxRequests bounds the memory of a registry that runs for days; older requests are forgotten.
const maxRequests = 200_000

// Request is one download that a client asked for, as the registry answered it.
type Request struct {
	Time       time.Time `json:"time"` // of its arrival
	Client     string    `json:"client"`
	Method     string    `json:"method"`
	Repository string    `json:"repository"` // full name with its host
	Kind       Kind      `json:"kind"`
	Reference  string    `json:"reference"`         // tag or digest
	Ended      bool      `json:"ended"`             // whether what follows is known
	Status     int       `json:"status"`            // 0: the client gave up before there was one
	Bytes      int64     `json:"bytes"`             // of the body, as far as it was sent
	Spoiled    bool      `json:"spoiled,omitempty"` // whether a rule made it go wrong
}

// Requests remembers what clients asked for. The zero value is empty; it is safe for concurrent use.
type Requests struct {
	mu   sync.Mutex
	list []*Request
}

// add remembers a request when it arrives. Its end is told later, with end.
func (q *Requests) add(r Request) *Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= maxRequests {
		q.list = append([]*Request(nil), q.list[maxRequests/2:]...)
	}
	q.list = append(q.list, &r)
	return &r
}

func (q *Requests) end(r *Request, status int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.Ended, r.Status, r.Bytes = true, status, bytes
}

func (q *Requests) spoiled(r *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.Spoiled = true
}

// Of lists the requests about a repository, in the order of their arrival; all of them if it is empty.
func (q *Requests) Of(repository string) []Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := []Request{}
	for _, r := range q.list {
		if repository == "" || r.Repository == repository {
			found = append(found, *r)
		}
	}
	return found
}

// clientOf is the address that a request came from, without its port.
func clientOf(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
