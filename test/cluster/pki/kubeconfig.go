// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/base64"
	"fmt"
	"os"
)

// Kubeconfig is a self-contained kubeconfig (no references to files) for one user of the API server at url.
func Kubeconfig(cluster, url string, ca []byte, user Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
current-context: %[1]s
`, cluster, url, b64(ca), b64(user.Cert), b64(user.Key))
}

// WriteKubeconfig stores a kubeconfig so that only the owner may read it.
func WriteKubeconfig(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
