package envtest

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var widgetKind = schema.GroupVersionKind{Group: "e2e.tenure.dev", Version: "v1", Kind: "Widget"}

func widget(namespace, name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgetKind)
	object.SetNamespace(namespace)
	object.SetName(name)
	if err := unstructured.SetNestedField(object.Object, size, "spec", "size"); err != nil {
		panic(err)
	}
	return object
}

func namespace(t *testing.T, c client.Client) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}
	must(t, c.Create(within(t), object))
	return object.Name
}

// operator makes a ConfigMap for every Widget, owned by it, and reports the size in the status.
type operator struct {
	client.Client
}

const finalizer = "e2e.tenure.dev/cleanup"

func (o *operator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgetKind)
	if err := o.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !object.GetDeletionTimestamp().IsZero() {
		if controllerutil.RemoveFinalizer(object, finalizer) {
			return ctrl.Result{}, o.Update(ctx, object)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(object, finalizer) {
		if err := o.Update(ctx, object); err != nil {
			return ctrl.Result{}, err
		}
	}
	size, _, err := unstructured.NestedInt64(object.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}
	_, err = controllerutil.CreateOrUpdate(ctx, o.Client, child, func() error {
		child.Data = map[string]string{"size": fmt.Sprint(size)}
		return controllerutil.SetControllerReference(object, child, o.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	base := object.DeepCopy()
	if err := unstructured.SetNestedField(object.Object, size, "status", "size"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, o.Status().Patch(ctx, object, client.MergeFrom(base))
}

func TestAnOperatorReconciles(t *testing.T) {
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		// The lease is taken and given back through the API.
		LeaderElection: true, LeaderElectionID: "suite.e2e.tenure.dev", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	watched := &unstructured.Unstructured{}
	watched.SetGroupVersionKind(widgetKind)
	must(t, ctrl.NewControllerManagedBy(manager).Named("widgets").For(watched).Owns(&corev1.ConfigMap{}).
		Complete(&operator{manager.GetClient()}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()

	c, err := client.New(config, client.Options{})
	must(t, err)
	home := namespace(t, c)
	object := widget(home, "one", 3)
	must(t, c.Create(within(t), object))
	key := client.ObjectKeyFromObject(object)
	child := &corev1.ConfigMap{}
	sized := func(want string) func() error {
		return func() error {
			if err := c.Get(within(t), key, child); err != nil {
				return err
			}
			if child.Data["size"] != want {
				return fmt.Errorf("the ConfigMap says %q, not %q", child.Data["size"], want)
			}
			return nil
		}
	}
	eventually(t, sized("3"))
	eventually(t, func() error {
		if err := c.Get(within(t), key, object); err != nil {
			return err
		}
		if size, _, _ := unstructured.NestedInt64(object.Object, "status", "size"); size != 3 {
			return fmt.Errorf("the status says %d", size)
		}
		return nil
	})
	if object.GetGeneration() != 1 {
		t.Fatalf("a status is no new generation: %d", object.GetGeneration())
	}
	must(t, c.Patch(within(t), object, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"size":5}}`))))
	eventually(t, sized("5"))
	// What the operator owns is made again.
	must(t, c.Delete(within(t), child))
	eventually(t, sized("5"))
	must(t, c.Delete(within(t), object))
	eventually(t, func() error {
		err := c.Get(within(t), key, object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %v", err)
	})
}

func TestWebhooksAreAsked(t *testing.T) {
	path := "/validate"
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	options := envtest.WebhookInstallOptions{
		ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "suite"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "even.e2e.tenure.dev", AdmissionReviewVersions: []string{"v1"},
				FailurePolicy: &fail, SideEffects: &none,
				ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
					Name: "suite", Namespace: "default", Path: &path,
				}},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{"e2e.tenure.dev"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"},
					},
				}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"suite": "webhooks"}},
			}},
		}},
	}
	must(t, options.Install(config))
	defer func() { must(t, options.Cleanup()) }()
	var asked atomic.Int64
	hook := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
	})
	hook.Register(path, &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			asked.Add(1)
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
			if size, _, _ := unstructured.NestedInt64(object.Object, "spec", "size"); size%2 != 0 {
				return admission.Denied("the size is odd")
			}
			return admission.Allowed("")
		})})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hook.Start(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	eventually(t, func() error { return hook.StartedChecker()(nil) })

	c, err := client.New(config, client.Options{})
	must(t, err)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-", Labels: map[string]string{"suite": "webhooks"}}}
	must(t, c.Create(within(t), object))
	must(t, c.Create(within(t), widget(object.Name, "even", 2)))
	err = c.Create(within(t), widget(object.Name, "odd", 3))
	want := `admission webhook "even.e2e.tenure.dev" denied the request: the size is odd`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Fatalf("got %v, not %s", err, want)
	}
	if asked.Load() != 2 {
		t.Fatalf("the webhook was asked %d times", asked.Load())
	}
}
