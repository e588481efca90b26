//! The Kubernetes side: identities and their clients, apply, inventory, watches and health.
