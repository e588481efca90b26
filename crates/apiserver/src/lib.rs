//! The embedded Kubernetes control plane: requests, authentication, authorization, the kinds it serves.
