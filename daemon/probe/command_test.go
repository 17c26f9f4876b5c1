// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

func TestCommand(t *testing.T) {
	const runc = `failed to exec in container: failed to start exec "ae49": OCI runtime exec failed: exec failed: unable to start container process: exec: "failed": executable file not found in $PATH`
	cases := map[string]struct {
		err  error
		want Result
		none bool
	}{
		"it ends well":                      {want: Result{State: v1alpha1.ProbeSucceeded, Message: "out"}},
		"it fails":                          {err: fmt.Errorf("running: %w", &cri.ExitError{Code: 1, Stderr: "broken"}), want: Result{State: v1alpha1.ProbeFailed, Message: "broken"}},
		"it takes too long":                 {err: fmt.Errorf("running: %w", cri.ErrTimedOut), want: Result{State: v1alpha1.ProbeFailed, Message: cri.ErrTimedOut.Error() + " after 2s"}},
		"there is no such program":          {err: errors.New(runc), want: Result{State: v1alpha1.ProbeFailed, Message: `exec: "failed": executable file not found in $PATH`}},
		"there is no such program, crun":    {err: errors.New("executable file `failed` not found in $PATH: No such file or directory"), want: Result{State: v1alpha1.ProbeFailed, Message: "executable file `failed` not found in $PATH: No such file or directory"}},
		"it may not be run":                 {err: errors.New(`unable to start container process: exec: "/etc/passwd": permission denied`), want: Result{State: v1alpha1.ProbeFailed, Message: `exec: "/etc/passwd": permission denied`}},
		"the container has just ended":      {err: errors.New("cannot exec in a stopped container"), none: true},
		"the runtime is away":               {err: fmt.Errorf("dial unix: no such file or directory: %w", cri.ErrUnavailable), none: true},
		"the runtime cannot start anything": {err: errors.New("unable to start container process: error adding pid 1 to cgroups"), none: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := command([]byte("out"), tc.err, 2*time.Second)
			require.Equal(t, tc.none, err != nil, "%v", err)
			require.Equal(t, tc.want, got)
		})
	}
}
