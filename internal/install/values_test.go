// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuesFile(t *testing.T) {
	cases := map[string]struct {
		file  string
		check func(t *testing.T, v Values)
	}{
		"nothing": {"", func(t *testing.T, v Values) { require.Equal(t, defaults(t, ProfileDefault), v) }},
		"sections keep what they do not name": {"manager:\n  image:\n    tag: v7\n", func(t *testing.T, v Values) {
			require.Equal(t, "v7", v.Manager.Image.Tag)
			require.Equal(t, DefaultRepository, v.Manager.Image.Repository)
			require.EqualValues(t, 2, v.Manager.Replicas)
		}},
		"numbers for texts, texts for numbers": {"manager:\n  log: {level: 3}\n  replicas: \"4\"\n", func(t *testing.T, v Values) {
			require.Equal(t, "3", v.Manager.Log.Level)
			require.EqualValues(t, 4, v.Manager.Replicas)
		}},
		"an empty section is no change": {"manager:\n", func(t *testing.T, v Values) { require.Equal(t, defaults(t, ProfileDefault), v) }},
		"Kubernetes types":              {"manager:\n  resources: {limits: {cpu: 1}}\n", func(t *testing.T, v Values) { require.Equal(t, "1", v.Manager.Resources.Limits.Cpu().String()) }},
		"its own output":                {string(defaults(t, ProfileE2E).YAML()), func(t *testing.T, v Values) { require.Equal(t, plain(defaults(t, ProfileE2E)), plain(v)) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tree, err := ParseFile([]byte(tc.file))
			require.NoError(t, err)
			v := defaults(t, ProfileDefault)
			_, err = v.Merge(tree)
			require.NoError(t, err)
			tc.check(t, v)
		})
	}
}

func TestValuesThatAreWrong(t *testing.T) {
	cases := map[string]struct{ file, want string }{
		"unknown key":           {"manager: {replica: 3}", "value manager.replica: no such key, did you mean manager.replicas?"},
		"unknown section":       {"manger: {replicas: 3}", "value manger: no such key"},
		"key in another place":  {"replicas: 3", "value replicas: no such key"},
		"a section as a value":  {"manager: 3", "value manager: is a section, set one of its keys:"},
		"not a number":          {"manager: {replicas: many}", "value manager.replicas: many is not a whole number"},
		"not a boolean":         {"manager: {hostNetwork: maybe}", "value manager.hostNetwork: maybe is not true or false"},
		"unknown field in type": {"manager: {tolerations: [{operater: Exists}]}", `value manager.tolerations: unknown field "operater"`},
		"no replicas":           {"manager: {replicas: 0}", "value manager.replicas: 0 managers cannot serve webhooks, use 1 or more"},
		"unknown gate":          {"featureGates: Nope=true", `value featureGates: unknown feature gate "Nope"`},
		"misspelled gate":       {"featureGates: KruiseDeamon=true", `value featureGates: unknown feature gate "KruiseDeamon", did you mean KruiseDaemon?`},
		"gate without value":    {"featureGates: KruiseDaemon", "value featureGates: feature gate KruiseDaemon needs a value"},
		"same port twice":       {"manager: {metrics: {port: 9876}}", "value manager.metrics.port: 9876 is the port of manager.webhook.port too"},
		"not a port":            {"daemon: {port: 70000}", "value daemon.port: 70000 is not a port"},
		"tag in repository":     {"manager: {image: {repository: \"a/b:c\"}}", "value manager.image.repository: \"a/b:c\" holds a tag"},
		"no tag":                {"manager: {image: {tag: \"\"}}", "value manager.image.tag: \"\" is not a tag"},
		"bad digest":            {"manager: {image: {digest: abc}}", "value manager.image.digest: \"abc\" is not a digest"},
		"bad namespace":         {"installation: {namespace: A_b}", "value installation.namespace: \"A_b\" is not a name of a namespace"},
		"timeout too long":      {"webhookConfiguration: {timeoutSeconds: 31}", "value webhookConfiguration.timeoutSeconds: 31 is not between 1 and 30"},
		"failure policy":        {"webhookConfiguration: {failurePolicy: {pods: Never}}", `value webhookConfiguration.failurePolicy.pods: "Never" is not one of Fail, Ignore`},
		"certs without gate":    {"externalCerts: {mode: manual}", "value externalCerts.mode: manual needs the feature gate EnableExternalCerts=true"},
		"relative socket":       {"daemon: {socketLocation: run}", "value daemon.socketLocation: \"run\" is not an absolute path"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tree, err := ParseFile([]byte(tc.file))
			require.NoError(t, err)
			v := defaults(t, ProfileDefault)
			if _, err = v.Merge(tree); err == nil {
				_, err = Render(v)
			} else {
				require.Equal(t, defaults(t, ProfileDefault), v, "a failed merge changes nothing")
			}
			require.ErrorContains(t, err, tc.want)
			var ve *ValueError
			require.True(t, errors.As(err, &ve))
		})
	}
}

func TestParseFileThatIsNoMap(t *testing.T) {
	for name, file := range map[string]string{"a list": "- a", "broken": "a: [", "a key twice": "a: 1\na: 2"} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFile([]byte(file))
			require.ErrorContains(t, err, "parsing values")
		})
	}
}

func TestValuesWithoutEffectAreAccepted(t *testing.T) {
	tree, err := ParseFile([]byte("helmHooks: {image: {tag: v1}}\ninstallation: {roleListGroups: ['*']}"))
	require.NoError(t, err)
	v := defaults(t, ProfileDefault)
	warnings, err := v.Merge(tree)
	require.NoError(t, err)
	require.Equal(t, []string{
		"value helmHooks.image.tag has no effect: removal needs no hook image, see kruisectl uninstall",
		"value installation.roleListGroups has no effect: the manager needs no permission to list other groups",
	}, warnings)
}

func TestParseSet(t *testing.T) {
	v := defaults(t, ProfileDefault, `featureGates=A=true\,B=false`, "manager.replicas=3,manager.image.tag=x", "webhookConfiguration.excludeNamespaces={a,b}")
	require.Equal(t, "A=true,B=false", v.FeatureGates)
	require.EqualValues(t, 3, v.Manager.Replicas)
	require.Equal(t, "x", v.Manager.Image.Tag)
	require.Equal(t, []string{"a", "b"}, v.Webhooks.ExcludeNamespaces)
	_, err := ParseSet("manager.replicas")
	require.EqualError(t, err, `value "manager.replicas": is not key=value`)
}

func TestProfilesAndPlatforms(t *testing.T) {
	_, err := Defaults("hi", "generic")
	require.EqualError(t, err, `unknown profile "hi", did you mean ha? Known are default, ha, single, e2e, minimal`)
	_, err = Defaults(ProfileDefault, "minikube")
	require.EqualError(t, err, `unknown platform "minikube": use one of generic, k3s, rke2, eks, aks, gke`)
}

func TestKeysAreThoseOfTheChart(t *testing.T) {
	keys := Keys()
	for _, k := range []string{
		"featureGates", "installation.namespace", "installation.createNamespace", "crds.managed", "manager.replicas",
		"manager.image.repository", "manager.image.tag", "manager.log.level", "manager.loggingFormat", "manager.webhook.port",
		"manager.metrics.port", "manager.healthProbe.port", "manager.pprofAddr", "manager.resyncPeriod", "manager.resources",
		"manager.hostNetwork", "manager.nodeAffinity", "manager.nodeSelector", "manager.tolerations",
		"webhookConfiguration.failurePolicy.pods", "webhookConfiguration.timeoutSeconds", "webhookConfiguration.aksIntegration",
		"daemon.log.level", "daemon.port", "daemon.enablePprof", "daemon.pprofAddr", "daemon.socketLocation", "daemon.socketFile",
		"daemon.nodeSelector", "daemon.affinity", "daemon.resources", "daemon.extraEnvs", "daemon.credentialProvider.enable",
		"daemon.credentialProvider.configmap", "daemon.credentialProvider.hostPath", "daemon.credentialProvider.awsCredentialsDir",
		"imagePullSecrets", "enableKubeCacheMutationDetector", "externalCerts.annotations", "serviceAccount.annotations",
	} {
		require.Contains(t, keys, k)
	}
}
