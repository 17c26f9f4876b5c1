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

// Serve runs the public and the private registry on their addresses, with all test images, until ctx ends. The public
// address also serves what admin describes; rules and requests are those of both.
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
	closed.host, closed.rules, closed.requests = images.PrivateHost+"/", open.rules, open.requests
	both := pair{open: open, closed: closed, base: base}
	catalog := images.Catalog()
	built, err := images.Build(base, catalog)
	if err != nil {
		return err
	}
	for _, e := range catalog {
		if err := both.put(e.Ref, built[e.Ref]); err != nil {
			return err
		}
	}
	mux := both.admin()
	mux.Handle("/v2/", open)
	own := http.NewServeMux()
	own.HandleFunc(tokenPath, exchange)
	own.Handle("/v2/", closed)
	return listen(ctx, map[string]http.Handler{public: mux, private: own})
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
