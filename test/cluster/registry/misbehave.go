// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// chunk is how much of a throttled answer is sent at once, at most.
const chunk = 16 << 10

// spoil answers for the registry where the rule says so, and returns whether it did.
func (r Rule) spoil(w http.ResponseWriter, req *http.Request) bool {
	if r.Hang {
		<-req.Context().Done()
		return true
	}
	if wait(req.Context(), time.Duration(r.DelayMillis)*time.Millisecond) != nil {
		return true
	}
	if r.Status == 0 {
		return false
	}
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	fail(w, r.Status, codes[r.Status], "the registry was told to fail")
	return true
}

// codes are the words of the registry protocol for errors.
var codes = map[int]string{
	http.StatusUnauthorized: "UNAUTHORIZED", http.StatusForbidden: "DENIED", http.StatusNotFound: "MANIFEST_UNKNOWN",
	http.StatusTooManyRequests: "TOOMANYREQUESTS",
}

// wrap returns a writer that spoils the body of an answer, and w itself if nothing is to be spoiled.
func (r Rule) wrap(w http.ResponseWriter, req *http.Request) http.ResponseWriter {
	if r.BytesPerSecond == 0 && r.TruncateAt == 0 && !r.Corrupt {
		return w
	}
	return &spoiler{ResponseWriter: w, ctx: req.Context(), rule: r, controller: http.NewResponseController(w), at: firstByte(req)}
}

// firstByte is where in the blob the answer to a request begins: clients resume what was cut.
func firstByte(req *http.Request) int64 {
	var at int64
	if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &at); err != nil {
		return 0 // no range, or one from the end
	}
	return at
}

// spoiler sends a body slowly, changes it, and cuts it short.
type spoiler struct {
	http.ResponseWriter
	ctx        context.Context //nolint:containedctx // of the one request that it serves
	rule       Rule
	controller *http.ResponseController
	at         int64 // place in the blob of the next byte
}

// Write implements io.Writer.
func (s *spoiler) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := len(p)
		if s.rule.BytesPerSecond > 0 {
			n = min(n, chunk, max(1, s.rule.BytesPerSecond/4))
		}
		if left := s.rule.TruncateAt - s.at; s.rule.TruncateAt > 0 && left <= int64(n) {
			n = int(max(0, left))
		}
		part := p[:n]
		if s.rule.Corrupt && s.at == 0 && n > 0 {
			part = append([]byte{part[0] ^ 0xff}, part[1:]...)
		}
		m, err := s.ResponseWriter.Write(part)
		written, s.at = written+m, s.at+int64(m)
		if err != nil {
			return written, err
		}
		if s.rule.TruncateAt > 0 && s.at >= s.rule.TruncateAt {
			_ = s.controller.Flush()
			panic(http.ErrAbortHandler) // what net/http offers to cut a connection
		}
		if s.rule.BytesPerSecond > 0 {
			_ = s.controller.Flush()
			if err := wait(s.ctx, time.Duration(n)*time.Second/time.Duration(s.rule.BytesPerSecond)); err != nil {
				return written, err
			}
		}
		p = p[n:]
	}
	return written, nil
}

// wait waits for d or for the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
