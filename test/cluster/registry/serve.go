// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/kruisectl/kruisectl/test/cluster/images"
)

// Serve runs the public and the private registry on their addresses, with all test images, until ctx ends.
// PUT /test/delay?blob=DURATION on the public address makes both slow.
func Serve(ctx context.Context, dir, public, private string) error {
	base, err := images.SystemBase()
	if err != nil {
		return err
	}
	open, err := Open(filepath.Join(dir, "public"), false)
	if err != nil {
		return err
	}
	closed, err := Open(filepath.Join(dir, "private"), true)
	if err != nil {
		return err
	}
	catalog := images.Catalog()
	built, err := images.Build(base, catalog)
	if err != nil {
		return err
	}
	for _, e := range catalog {
		target, ref := open, e.Ref
		if e.Private() {
			target, ref = closed, e.Ref[len(images.PrivateHost)+1:]
		}
		if err := target.Put(ref, built[e.Ref]); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", open)
	mux.HandleFunc("PUT /test/delay", func(w http.ResponseWriter, req *http.Request) {
		d, err := time.ParseDuration(req.URL.Query().Get("blob"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		open.SetDelay(d)
		closed.SetDelay(d)
		w.WriteHeader(http.StatusNoContent)
	})
	return listen(ctx, map[string]http.Handler{public: mux, private: closed})
}

// listen serves each handler on its address until ctx ends or one of them fails.
func listen(ctx context.Context, handlers map[string]http.Handler) error {
	failed := make(chan error, len(handlers))
	for address, h := range handlers {
		server := &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: time.Minute}
		go func() { failed <- fmt.Errorf("serving images on %s: %w", address, server.ListenAndServe()) }()
		defer server.Close()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Wait returns when the registry at the address answers.
func Wait(ctx context.Context, address string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v2/", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
