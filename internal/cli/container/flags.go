// SPDX-License-Identifier: Apache-2.0

package container

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/restart"
)

// requestFlags are the flags that become fields of a request.
type requestFlags struct {
	containers    []string
	failurePolicy string
	ordered       bool
	kill          bool
	grace         int64
	unready       int64
	minStarted    int32
	deadline      int64
	ttl           int32
}

// AddTo registers the flags. Seconds may be given under the long names of OpenKruise's
// plugin as well.
func (o *requestFlags) AddTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVarP(&o.containers, "containers", "c", nil, "containers in the order to kill them (repeat or commas); all app containers without")
	fs.StringVar(&o.failurePolicy, "failure-policy", string(v1beta1.RecreateFailurePolicyFail), "Fail ends with the first failure, Ignore goes on")
	fs.BoolVar(&o.ordered, "ordered", false, "kill the next container when the one before is back")
	fs.BoolVar(&o.kill, "recreate-force", false, "kill also what has restarted by itself meanwhile")
	fs.Int64Var(&o.grace, "termination-grace", -1, "seconds for preStop and stop; the pod's without")
	fs.Int64VarP(&o.unready, "unready-grace", "u", 3, "seconds that the pod is not ready before the first kill; -1 leaves it ready")
	fs.Int32VarP(&o.minStarted, "min-started", "m", 3, "seconds that a container must run to count as back")
	fs.Int64Var(&o.deadline, "deadline", 300, "seconds until the request gives up; 0 is never")
	fs.Int32Var(&o.ttl, "ttl", 1800, "seconds until the finished request is removed; -1 keeps it")
	out.Group(fs, "Change", "containers", "failure-policy", "ordered", "recreate-force", "termination-grace", "unready-grace", "min-started", "deadline", "ttl")
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "unreadyGracePeriodSeconds":
			name = "unready-grace"
		case "minStartedSeconds":
			name = "min-started"
		}
		return pflag.NormalizedName(name)
	})
	_ = cmd.RegisterFlagCompletionFunc("failure-policy", cobra.FixedCompletions([]string{"Fail", "Ignore"}, cobra.ShellCompDirectiveNoFileComp))
}

// Options reads the flags. Every error is the user's.
func (o *requestFlags) options() (restart.Options, error) {
	r := restart.Options{FailurePolicy: v1beta1.RecreateFailurePolicy(o.failurePolicy), Ordered: o.ordered, Kill: o.kill, MinStarted: o.minStarted}
	switch {
	case r.FailurePolicy != v1beta1.RecreateFailurePolicyFail && r.FailurePolicy != v1beta1.RecreateFailurePolicyIgnore:
		return r, out.Usagef("--failure-policy is %q: use Fail or Ignore", o.failurePolicy)
	case o.minStarted < 0:
		return r, out.Usagef("--min-started %d is negative", o.minStarted)
	case o.deadline != 0 && o.deadline < 3:
		return r, out.Usagef("--deadline %d: use 3 seconds or more, or 0 for none", o.deadline)
	}
	if o.grace >= 0 {
		r.Grace = &o.grace
	}
	if o.unready >= 0 {
		r.UnreadyGrace = &o.unready
	}
	if o.deadline > 0 {
		r.Deadline = &o.deadline
	}
	if o.ttl >= 0 {
		r.TTL = &o.ttl
	}
	return r, nil
}

// defaultFlags are those of a command that has none of them.
func defaultFlags() requestFlags {
	return requestFlags{failurePolicy: string(v1beta1.RecreateFailurePolicyFail), grace: -1, unready: 3, minStarted: 3, deadline: 300, ttl: 1800}
}
