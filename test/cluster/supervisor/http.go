// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Serve answers requests on a Unix socket until ctx ends or a client asks for the end, then stops all processes.
// A socket file that a crashed supervisor left is replaced.
func Serve(ctx context.Context, socket string, s *Supervisor) error {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: handler(s, cancel), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		s.Close()
		return fmt.Errorf("serving requests: %w", err)
	case <-ctx.Done():
	}
	s.Close()
	shutdown, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = server.Shutdown(shutdown) // closes and removes the socket
	return nil
}

func handler(s *Supervisor, end func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /processes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.List())
	})
	mux.HandleFunc("PUT /processes", func(w http.ResponseWriter, r *http.Request) {
		var spec Spec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, s.Put(spec))
	})
	mux.HandleFunc("POST /processes/{name}/{action}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.Do(r.PathValue("name"), Action(r.PathValue("action"))))
	})
	mux.HandleFunc("POST /shutdown", func(w http.ResponseWriter, _ *http.Request) {
		end()
		answer(w, nil)
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// Client talks to the supervisor that serves a Unix socket.
type Client struct{ http *http.Client }

// NewClient returns a client for the socket; nothing is opened before the first request.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// List returns all processes, in the order of their first start.
func (c *Client) List(ctx context.Context) ([]Status, error) {
	body, err := c.call(ctx, http.MethodGet, "/processes", nil)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var list []Status
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	return list, nil
}

// Put starts or replaces a process.
func (c *Client) Put(ctx context.Context, spec Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	if _, err := c.call(ctx, http.MethodPut, "/processes", data); err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	return nil
}

// Do performs an action on a process.
func (c *Client) Do(ctx context.Context, name string, action Action) error {
	if _, err := c.call(ctx, http.MethodPost, "/processes/"+name+"/"+string(action), nil); err != nil {
		return fmt.Errorf("asking for %s of %s: %w", action, name, err)
	}
	return nil
}

// Shutdown asks the supervisor to stop everything and itself; it does not wait for that.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.call(ctx, http.MethodPost, "/shutdown", nil)
	return err
}

func (c *Client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, errors.New(strings.TrimSpace(string(data)))
	}
	return data, nil
}
