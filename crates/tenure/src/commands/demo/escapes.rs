//! The attempts of tenant evil, as data: each with its control, the same action inside the tenant's rights. A denial means something only because its control succeeds.

use serde_json::{Value, json};

use super::watch::Kind;

/// An object that would exist if the attempt had succeeded.
pub(super) struct Harm {
    pub(super) kind: Kind,
    pub(super) namespace: Option<&'static str>,
    pub(super) name: &'static str,
}

/// One attempt, and its control.
pub(super) struct Escape {
    /// The attempt in words.
    pub(super) what: &'static str,
    /// The kind that mallory creates for it.
    pub(super) kind: Kind,
    /// Name of the attempt; its control is `<name>-control`.
    pub(super) name: &'static str,
    /// Spec of the attempt.
    pub(super) attempt: Value,
    /// Spec of the control.
    pub(super) control: Value,
    /// The object that must be missing afterwards, as an administrator sees it.
    pub(super) harm: Option<Harm>,
}

/// Returns a Kustomization of evil's over a folder of its repository.
fn make_folder(path: &str) -> Value {
    json!({
        "interval": "1h", "retryInterval": "2s", "prune": true, "path": path,
        "sourceRef": {"kind": "GitRepository", "name": "app-app"}, "serviceAccountName": "evil-gitops",
    })
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert(field.to_owned(), value);
    }
    spec
}

fn by_repository(what: &'static str, name: &'static str, harm: Option<Harm>) -> Escape {
    Escape {
        what,
        kind: Kind::Kustomization,
        name,
        attempt: make_folder(&format!("./escapes/{name}/attempt")),
        control: make_folder(&format!("./escapes/{name}/control")),
        harm,
    }
}

fn by_field(
    what: &'static str,
    name: &'static str,
    field: &str,
    attempt: Value,
    control: Value,
    harm: Option<Harm>,
) -> Escape {
    let base = || make_folder(&format!("./escapes/own/{name}"));
    Escape {
        what,
        kind: Kind::Kustomization,
        name,
        attempt: with(base(), field, attempt),
        control: with(base(), field, control),
        harm,
    }
}

/// Returns all attempts. `git_server` is the address of the demo's own Git server, which the administrator allows.
pub(super) fn list_escapes(git_server: &str) -> Vec<Escape> {
    let in_alpha = |name| {
        Some(Harm {
            kind: Kind::ConfigMap,
            namespace: Some("alpha"),
            name,
        })
    };
    vec![
        by_repository(
            "write into another tenant's namespace",
            "other-namespace",
            in_alpha("planted"),
        ),
        by_repository(
            "create a ClusterRole",
            "cluster-role",
            Some(Harm {
                kind: Kind::ClusterRole,
                namespace: None,
                name: "everything",
            }),
        ),
        by_repository(
            "bind itself to cluster-admin",
            "rbac-escalation",
            Some(Harm {
                kind: Kind::RoleBinding,
                namespace: Some("evil"),
                name: "promoted",
            }),
        ),
        by_repository("build on a remote base", "remote-base", None),
        by_repository("read a file of the machine through a symbolic link", "symlink", None),
        by_repository("climb out of the repository with ../ in a resource", "dot-dot", None),
        by_field(
            "climb out of the repository with ../ in the path",
            "path",
            "path",
            json!("../../platform/tenants"),
            json!("./escapes/dot-dot/../own/path"),
            None,
        ),
        by_field(
            "act as the platform's ServiceAccount",
            "foreign-service-account",
            "serviceAccountName",
            json!("system:serviceaccount:tenure-system:platform-gitops"),
            json!("evil-gitops"),
            None,
        ),
        by_field(
            "read another tenant's source",
            "cross-namespace-source",
            "sourceRef",
            json!({"kind": "GitRepository", "name": "shop-shop", "namespace": "alpha"}),
            json!({"kind": "GitRepository", "name": "app-app", "namespace": "evil"}),
            None,
        ),
        by_field(
            "aim everything at another tenant's namespace",
            "target-namespace",
            "targetNamespace",
            json!("alpha"),
            json!("evil"),
            in_alpha("target-namespace-settings"),
        ),
        by_field(
            "watch another tenant through dependsOn",
            "depends-on",
            "dependsOn",
            json!([{"name": "shop-shop-production", "namespace": "alpha"}]),
            json!([{"name": "app-app"}]),
            None,
        ),
        Escape {
            what: "reach the cloud's metadata address",
            kind: Kind::GitRepository,
            name: "metadata-address",
            attempt: json!({"interval": "1h", "url": "http://169.254.169.254/latest/meta-data.git", "ref": {"branch": "main"}}),
            control: json!({"interval": "1h", "url": format!("{git_server}/evil.git"), "ref": {"branch": "main"}}),
            harm: None,
        },
        Escape {
            what: "choose the identity of a surface",
            kind: Kind::Surface,
            name: "chosen-identity",
            attempt: make_surface(git_server, Some("platform-gitops")),
            control: make_surface(git_server, None),
            harm: Some(Harm {
                kind: Kind::Kustomization,
                namespace: Some("evil"),
                name: "chosen-identity-app",
            }),
        },
    ]
}

fn make_surface(git_server: &str, service_account: Option<&str>) -> Value {
    let spec = json!({"sources": [{"name": "app", "url": format!("{git_server}/evil.git"), "path": "escapes/own/chosen-identity", "interval": "1h"}]});
    match service_account {
        Some(name) => with(spec, "serviceAccountName", json!(name)),
        None => spec,
    }
}
