// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// longNode is a name that is no value of a label.
var longNode = strings.Repeat("n", 70)

// theft is a cluster with the manifests of a profile, two of whose nodes run the agent, and the
// tokens of its Pods.
type theft struct {
	admin   client.Client
	cluster *Cluster
	config  *rest.Config
	// tokens are by node; of the node of none a token that is not bound to a Pod.
	tokens map[string]client.Client
}

func newTheft(t *testing.T) *theft {
	t.Helper()
	c, cfg := newCluster(t)
	mustRun(t, c, render(t, defaults(t, ProfileDefault)), nil, RunOptions{})
	(&removing{Cluster: c, r: &Removal{CRDs: []string{"containerrecreaterequests.apps.kruise.io", "nodeimages.apps.kruise.io"}}}).mustReset(t)
	failOpenLive(t, c)
	th := &theft{admin: c.Client, cluster: c, config: cfg, tokens: map[string]client.Client{}}
	for _, node := range []string{"node-a", "node-b", longNode} {
		th.node(t, node)
	}
	for _, ns := range []string{"default", "kube-system", DefaultNamespace, "kruise-daemon-config"} {
		th.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"}})
	}
	th.tokens["none"] = th.token(t, nil)
	return th
}

// node adds a node with everything that the agent there has to do with.
func (th *theft) node(t *testing.T, node string) {
	th.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	th.create(t, &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}})
	th.create(t, &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: node}})
	daemon := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "kruise-daemon-" + node[:6]},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "kruise-daemon", Containers: []corev1.Container{{Name: "daemon", Image: "x"}}}}
	th.create(t, daemon)
	th.tokens[node] = th.token(t, daemon)

	pod := podOn(node)
	pod.Annotations = map[string]string{"kept": "yes"}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "x"}}}
	th.create(t, pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, StartTime: new(metav1.Now()),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "x", ImageID: "y", ContainerID: "containerd://1", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}},
	}
	require.NoError(t, th.admin.Status().Update(t.Context(), pod))

	crr := fixture.ContainerRecreateRequest("crr-"+node[:6], pod, "app").Obj()
	crr.UID, crr.Generation, crr.CreationTimestamp = "", 0, metav1.Time{}
	th.create(t, crr)
	th.create(t, eventOf(node, eventAbout(pod)))
}

func (th *theft) create(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(th.admin.Create(t.Context(), obj)), "%T %s", obj, obj.GetName())
}

// token is a client with a token as the kubelet gets it for pod.
func (th *theft) token(t *testing.T, pod *corev1.Pod) client.Client {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "kruise-daemon"}}
	require.NoError(t, th.admin.SubResource("token").Create(t.Context(), account, request))
	cfg := rest.AnonymousClientConfig(th.config)
	cfg.BearerToken, cfg.QPS = request.Status.Token, -1
	c, err := client.New(cfg, client.Options{Scheme: apitest.Scheme()})
	require.NoError(t, err)
	return c
}

func podOn(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app-" + node[:6]}}
}

func requestOn(node string) *v1beta1.ContainerRecreateRequest {
	return &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crr-" + node[:6]}}
}

func eventAbout(obj client.Object) corev1.ObjectReference {
	kinds := map[string]string{"*v1.Pod": "Pod", "*v1beta1.NodeImage": "NodeImage", "*v1alpha1.NodePodProbe": "NodePodProbe",
		"*v1beta1.ImagePullJob": "ImagePullJob", "*v1beta1.ContainerRecreateRequest": "ContainerRecreateRequest", "*v1.Node": "Node"}
	return corev1.ObjectReference{Kind: kinds[fmt.Sprintf("%T", obj)], Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// eventOf is an event as the agent of a node sends it. Its name is that of the node.
func eventOf(node string, about corev1.ObjectReference) *corev1.Event {
	ns := about.Namespace
	if ns == "" {
		ns = "default"
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: "event-" + node[:6]},
		InvolvedObject: about, Reason: "Test", Message: "m", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "kruise-daemon-podprobe", Host: node},
	}
}

func freshEvent(node string, about corev1.ObjectReference, change func(*corev1.Event)) *corev1.Event {
	e := eventOf(node, about)
	e.Name = fmt.Sprintf("event-%d", time.Now().UnixNano())
	change(e)
	return e
}

func unchanged(*corev1.Event) {}

func merge(format string, args ...any) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, args...))
}

// attempt is what the holder of a token tries.
type attempt = func(ctx context.Context, c client.Client) error

func status(obj client.Object, patch client.Patch) attempt {
	return func(ctx context.Context, c client.Client) error { return c.Status().Patch(ctx, obj, patch) }
}

func patched(obj client.Object, patch client.Patch) attempt {
	return func(ctx context.Context, c client.Client) error { return c.Patch(ctx, obj, patch) }
}

func created(obj client.Object) attempt {
	return func(ctx context.Context, c client.Client) error { return c.Create(ctx, obj) }
}

func deleted(obj client.Object) attempt {
	return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, obj) }
}

func read(obj client.Object) attempt {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

func listed(list client.ObjectList, opts ...client.ListOption) attempt {
	return func(ctx context.Context, c client.Client) error { return c.List(ctx, list, opts...) }
}

// updated reads obj as an administrator and writes it back with a change.
func (th *theft) updated(obj client.Object, change func(), write func(ctx context.Context, c client.Client) error) attempt {
	return func(ctx context.Context, c client.Client) error {
		if err := th.admin.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change()
		return write(ctx, c)
	}
}

func secret(ns string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"}}
}

func nodeImage(node string) *v1beta1.NodeImage {
	return &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}
}

func nodePodProbe(node string) *v1alpha1.NodePodProbe {
	return &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: node}}
}

const metaKey = v1beta1.RuntimeContainersMetaAnnotation

// A token of the node agent of one node, stolen there, does what that agent has to do and
// nothing else: with the roles and the policy of the manifests, against a real API server.
func TestStolenDaemonToken(t *testing.T) {
	th := newTheft(t)
	const a, b = "node-a", "node-b"
	// Policies are compiled in the background: wait until one denies.
	require.Eventually(t, func() bool {
		return apierrors.IsForbidden(status(nodeImage(b), merge(`{"status":{"desired":1}}`))(t.Context(), th.tokens[a]))
	}, 2*time.Minute, 100*time.Millisecond)

	t.Run("what the agent does for its own node", func(t *testing.T) {
		for name, try := range th.duties(a) {
			t.Run(name, func(t *testing.T) { require.NoError(t, try(t.Context(), th.tokens[a])) })
		}
		require.NoError(t, status(requestOn(longNode), merge(`{"status":{"phase":"Recreating"}}`))(t.Context(), th.tokens[longNode]),
			"a node whose name is no label")
	})
	t.Run("the same for another node", func(t *testing.T) {
		for name, try := range th.writes(b) {
			t.Run(name, func(t *testing.T) {
				err := try(t.Context(), th.tokens[a])
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, "kruise-daemon on node node-a may not write ")
				require.ErrorContains(t, err, "of node node-b")
			})
		}
	})
	t.Run("the same with a token that is bound to no Pod", func(t *testing.T) {
		for name, try := range th.writes(a) {
			t.Run(name, func(t *testing.T) {
				require.ErrorContains(t, try(t.Context(), th.tokens["none"]), "the token of kruise-daemon names no node")
			})
		}
	})
	t.Run("anything else", func(t *testing.T) {
		for name, c := range th.crimes(a, b) {
			t.Run(name, func(t *testing.T) {
				err := c.try(t.Context(), th.tokens[a])
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, c.want)
			})
		}
	})
	t.Run("a request stays that of its node", func(t *testing.T) {
		crr := requestOn(a)
		try := th.updated(crr, func() {
			crr.Labels[v1beta1.RecreateNodeNameLabel] = b
			crr.Spec.PodName = "another"
			crr.Status.Phase = v1beta1.RecreateRecreating
		}, func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, crr) })
		require.NoError(t, try(t.Context(), th.tokens[a]))
		require.NoError(t, th.admin.Get(t.Context(), client.ObjectKeyFromObject(crr), crr))
		require.Equal(t, a, crr.Labels[v1beta1.RecreateNodeNameLabel])
		require.Equal(t, podOn(a).Name, crr.Spec.PodName)
	})
	t.Run("other users are not concerned", func(t *testing.T) {
		for name, try := range th.writes(b) {
			require.NoError(t, try(t.Context(), th.admin), name)
		}
	})
	t.Run("the role allows exactly this", th.exactly)
}

// writes are the agent's on a node, but for new events.
func (th *theft) writes(node string) map[string]attempt {
	crr := requestOn(node)
	old := &v1alpha1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: crr.Namespace, Name: crr.Name}}
	return map[string]attempt{
		"the status of its NodeImage":      status(nodeImage(node), merge(`{"status":{"desired":%d}}`, time.Now().Unix()%1000)),
		"the status of its NodePodProbe":   status(nodePodProbe(node), merge(`{"status":{"podProbeStatuses":[]}}`)),
		"the status of a request":          status(crr, merge(`{"status":{"phase":"Recreating"}}`)),
		"the same in v1alpha1":             status(old, merge(`{"status":{"phase":"Recreating","message":"x"}}`)),
		"what runs in a Pod":               status(podOn(node), merge(`{"metadata":{"annotations":{"%s":"%d"}}}`, metaKey, time.Now().UnixNano())),
		"what runs in a Pod, as a kubelet": status(podOn(node), client.RawPatch("application/strategic-merge-patch+json", []byte(`{"metadata":{"annotations":{"`+metaKey+`":"{}"}}}`))),
		"an event once more": func(ctx context.Context, c client.Client) error {
			e := eventOf(node, eventAbout(podOn(node)))
			return c.Patch(ctx, e, merge(`{"count":7}`))
		},
	}
}

// duties are everything that the agent does.
func (th *theft) duties(node string) map[string]attempt {
	all := map[string]attempt{
		"reading its NodeImage":     read(nodeImage(node)),
		"watching its NodeImage":    listed(&v1beta1.NodeImageList{}, client.MatchingFields{"metadata.name": node}),
		"watching its probes":       listed(&v1alpha1.NodePodProbeList{}, client.MatchingFields{"metadata.name": node}),
		"watching its requests":     listed(&v1beta1.ContainerRecreateRequestList{}, client.MatchingLabels{v1beta1.RecreateNodeNameLabel: node}),
		"watching its Pods":         listed(&corev1.PodList{}, client.MatchingFields{"spec.nodeName": node}),
		"reading a pull secret":     read(secret("kruise-daemon-config")),
		"taking a report back":      status(podOn(node), merge(`{"metadata":{"annotations":{"%s":null}}}`, metaKey)),
		"an event of its NodeImage": created(freshEvent(node, eventAbout(nodeImage(node)), unchanged)),
		"an event of its probes":    created(freshEvent(node, eventAbout(nodePodProbe(node)), unchanged)),
		"an event of a Pod":         created(freshEvent(node, eventAbout(podOn(node)), unchanged)),
		"an event of a request":     created(freshEvent(node, eventAbout(requestOn(node)), unchanged)),
		"an event of a job":         created(freshEvent(node, corev1.ObjectReference{Kind: "ImagePullJob", Namespace: "default", Name: "job"}, unchanged)),
	}
	image := nodeImage(node)
	all["the whole status of its NodeImage"] = th.updated(image, func() { image.Status.Succeeded++ },
		func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, image) })
	probes := nodePodProbe(node)
	all["the whole status of its NodePodProbe"] = th.updated(probes, func() {
		probes.Status.PodProbeStatuses = []v1alpha1.PodProbeStatus{{Name: "p", Namespace: "default", UID: "1"}}
	}, func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, probes) })
	crr := requestOn(node)
	all["the whole status of a request"] = th.updated(crr, func() { crr.Status.Phase = v1beta1.RecreateCompleted },
		func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, crr) })
	maps.Copy(all, th.writes(node))
	return all
}

type crime struct {
	try  attempt
	want string // part of the error
}

// crimes are what a thief on node a may be after; b is another node.
func (th *theft) crimes(a, b string) map[string]crime {
	const (
		rbac  = "cannot "
		pods  = "kruise-daemon may not change anything of a Pod but its annotation"
		event = "kruise-daemon may send events only as itself"
	)
	pod := podOn(a)
	whole := podOn(a)
	sub := func(name string, body client.Object) attempt {
		return func(ctx context.Context, c client.Client) error { return c.SubResource(name).Create(ctx, pod, body) }
	}
	return map[string]crime{
		"a Secret of users":                 {read(secret("default")), rbac},
		"a Secret of the system":            {read(secret("kube-system")), rbac},
		"a Secret of the manager":           {read(secret(DefaultNamespace)), rbac},
		"all Secrets":                       {listed(&corev1.SecretList{}), rbac},
		"all pull secrets":                  {listed(&corev1.SecretList{}, client.InNamespace("kruise-daemon-config")), rbac},
		"a pull secret for writing":         {patched(secret("kruise-daemon-config"), merge(`{"data":{"a":"Yg=="}}`)), rbac},
		"another task for its node":         {patched(nodeImage(a), merge(`{"spec":{"images":{"x":{"tags":[{"tag":"1"}]}}}}`)), rbac},
		"another probe for its node":        {patched(nodePodProbe(a), merge(`{"spec":{"podProbes":[]}}`)), rbac},
		"a NodeImage":                       {created(nodeImage("node-c")), rbac},
		"a NodePodProbe":                    {created(nodePodProbe("node-c")), rbac},
		"its NodeImage, gone":               {deleted(nodeImage(a)), rbac},
		"its NodePodProbe, gone":            {deleted(nodePodProbe(a)), rbac},
		"a request of its own":              {created(fixture.ContainerRecreateRequest("mine", pod, "app").With(func(c *v1beta1.ContainerRecreateRequest) { c.UID = "" }).Obj()), rbac},
		"the label of a request":            {patched(requestOn(a), merge(`{"metadata":{"labels":{"%s":"%s"}}}`, v1beta1.RecreateNodeNameLabel, b)), rbac},
		"a request, gone":                   {deleted(requestOn(a)), rbac},
		"a Pod":                             {created(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "evil"}, Spec: pod.Spec}), rbac},
		"a Pod, gone":                       {deleted(podOn(a)), rbac},
		"the image of a Pod":                {patched(podOn(a), merge(`{"metadata":{"labels":{"a":"b"}}}`)), rbac},
		"an eviction":                       {sub("eviction", &policyv1.Eviction{ObjectMeta: pod.ObjectMeta}), rbac},
		"a token of another account":        {tokenOf("kruise-manager"), rbac},
		"another token of its own":          {tokenOf("kruise-daemon"), rbac},
		"a Node":                            {patched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a}}, merge(`{"metadata":{"labels":{"a":"b"}}}`)), rbac},
		"a look at Nodes":                   {listed(&corev1.NodeList{}), rbac},
		"the status of a Pod, as a whole":   {th.updated(whole, func() { whole.Status.Phase = corev1.PodFailed }, func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, whole) }), rbac},
		"the phase of a Pod":                {status(podOn(a), merge(`{"status":{"phase":"Failed"}}`)), pods},
		"a condition of a Pod":              {status(podOn(a), client.RawPatch("application/strategic-merge-patch+json", []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`))), pods},
		"the address of a Pod":              {status(podOn(a), merge(`{"status":{"podIP":"10.9.9.9","podIPs":[{"ip":"10.9.9.9"}]}}`)), pods},
		"a container of a Pod":              {status(podOn(a), merge(`{"status":{"containerStatuses":[]}}`)), pods},
		"a label of a Pod":                  {status(podOn(a), merge(`{"metadata":{"labels":{"app":"stolen"}}}`)), pods},
		"a finalizer of a Pod":              {status(podOn(a), merge(`{"metadata":{"finalizers":["example.com/stay"]}}`)), pods},
		"another annotation of a Pod":       {status(podOn(a), merge(`{"metadata":{"annotations":{"%s":"{}","other":"x"}}}`, metaKey)), pods},
		"an annotation of a Pod, changed":   {status(podOn(a), merge(`{"metadata":{"annotations":{"kept":"no"}}}`)), pods},
		"an annotation of a Pod, gone":      {status(podOn(a), merge(`{"metadata":{"annotations":{"kept":null}}}`)), pods},
		"an event as another program":       {created(freshEvent(a, eventAbout(podOn(a)), func(e *corev1.Event) { e.Source.Component = "kubelet" })), event},
		"an event from another node":        {created(freshEvent(b, eventAbout(podOn(b)), unchanged)), "of node node-b"},
		"an event from no node":             {created(freshEvent(a, eventAbout(podOn(a)), func(e *corev1.Event) { e.Source.Host = "" })), "which is on no node"},
		"an event of another NodeImage":     {created(freshEvent(a, eventAbout(nodeImage(b)), unchanged)), event},
		"an event of a Node":                {created(freshEvent(a, eventAbout(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a}}), unchanged)), event},
		"an event that changes its node":    {patched(eventOf(a, eventAbout(podOn(a))), merge(`{"source":{"host":"%s"}}`, b)), event},
		"an event of another kind of event": {created(&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, EventTime: metav1.NowMicro(), ReportingController: "x", ReportingInstance: "y", Action: "z", Reason: "r", Type: "Normal"}), rbac},
	}
}

func tokenOf(account string) attempt {
	return func(ctx context.Context, c client.Client) error {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: account}}
		return c.SubResource("token").Create(ctx, sa, &authenticationv1.TokenRequest{})
	}
}

// exactly asks for every verb on every resource of the API server.
func (th *theft) exactly(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(th.config)
	require.NoError(t, err)
	_, lists, err := client.ServerGroupsAndResources()
	require.NoError(t, err)
	var allowed []string
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range list.APIResources {
			for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} {
				for _, ns := range []string{"", "default", "kruise-daemon-config"} {
					if ns != "" && !r.Namespaced {
						continue
					}
					if line := strings.TrimSpace(verb + " " + group + "/" + r.Name + " " + ns); !slices.Contains(allowed, line) && th.may(t, group, r.Name, verb, ns) {
						allowed = append(allowed, line)
					}
				}
			}
		}
	}
	// What is allowed everywhere needs no line for each namespace.
	allowed = slices.DeleteFunc(allowed, func(line string) bool {
		words := strings.Fields(line)
		return len(words) == 3 && slices.Contains(allowed, words[0]+" "+words[1])
	})
	want := []string{ // what every account may do
		"create authentication.k8s.io/selfsubjectreviews",
		"create authorization.k8s.io/selfsubjectaccessreviews", "create authorization.k8s.io/selfsubjectrulesreviews",
		"get certificates.k8s.io/clustertrustbundles", "list certificates.k8s.io/clustertrustbundles", "watch certificates.k8s.io/clustertrustbundles",
		"create /events", "patch /events", "patch /pods/status", "get /secrets kruise-daemon-config",
	}
	for _, r := range []string{"/pods", "apps.kruise.io/containerrecreaterequests", "apps.kruise.io/nodeimages", "apps.kruise.io/nodepodprobes"} {
		want = append(want, "get "+r, "list "+r, "watch "+r)
		if r != "/pods" {
			want = append(want, "patch "+r+"/status", "update "+r+"/status")
		}
	}
	require.ElementsMatch(t, want, allowed)
}

func (th *theft) may(t *testing.T, group, resource, verb, ns string) bool {
	name, sub, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + DefaultNamespace + ":kruise-daemon",
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + DefaultNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: name, Subresource: sub, Verb: verb, Namespace: ns},
	}}
	require.NoError(t, th.admin.Create(t.Context(), review))
	return review.Status.Allowed
}
