package envtest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A typed client sends protobuf, and asks for it.
func TestTypedClients(t *testing.T) {
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	ctx := within(t)
	home, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "typed-"},
	}, metav1.CreateOptions{})
	must(t, err)
	maps := clients.CoreV1().ConfigMaps(home.Name)
	created, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, BinaryData: map[string][]byte{"bytes": {0, 1, 255}},
	}, metav1.CreateOptions{})
	must(t, err)
	stale := created.DeepCopy()
	created.Data = map[string]string{"key": "value"}
	_, err = maps.Update(ctx, created, metav1.UpdateOptions{})
	must(t, err)
	if _, err = maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("an old version is a conflict, not %v", err)
	}
	applied, err := maps.Apply(ctx, applycore.ConfigMap("one", home.Name).WithData(map[string]string{"key": "other"}),
		metav1.ApplyOptions{FieldManager: "suite", Force: true})
	must(t, err)
	if applied.Data["key"] != "other" || applied.BinaryData["bytes"][2] != 255 {
		t.Fatalf("applied: %v", applied)
	}
	pod, err := clients.CoreV1().Pods(home.Name).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "one", Image: "registry.example/image"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, clients.CoreV1().Pods(home.Name).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: home.Name, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"},
	}, metav1.CreateOptions{}))
	must(t, clients.PolicyV1().Evictions(home.Name).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: home.Name, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
	}))
}

// An informer goes on after the API server was away: nothing is missed, nothing is seen twice.
func TestInformersOutliveARestart(t *testing.T) {
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	home, err := clients.CoreV1().Namespaces().Create(within(t), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "informed-"},
	}, metav1.CreateOptions{})
	must(t, err)
	maps := clients.CoreV1().ConfigMaps(home.Name)
	create := func(name string) {
		_, err := maps.Create(within(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	create("before")
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(home.Name))
	informer := factory.Core().V1().ConfigMaps().Informer()
	added := make(chan string, 100)
	deleted := make(chan string, 100)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { added <- nameOf(object) },
		DeleteFunc: func(object any) { deleted <- nameOf(object) },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(within(t).Done(), informer.HasSynced) {
		t.Fatal("the informer does not get its first list")
	}
	next := func(events chan string, want string) {
		t.Helper()
		select {
		case name := <-events:
			if name != want {
				t.Fatalf("%q came, not %q", name, want)
			}
		case <-within(t).Done():
			t.Fatalf("%q does not come", want)
		}
	}
	next(added, "before")
	create("during")
	next(added, "during")

	server := environment.ControlPlane.GetAPIServer()
	server.StopTimeout = 2 * time.Second
	if err := server.Stop(); err != nil {
		// A kube-apiserver waits a minute for its watches, and is killed before.
		t.Log(err)
	}
	must(t, server.Start())
	eventually(t, func() error {
		_, err := maps.Get(within(t), "before", metav1.GetOptions{})
		return err
	})
	create("after")
	must(t, maps.Delete(within(t), "before", metav1.DeleteOptions{}))
	next(added, "after")
	next(deleted, "before")
	if len(added) != 0 {
		t.Fatalf("%q came twice", <-added)
	}
}

// nameOf names an object, and also one whose deletion was only found out by a new list.
func nameOf(object any) string {
	key, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return err.Error()
	}
	return key.Name
}
