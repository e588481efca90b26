//! Who may do what in which tenant: the only allow or deny code besides Kubernetes RBAC.
