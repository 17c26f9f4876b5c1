// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
)

func dbSet(image string) fixture.StatefulSetBuilder {
	return fixture.StatefulSet("db").Namespace("shop").Replicas(6).Image(image).Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).
		MaxUnavailable("1").With(func(s *v1beta1.StatefulSet) { s.Generation = 4 })
}

// newDB is StatefulSet db of namespace shop: six Pods, images repo/db:1 and repo/db:2; the
// highest ordinals are updated, as the controller does it.
func newDB(updated int, change ...func(*v1beta1.StatefulSet)) []client.Object {
	set := dbSet("repo/db:2").Obj()
	for _, c := range change {
		c(set)
	}
	var revisions []*appsv1.ControllerRevision
	for i, image := range []string{"repo/db:1", "repo/db:2"} {
		r := fixture.StatefulSetRevision(dbSet(image), int64(i+1))
		r.Namespace = "shop"
		r.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(i-2) * time.Hour))
		revisions = append(revisions, r)
	}
	n := int32(updated)
	set.Status = v1beta1.StatefulSetStatus{
		ObservedGeneration: 4, Replicas: 6, ReadyReplicas: 6, AvailableReplicas: 6, CurrentReplicas: 6 - n,
		UpdatedReplicas: n, UpdatedReadyReplicas: n, UpdatedAvailableReplicas: n,
		CurrentRevision: revisions[0].Name, UpdateRevision: revisions[1].Name,
	}
	if updated == 6 {
		set.Status.CurrentRevision = revisions[1].Name
	}
	objects := []client.Object{set, revisions[0], revisions[1]}
	for i := range 6 {
		b, rev := dbSet("repo/db:1"), revisions[0]
		if i >= 6-updated {
			b, rev = dbSet("repo/db:2"), revisions[1]
		}
		p := fixture.PodOfStatefulSet(b, i).At(rev).Node(fmt.Sprintf("node-%d", i%3)).Created(t0.Add(-48 * time.Hour)).
			Ready(t0.Add(-time.Duration(90+i) * time.Minute)).Obj()
		p.Namespace, p.UID = "shop", types.UID("uid-"+p.Name)
		objects = append(objects, p)
	}
	return objects
}

func agentSet(image string) fixture.DaemonSetBuilder {
	return fixture.DaemonSet("agent").Namespace("shop").Image(image).InPlace().MaxUnavailable("40%").
		With(func(d *v1beta1.DaemonSet) { d.Generation = 2 })
}

// newAgent is DaemonSet agent of namespace shop on five nodes; the last names are updated.
func newAgent(updated int, change ...func(*v1beta1.DaemonSet)) []client.Object {
	set := agentSet("repo/agent:2").Obj()
	for _, c := range change {
		c(set)
	}
	var revisions []*appsv1.ControllerRevision
	for i, image := range []string{"repo/agent:1", "repo/agent:2"} {
		r := fixture.DaemonSetRevision(agentSet(image), int64(i+1))
		r.Namespace = "shop"
		r.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(i-2) * time.Hour))
		revisions = append(revisions, r)
	}
	set.Status = v1beta1.DaemonSetStatus{
		ObservedGeneration: 2, DesiredNumberScheduled: 5, CurrentNumberScheduled: 5, NumberReady: 5, NumberAvailable: 5,
		UpdatedNumberScheduled: int32(updated), UpdateRevision: revision.ShortHash(revisions[1].Name),
	}
	objects := []client.Object{set, revisions[0], revisions[1]}
	for i := range 5 {
		b, rev := agentSet("repo/agent:1"), revisions[0]
		if i >= 5-updated {
			b, rev = agentSet("repo/agent:2"), revisions[1]
		}
		node := fmt.Sprintf("node-%d", i)
		n := fixture.Node(node).Label("zone", string(rune('a'+i%2))).Obj()
		p := fixture.PodOfDaemonSet(b, node).At(rev).Created(t0.Add(-48 * time.Hour)).Ready(t0.Add(-time.Duration(30+i) * time.Minute)).Obj()
		p.Namespace, p.UID = "shop", types.UID("uid-"+p.Name)
		objects = append(objects, n, p)
	}
	return objects
}

func dbPartition(s *v1beta1.StatefulSet) {
	s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
}

func dbPaused(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Paused = true }

func agentPartition(v string) func(*v1beta1.DaemonSet) {
	return func(d *v1beta1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.Parse(v)) }
}

func onZone(zone string) func(*v1beta1.DaemonSet) {
	return func(d *v1beta1.DaemonSet) {
		d.Spec.UpdateStrategy.RollingUpdate.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	}
}

// elsewhere moves objects to namespace other.
func elsewhere(objects []client.Object) []client.Object {
	for _, o := range objects {
		o.SetNamespace("other")
	}
	return objects
}

// broken lets the first Pod of objects be not ready.
func broken(objects []client.Object) []client.Object {
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			for i := range p.Status.Conditions {
				if p.Status.Conditions[i].Type == corev1.PodReady {
					p.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			}
			break
		}
	}
	return objects
}

// Every case is one command line on one of the two kinds; its whole output is a golden file.
func TestCommandsOnBothKinds(t *testing.T) {
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"asts-status-complete":       {newDB(6), "rollout status asts/db"},
		"asts-status-partition":      {newDB(4, dbPartition), "rollout status asts/db"},
		"asts-status-partition-full": {newDB(4, dbPartition), "rollout status asts/db --full"},
		"asts-status-partition-json": {newDB(4, dbPartition), "rollout status asts/db -o json"},
		"asts-status-paused":         {newDB(2, dbPaused), "rollout status advancedstatefulset/db"},
		"asts-status-by-sts":         {newDB(6), "rollout status sts/db"},
		"asts-status-everywhere":     {append(newDB(6), elsewhere(newDB(4))...), "rollout status asts -A --check"},
		"asts-status-all":            {newDB(6), "rollout status asts --all --check"},
		"asts-history":               {newDB(4), "rollout history asts/db -o wide"},
		"asts-undo":                  {newDB(6), "rollout undo asts/db"},
		"asts-undo-canary":           {newDB(4, dbPartition), "rollout undo asts/db"},
		"asts-pause":                 {newDB(4), "rollout pause asts/db"},
		"asts-resume":                {newDB(4, dbPaused), "rollout resume asts/db"},
		"asts-partition-percent":     {newDB(4), "rollout partition asts/db 50%"},
		"asts-partition-updated":     {newDB(4), "rollout partition asts/db --updated 2"},
		"asts-set-image":             {newDB(6), "set image asts/db app=repo/db:3"},
		"asts-why":                   {newDB(4, dbPartition), "why asts/db"},
		"asts-scale":                 {newDB(6), "scale asts/db --replicas 5"},
		"asts-scaledown":             {newDB(6), "scaledown asts/db --pods db-1"},
		"asts-scaledown-reserve":     {newDB(6), "scaledown asts/db --pods db-1,db-4 --reserve --yes"},
		"ads-status-complete":        {newAgent(5), "rollout status ads/agent"},
		"ads-status-partition":       {newAgent(3, agentPartition("50%")), "rollout status ads/agent"},
		"ads-status-json":            {newAgent(3, agentPartition("50%")), "rollout status ads/agent --full -o json"},
		"ads-history":                {newAgent(3), "rollout history ads/agent -o wide"},
		"ads-undo":                   {newAgent(5), "rollout undo ads/agent"},
		"ads-undo-canary":            {newAgent(3, agentPartition("50%")), "rollout undo ads/agent"},
		"ads-pause":                  {newAgent(3), "rollout pause ads/agent"},
		"ads-partition":              {newAgent(3), "rollout partition ads/agent 50%"},
		"ads-set-env":                {newAgent(5), "set env ads/agent MODE=fast"},
		"ads-why":                    {newAgent(3, agentPartition("50%")), "why ads/agent"},
		"ads-scale":                  {newAgent(5), "scale ads/agent --replicas=1"},
		"ads-scaledown":              {newAgent(5), "scaledown ads/agent --pods agent-x"},
		"asts-restart-first-wave":    {newDB(6), "rollout restart asts/db --wait=false"},
		"asts-restart-paused":        {newDB(6, dbPaused), "rollout restart asts/db"},
		"asts-restart-broken":        {broken(newDB(6)), "rollout restart asts/db"},
		"asts-restart-template":      {newDB(6), "rollout restart asts/db --method=template"},
		"ads-restart":                {newAgent(5), "rollout restart ads/agent"},
		"ads-restart-pods":           {newAgent(5), "rollout restart ads/agent --method pods"},
		"ads-restart-containers":     {newAgent(5), "rollout restart ads/agent --method containers --wait --dry-run=client"},
		"asts-preview-image":         {newDB(6), "rollout preview asts/db --image app=repo/db:3"},
		"asts-preview-batches": {newDB(6, func(s *v1beta1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(2))
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}), "rollout preview asts/db --image app=repo/db:3 --all-batches"},
		"asts-preview-partition": {newDB(4, dbPartition), "rollout preview asts/db --all-batches"},
		"asts-preview-env":       {newDB(6), "rollout preview asts/db --env A=1 -o json"},
		"ads-preview-image":      {newAgent(5, agentPartition("1")), "rollout preview ads/agent --image app=repo/agent:3"},
		"ads-preview-batches":    {newAgent(5, agentPartition("1")), "rollout preview ads/agent --image app=repo/agent:3 --all-batches"},
		"ads-preview-selector":   {newAgent(1, onZone("a")), "rollout preview ads/agent --all-batches"},
		"ads-status-selector":    {newAgent(3, onZone("a")), "rollout status ads/agent"},
		"ads-canary-typo":        {newAgent(5), "rollout status adz/agent"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+random.ReplaceAllString(w.run(strings.Fields(tc.args)...).String(), "-RANDOM"))
		})
	}
}

// The same objects, saved in a file: no server is asked.
func TestPreviewOffline(t *testing.T) {
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"cloneset": {newShop(10).objects(), "rollout preview clone/web --image app=repo/web:4 --all-batches"},
		"asts":     {newDB(6), "rollout preview asts/db --image app=repo/db:3 --all-batches"},
		"sts":      {newDB(6), "rollout preview sts/db --env A=1 --all-batches"},
		"ads":      {newAgent(5), "rollout preview ads/agent --image app=repo/agent:3 --all-batches -o wide"},
		"no-nodes": {slices.DeleteFunc(newAgent(5), func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok }), "rollout preview ads/agent --image app=repo/agent:3"},
		"absent":   {newAgent(5), "rollout preview asts/agent --image app=repo/agent:3"},
		"gates":    {newDB(6), "rollout preview asts/db --feature-gates NoSuchGate=true"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.client = nil // whoever asks a server fails
			args := append(strings.Fields(tc.args), "--present", saved(t, tc.objects))
			golden(t, "commands/preview-offline-"+name, "$ kruisectl "+tc.args+" --present now.yaml\n"+w.run(args...).String())
		})
	}
	t.Run("a manifest gives what flags give", func(t *testing.T) {
		next := dbSet("repo/db:3").Obj()
		next.UID, next.Generation, next.Status = "", 0, v1beta1.StatefulSetStatus{}
		w := newWorld(t)
		w.client = nil
		now := saved(t, newDB(6))
		byFile := w.run("rollout", "preview", "-f", saved(t, []client.Object{next}), "--present", now, "-o", "json")
		byFlag := w.run("rollout", "preview", "asts/db", "--image", "app=repo/db:3", "--present", now, "-o", "json")
		if byFile.code != 0 || byFile.out != byFlag.out {
			t.Errorf("by manifest:\n%s\nby flag:\n%s", byFile, byFlag)
		}
	})
}

// saved writes objects as kubectl get -o yaml prints them.
func saved(t *testing.T, objects []client.Object) string {
	t.Helper()
	s, err := factory.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, o := range objects {
		gvk, err := apiutil.GVKForObject(o, s)
		if err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(text))
	}
	file := filepath.Join(t.TempDir(), "now.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(docs, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestScaleAndSetOfCloneSet(t *testing.T) {
	claimed := newShop(3)
	claimed.pods[0].Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-a"}}}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "auto", Namespace: "shop"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web"}},
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop"}, Data: map[string]string{"log.level": "info", "mode": "x"}}
	withEnv := newShop(10, func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "0"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Key: "mode"}}}}
	})
	labelled := newShop(10)
	labelled.set.Labels = map[string]string{"app": "web"}
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"scale":                     {newShop(10).objects(), "scale clone/web --replicas=5"},
		"scale-same":                {newShop(10).objects(), "scale clone/web --replicas=10"},
		"scale-precondition":        {newShop(10).objects(), "scale clone/web --replicas=5 --current-replicas=9"},
		"scale-no-number":           {newShop(10).objects(), "scale clone/web"},
		"scale-dry-run":             {newShop(10).objects(), "scale clone/web --replicas=5 --dry-run=client"},
		"scale-autoscaled":          {append(newShop(10).objects(), hpa), "scale clone/web --replicas=5 -o name"},
		"scaledown":                 {claimed.objects(), "scaledown web --pods web-a,,web-b --pods web-a -y"},
		"scaledown-keep":            {newShop(10).objects(), "scaledown clone/web --node node-1 --keep-replicas -y"},
		"scaledown-unknown":         {newShop(10).objects(), "scaledown web --pods ghost,web-a,phantom -y"},
		"scaledown-unasked":         {newShop(10).objects(), "scaledown web --pods web-a"},
		"scaledown-dry-run":         {newShop(10).objects(), "scaledown web --pods web-a --dry-run=client -o jsonpath={.spec.scaleStrategy.podsToDelete}{.spec.replicas}"},
		"scaledown-complete":        {newShop(10).objects(), "__complete scaledown web --pods web-a,web-b,"},
		"scaledown-none":            {newShop(10).objects(), "scaledown web"},
		"set-env":                   {newShop(10).objects(), "set env clone/web A=1"},
		"set-env-same":              {withEnv.objects(), "set env clone/web A=0"},
		"set-env-remove":            {withEnv.objects(), "set env clone/web A- B-"},
		"set-env-conflict":          {withEnv.objects(), "set env clone/web A=1 --overwrite=false"},
		"set-env-barrier":           {withEnv.objects(), "set env clone/web KRUISE_CONTAINER_BARRIER=1"},
		"set-env-list":              {withEnv.objects(), "set env clone/web --list"},
		"set-env-list-resolve":      {append(withEnv.objects(), config), "set env clone/web --list --resolve"},
		"set-env-from":              {append(newShop(10).objects(), config), "set env clone/web --from configmap/c --prefix X_ --dry-run=client -o jsonpath={.spec.template.spec.containers[0].env}"},
		"set-env-from-unknown":      {newShop(10).objects(), "set env clone/web --from configmap/c"},
		"set-env-from-key":          {append(newShop(10).objects(), config), "set env clone/web --from configmap/c --keys none"},
		"set-env-word":              {newShop(10).objects(), "set env clone/web 1A=2"},
		"set-env-container":         {newShop(10).objects(), "set env clone/web -c nginx A=1"},
		"set-resources":             {newShop(10).objects(), "set resources clone/web -c app --limits cpu=1 --requests cpu=500m"},
		"set-resources-none":        {newShop(10).objects(), "set resources clone/web"},
		"set-resources-bad":         {newShop(10).objects(), "set resources clone/web --limits cpu=lots"},
		"set-image-all":             {newShop(10).objects(), "set image clone --all app=repo/web:4"},
		"set-image-all-dry":         {labelled.objects(), "set image clone -l app=web app=repo/web:4 --dry-run=client"},
		"set-image-selector-none":   {newShop(10).objects(), "set image clone -l app=other app=repo/web:4"},
		"set-image-selector-object": {newShop(10).objects(), "set image clone/web -l app=web app=repo/web:4"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			r := w.run(strings.Fields(tc.args)...)
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+r.String())
			dry := strings.Contains(tc.args, "dry-run")
			if (dry || r.code != 0) && len(r.writes) > 0 {
				t.Errorf("%s wrote %v", tc.args, r.writes)
			}
		})
	}
}
