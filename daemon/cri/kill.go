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

const (
	defaultGrace = 30 * time.Second
	// minimumGrace is what remains for the process itself, however long its hook took.
	minimumGrace = 2 * time.Second
)

// Kill stops a container the way the kubelet does: the preStop hook, then the stop signal,
// all within the grace period that the kubelet wrote on the container. podIP is that of the
// Pod, for hooks over HTTP. hookErr is that of a preStop hook; the container is stopped all
// the same. Rules: container-recreate.md 6.3.
func Kill(ctx context.Context, rt Runtime, c Status, podIP string) (hookErr, err error) {
	grace := gracePeriod(c.Annotations)
	hook, hookErr := preStop(c.Annotations)
	if hook != nil && grace > 0 {
		started := time.Now()
		hookErr = runHook(ctx, rt, c, *hook, podIP, grace)
		grace -= time.Since(started).Truncate(time.Second)
	}
	return hookErr, rt.Stop(ctx, c.ID, max(grace, minimumGrace))
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

func runHook(ctx context.Context, rt Runtime, c Status, hook corev1.LifecycleHandler, podIP string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case hook.Exec != nil:
		_, err := rt.Exec(ctx, c.ID, hook.Exec.Command, timeout)
		return err
	case hook.HTTPGet != nil:
		return getHook(ctx, c, *hook.HTTPGet, podIP)
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

func getHook(ctx context.Context, c Status, get corev1.HTTPGetAction, podIP string) error {
	port, err := hookPort(c, get.Port)
	if err != nil {
		return err
	}
	host, scheme := get.Host, strings.ToLower(string(get.Scheme))
	if host == "" {
		host = podIP
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

// hookPort finds a port by number or by name among those that the kubelet wrote down.
func hookPort(c Status, port intstr.IntOrString) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	var ports []corev1.ContainerPort
	if err := json.Unmarshal([]byte(c.Annotations[AnnotationPorts]), &ports); err != nil {
		return 0, fmt.Errorf("parsing annotation %s: %w", AnnotationPorts, err)
	}
	for _, p := range ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("the container has no port named %q", port.StrVal)
}
