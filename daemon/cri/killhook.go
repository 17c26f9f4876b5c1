// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runningHook ends a hook that was started, and waits until it has ended.
type runningHook struct {
	cancel context.CancelFunc
	result chan error
	ended  chan struct{}
}

// startHook runs the hook beside the caller. What it may take in all is the grace period and
// what the process has after it: it is not cut off while the container still stops.
func startHook(ctx context.Context, rt Runtime, id string, o KillOptions, grace time.Duration) runningHook {
	limit := grace + minimumGrace
	ctx, cancel := context.WithTimeout(ctx, limit)
	h := runningHook{cancel: cancel, result: make(chan error, 1), ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		defer func() { // of a runtime or a hook that is odd: it must not end the agent
			if p := recover(); p != nil {
				h.result <- fmt.Errorf("panic: %v", p)
			}
		}()
		h.result <- runHook(ctx, rt, id, o, limit)
	}()
	return h
}

// within waits for the hook.
func (h runningHook) within(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-h.result:
		return err
	case <-timer.C:
		return fmt.Errorf("the hook did not end within %s: %w", d, ErrTimedOut)
	}
}

// end stops the hook if it still runs.
func (h runningHook) end() {
	h.cancel()
	<-h.ended
}

func runHook(ctx context.Context, rt Runtime, id string, o KillOptions, limit time.Duration) error {
	switch hook := o.Hook; {
	case hook.Exec != nil:
		_, err := rt.Exec(ctx, id, hook.Exec.Command, limit)
		return err
	case hook.HTTPGet != nil:
		return getHook(ctx, *hook.HTTPGet, o)
	case hook.Sleep != nil:
		timer := time.NewTimer(time.Duration(hook.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	}
	return errors.New("the handler is neither exec nor httpGet nor sleep")
}

func getHook(ctx context.Context, get corev1.HTTPGetAction, o KillOptions) error {
	port, err := hookPort(o.Ports, get.Port)
	if err != nil {
		return err
	}
	host, scheme := get.Host, strings.ToLower(string(get.Scheme))
	if host == "" {
		host = o.PodIP
	}
	if host == "" {
		return errors.New("the Pod has no IP")
	}
	if scheme == "" {
		scheme = "http"
	}
	url := fmt.Sprintf("%s://%s/%s", scheme, net.JoinHostPort(host, strconv.Itoa(port)), strings.TrimPrefix(get.Path, "/"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	for _, h := range get.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the container: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // nothing was written
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("asking the container: status %s", response.Status)
	}
	return nil
}

// hookPort finds a port by number or by name.
func hookPort(ports []corev1.ContainerPort, port intstr.IntOrString) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	for _, p := range ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("the container has no port named %q", port.StrVal)
}

// gracePeriod is that of the Pod's deletion, if it is being deleted, else that of its spec.
func gracePeriod(annotations map[string]string) time.Duration {
	for _, key := range []string{AnnotationDeletionGracePeriod, AnnotationGracePeriod} {
		if n, err := strconv.ParseInt(annotations[key], 10, 32); err == nil && n >= 0 {
			return time.Duration(n) * time.Second
		}
	}
	return defaultGrace
}

func preStop(annotations map[string]string) (*corev1.LifecycleHandler, error) {
	text := annotations[AnnotationPreStop]
	if text == "" {
		return nil, nil
	}
	hook := &corev1.LifecycleHandler{}
	if err := json.Unmarshal([]byte(text), hook); err != nil {
		return nil, fmt.Errorf("parsing annotation %s: %w", AnnotationPreStop, err)
	}
	return hook, nil
}

// ports are the container's as the kubelet wrote them down; none is no error.
func ports(annotations map[string]string) ([]corev1.ContainerPort, error) {
	text := annotations[AnnotationPorts]
	if text == "" {
		return nil, nil
	}
	var ports []corev1.ContainerPort
	if err := json.Unmarshal([]byte(text), &ports); err != nil {
		return nil, fmt.Errorf("parsing annotation %s: %w", AnnotationPorts, err)
	}
	return ports, nil
}
