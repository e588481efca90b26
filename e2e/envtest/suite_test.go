package envtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment is the control plane of the suite, and config an administrator of it.
var (
	environment *envtest.Environment
	config      *rest.Config
)

// soon is how long anything may take. It is long, since it only matters when something is broken.
const soon = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS names no folder: see docs/howto/operator-suites.md")
		os.Exit(1)
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.UseDevMode(true)))
	environment = &envtest.Environment{
		CRDs:                     []*apiextensionsv1.CustomResourceDefinition{widgets()},
		ControlPlaneStopTimeout:  soon,
		ControlPlaneStartTimeout: soon,
		AttachControlPlaneOutput: true,
	}
	// The certificates are to outlive a restart of the API server.
	certificates, err := os.MkdirTemp("", "suite-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	environment.ControlPlane.GetAPIServer().CertDir = certificates
	config, err = environment.Start()
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "the control plane does not start:", err)
	} else {
		code = m.Run()
	}
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the control plane does not stop:", err)
		code = 1
	}
	if err := os.RemoveAll(certificates); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// context for one test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

// eventually asks until there is no error.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	begun := time.Now()
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Since(begun) > soon {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// widgets is the kind that the operator of this suite looks after.
func widgets() *apiextensionsv1.CustomResourceDefinition {
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int64"}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	schema := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"size": number}),
		"status": object(map[string]apiextensionsv1.JSONSchemaProps{"size": number}),
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.e2e.tenure.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "e2e.tenure.dev",
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList",
			},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
