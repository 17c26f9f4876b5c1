// SPDX-License-Identifier: Apache-2.0

package out

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrorInfo is an error taken apart for printing; it is also the `kind: Error` document.
type ErrorInfo struct {
	Message string
	Cause   []string
	Next    []string
	Object  string
	Code    string
	Exit    int
}

// Explain takes err apart. program is the name that hints start with.
func Explain(err error, program string) ErrorInfo {
	info := ErrorInfo{Exit: ExitCode(err), Code: codeWord(err)}
	var f *Failure
	if errors.As(err, &f) {
		info.Message, info.Object = f.headline(), f.Object
		if f.Next != "" {
			info.Next = strings.Split(f.Next, "\n")
		}
		if f.Cause != nil {
			cause, next := explainCause(f.Cause, program)
			info.Cause = cause
			if len(info.Next) == 0 {
				info.Next = next
			}
		}
		return info
	}
	var u *usageError
	if errors.As(err, &u) {
		info.Message = u.Error()
		if u.next != "" {
			info.Next = strings.Split(u.next, "\n")
		}
		return info
	}
	cause, next := explainCause(err, program)
	info.Message, info.Cause, info.Next = cause[0], cause[1:], next
	return info
}

var callingWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)".*?https://([a-z0-9-]+)\.([a-z0-9-]+)\.svc`)
var deniedBy = regexp.MustCompile(`admission webhook "([^"]+)" denied the request: ?`)

// explainCause says in plain words why the API refused, one line each, and what to do.
func explainCause(err error, program string) (cause, next []string) {
	text := strings.TrimSpace(err.Error())
	if m := callingWebhook.FindStringSubmatch(text); m != nil {
		return []string{
			fmt.Sprintf("the admission webhook %s did not answer (Service %s/%s)", m[1], m[3], m[2]),
			text,
		}, []string{program + " status"}
	}
	if w, ok := errors.AsType[*WebhookDown](err); ok {
		return w.lines(), []string{program + " status"}
	}
	if lines := statusCauses(err); len(lines) > 0 {
		return lines, nil
	}
	switch {
	case apierrors.IsForbidden(err):
		return []string{text}, []string{program + " auth can-i --list   # with kubectl: what this user may do"}
	case apierrors.IsUnauthorized(err):
		return []string{"the API server does not know this user: " + text}, []string{"kubectl auth whoami"}
	case meta.IsNoMatchError(err):
		return []string{"the server does not have this kind: " + text}, []string{program + " version"}
	}
	var dial *url.Error
	if errors.As(err, &dial) && !apierrors.IsInternalError(err) {
		return []string{"the API server does not answer: " + dial.Err.Error(), dial.URL}, []string{"kubectl cluster-info"}
	}
	return strings.Split(text, "\n"), nil
}

// WebhookDown says which Service behind an admission webhook has no endpoints.
type WebhookDown struct {
	Webhook, Namespace, Service string
	// Endpoints is the number of ready endpoints; -1 when unknown.
	Endpoints int
	Err       error
}

func (w *WebhookDown) Error() string { return w.Err.Error() }

// Unwrap returns the API's answer.
func (w *WebhookDown) Unwrap() error { return w.Err }

func (w *WebhookDown) lines() []string {
	line := fmt.Sprintf("the admission webhook %s did not answer", w.Webhook)
	switch {
	case w.Endpoints >= 0:
		line += fmt.Sprintf("; Service %s/%s has %d ready endpoints", w.Namespace, w.Service, w.Endpoints)
	default:
		line += fmt.Sprintf("; it is behind Service %s/%s", w.Namespace, w.Service)
	}
	return []string{line, w.Err.Error()}
}

// CalledWebhook returns webhook, namespace and Service of a "failed calling webhook"
// answer.
func CalledWebhook(err error) (webhook, namespace, service string, ok bool) {
	if err == nil {
		return "", "", "", false
	}
	m := callingWebhook.FindStringSubmatch(err.Error())
	if m == nil {
		return "", "", "", false
	}
	return m[1], m[3], m[2], true
}

// statusCauses prints the field causes of an API denial one per line, the webhook first.
func statusCauses(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	st := status.Status()
	if st.Details == nil || len(st.Details.Causes) == 0 {
		return nil
	}
	var lines []string
	if m := deniedBy.FindStringSubmatch(st.Message); m != nil {
		lines = append(lines, "admission webhook "+m[1]+" denied the request")
	} else {
		lines = append(lines, "the API server refused the object")
	}
	seen := map[metav1.StatusCause]bool{}
	for _, c := range st.Details.Causes {
		if c.Message == "" || seen[c] {
			continue
		}
		seen[c] = true
		line := c.Message
		if c.Field != "" {
			line = c.Field + ": " + c.Message
		}
		lines = append(lines, line)
	}
	if len(lines) == 1 {
		return nil
	}
	return lines
}

// codeWord is the stable word of an error for scripts.
func codeWord(err error) string {
	switch {
	case IsUsage(err):
		return "Usage"
	case apierrors.IsNotFound(err):
		return "NotFound"
	case apierrors.IsForbidden(err):
		return "Forbidden"
	case apierrors.IsConflict(err):
		return "Conflict"
	case meta.IsNoMatchError(err):
		return "KindNotServed"
	case errors.Is(err, context.DeadlineExceeded):
		return "Timeout"
	}
	switch ExitCode(err) {
	case CodeFailed:
		return "Failed"
	case CodeTimeout:
		return "Timeout"
	case CodeConfirm:
		return "ConfirmationNeeded"
	case CodeInterrupted, CodeTerminated:
		return "Interrupted"
	}
	return "Error"
}

// Print writes err to w in the form of cli.md 1.9. A nil or silent error prints
// nothing.
func Print(w io.Writer, style Style, program string, err error) {
	if err == nil || isSilent(err) {
		return
	}
	info := Explain(err, program)
	fmt.Fprintf(w, "%s %s\n", style.Paint(Failed, "error:"), info.Message)
	for i, c := range info.Cause {
		if i == 0 {
			fmt.Fprintf(w, "  cause: %s\n", c)
			continue
		}
		fmt.Fprintf(w, "         %s\n", c)
	}
	for i, n := range info.Next {
		if i == 0 {
			fmt.Fprintf(w, "  next:  %s\n", n)
			continue
		}
		fmt.Fprintf(w, "         %s\n", n)
	}
}

// PrintDocument writes err to stdout as the one document that -o json and -o yaml
// promise.
func PrintDocument(w io.Writer, f Format, program string, err error) error {
	info := Explain(err, program)
	doc := Envelope("Error", "")
	doc["code"], doc["exitCode"], doc["message"] = info.Code, info.Exit, info.Message
	doc["cause"] = strings.Join(info.Cause, "\n")
	next := info.Next
	if next == nil {
		next = []string{}
	}
	doc["next"] = next
	doc["object"] = info.Object
	return f.Write(w, doc)
}

func isSilent(err error) bool {
	var s silent
	return errors.As(err, &s)
}
