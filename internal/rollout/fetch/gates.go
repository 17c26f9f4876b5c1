// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// GatesOf picks from set what a rollout depends on.
func GatesOf(set *features.Set) diagnose.Gates {
	return diagnose.Gates{
		Plan: cloneset.Gates{
			PartitionRollback:       set.Enabled(features.CloneSetPartitionRollback),
			PreparingUpdateAsUpdate: set.Enabled(features.PreparingUpdateAsUpdate),
			ShortHash:               set.Enabled(features.CloneSetShortHash),
		},
		StatefulSet: statefulset.Gates{
			AutoDeletePVC:           set.Enabled(features.StatefulSetAutoDeletePVC),
			AutoResizePVC:           set.Enabled(features.StatefulSetAutoResizePVCGate),
			StartOrdinal:            set.Enabled(features.StatefulSetStartOrdinal),
			PodIndexLabel:           set.Enabled(features.PodIndexLabel),
			PreparingUpdateAsUpdate: set.Enabled(features.PreparingUpdateAsUpdate),
		},
		DaemonSet: daemonset.Gates{PruneIneligibleNodes: set.Enabled(features.DaemonSetPruneIneligibleNodes)},
		InPlace: inplace.Options{
			VerticalScaling:                     set.Enabled(features.InPlaceWorkloadVerticalScaling),
			EnvFromMetadata:                     set.Enabled(features.InPlaceUpdateEnvFromMetadata),
			RecreateOnVolumeClaimTemplateChange: set.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
		},
	}
}
