// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Hub marks CloneSet as the version that all others convert through.
func (*CloneSet) Hub() {}

// Hub marks ImagePullJob as the version that all others convert through.
func (*ImagePullJob) Hub() {}

// Hub marks NodeImage as the version that all others convert through.
func (*NodeImage) Hub() {}
