// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// maxBody bounds what is read of an answer.
const maxBody = 10 << 10

// maxRedirects is where a server is taken to send us round in circles.
const maxRedirects = 10

// network is Network as the kubelet does it: no proxy, no reuse of connections, any
// certificate, and no redirect to another host, which the probe is not about.
type network struct {
	dialer net.Dialer
	client *http.Client
}

func newNetwork() *network {
	n := &network{}
	n.client = &http.Client{
		Transport: &http.Transport{
			DialContext:        n.dial,
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a container answers under its Pod's IP, which no certificate names
			DisableKeepAlives:  true,
			DisableCompression: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case req.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= maxRedirects:
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
	return n
}

// dial connects. Closed connections linger for a second and no longer: with a probe each
// second they would use up the ports of the node.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := n.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(1) // only a matter of economy
	}
	return conn, nil
}

func failed(format string, args ...any) Result {
	return Result{State: v1alpha1.ProbeFailed, Message: fmt.Sprintf(format, args...)}
}

// TCP implements Network.
func (n *network) TCP(ctx context.Context, ip string, port int) Result {
	conn, err := n.dial(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return failed("%v", err)
	}
	_ = conn.Close() // it connected: that is the answer
	return Result{State: v1alpha1.ProbeSucceeded}
}

// HTTP implements Network.
func (n *network) HTTP(ctx context.Context, ip string, action *corev1.HTTPGetAction) Result {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target(ip, action), nil)
	if err != nil {
		return failed("%v", err)
	}
	setHeaders(req, action.HTTPHeaders)
	resp, err := n.client.Do(req)
	if err != nil {
		return failed("%v", err)
	}
	defer func() { _ = resp.Body.Close() }() // read as far as it matters
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return failed("%v", err)
	}
	message := string(body)
	switch {
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		if strings.TrimSpace(message) == "" {
			message = "HTTP status " + resp.Status
		}
		return failed("%s", message)
	case resp.StatusCode >= 300 && resp.Header.Get("Location") != "":
		message = "Probe terminated redirects, Response body: " + message
	}
	return Result{State: v1alpha1.ProbeSucceeded, Message: message}
}

// target is the URL to get. The path may have a query.
func target(ip string, action *corev1.HTTPGetAction) string {
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	u.Scheme = "http"
	if action.Scheme != "" {
		u.Scheme = strings.ToLower(string(action.Scheme))
	}
	u.User, u.Host = nil, net.JoinHostPort(ip, strconv.Itoa(action.Port.IntValue()))
	return u.String()
}

// setHeaders adds those of the probe. User-Agent and Accept have defaults; an empty value
// of either leaves it out.
func setHeaders(req *http.Request, headers []corev1.HTTPHeader) {
	for _, h := range headers {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "kube-probe")
	}
	if values, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if strings.Join(values, "") == "" {
		req.Header.Del("Accept")
	}
}
