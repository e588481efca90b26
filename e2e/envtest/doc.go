// Package envtest holds an operator's test suite, written as its authors would: controller-runtime, its envtest, its
// cache and its webhooks, client-go's informers and typed clients. What it runs on is up to KUBEBUILDER_ASSETS.
package envtest
