//! Attacks with the content of a tenant's repository.

use serde_json::json;

use super::{Attack, Scene, attack};
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, config_map};
use crate::tenants::{SURFACE, TENANT};

/// The files of an attempt in a folder, and the files of its control.
pub(super) struct Contents {
    pub(super) name: &'static str,
    pub(super) attempt: Vec<(&'static str, String)>,
    pub(super) expected: &'static str,
    pub(super) control: Vec<(&'static str, String)>,
}

fn object(api_version: &str, kind: &str, name: &str, namespace: &str, rest: &str) -> String {
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("  namespace: {namespace}\n")
    };
    format!("apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: {name}\n{namespace}{rest}")
}

/// Returns one file as the attempt, with a ConfigMap as control.
pub(super) fn one(name: &'static str, file: String, expected: &'static str) -> Contents {
    Contents {
        name,
        attempt: vec![("a.yaml", file)],
        expected,
        control: vec![("a.yaml", config_map(name, "1"))],
    }
}

/// Returns a kustomization file as the attempt, beside a ConfigMap. The control has only the ConfigMap.
fn file(name: &'static str, kustomization: &str, expected: &'static str) -> Contents {
    Contents {
        name,
        attempt: vec![
            ("kustomization.yaml", format!("resources: [a.yaml]\n{kustomization}")),
            ("a.yaml", config_map(name, "1")),
        ],
        expected,
        control: vec![
            ("kustomization.yaml", "resources: [a.yaml]\n".to_owned()),
            ("a.yaml", config_map(name, "1")),
        ],
    }
}

fn role(name: &str, rule: &str) -> String {
    object(
        "rbac.authorization.k8s.io/v1",
        "Role",
        name,
        "",
        &format!("rules:\n  - {rule}\n"),
    )
}

fn binding(name: &str, kind: &str, role: &str, subject: &str) -> String {
    let rest = format!(
        "roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {role}}}\nsubjects:\n  - {subject}\n"
    );
    object("rbac.authorization.k8s.io/v1", "RoleBinding", name, "", &rest)
}

fn pairs() -> Vec<Contents> {
    let child = "spec: {interval: 1m, prune: true, path: ./, sourceRef: {kind: GitRepository, name: files}}\n";
    let own = "{kind: ServiceAccount, name: EVIL-gitops, namespace: EVIL}";
    let other = "{kind: ServiceAccount, name: ALPHA-gitops, namespace: ALPHA}";
    let narrow = "{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}";
    let escalation = |name: &'static str, rule: &str| Contents {
        name,
        attempt: vec![("a.yaml", role(name, rule))],
        expected: "is attempting to grant RBAC permissions not currently held",
        control: vec![("a.yaml", role(&format!("{name}-narrow"), narrow))],
    };
    let foreign = "does not belong to tenant EVIL";
    let cluster_wide = "cluster-scoped";
    vec![
        one(
            "child-kustomization",
            object(KUSTOMIZATION.0, KUSTOMIZATION.1, "child", "", child),
            "kustomizations",
        ),
        one(
            "child-source",
            object(
                GIT_REPOSITORY.0,
                GIT_REPOSITORY.1,
                "child",
                "",
                "spec: {interval: 1m, url: \"http://example.com/x\"}\n",
            ),
            "gitrepositories",
        ),
        one(
            "child-surface",
            object(
                SURFACE.0,
                SURFACE.1,
                "child",
                "",
                "spec: {sources: [{name: a, url: \"http://example.com/x\"}]}\n",
            ),
            "surfaces",
        ),
        one(
            "tenant",
            object(
                TENANT.0,
                TENANT.1,
                "child",
                "",
                "spec: {owners: [{kind: User, name: EVIL-owner}]}\n",
            ),
            cluster_wide,
        ),
        one(
            "namespace",
            // The namespace of the target becomes its name.
            object("v1", "Namespace", "EVIL-more", "", ""),
            "(Forbidden)",
        ),
        one(
            "own-namespace",
            object(
                "v1",
                "Namespace",
                "EVIL",
                "",
                "  labels: {capsule.clastix.io/tenant: ALPHA}\n",
            ),
            "(Forbidden)",
        ),
        one(
            "webhook",
            object(
                "admissionregistration.k8s.io/v1",
                "MutatingWebhookConfiguration",
                "evil",
                "",
                "webhooks: []\n",
            ),
            cluster_wide,
        ),
        one(
            "quota",
            object("v1", "ResourceQuota", "none", "", "spec: {hard: {pods: \"999\"}}\n"),
            "resourcequotas",
        ),
        one(
            "name-dots",
            object("v1", "ConfigMap", "../../tenure-system/configmaps/x", "", ""),
            "name",
        ),
        one("name-newline", object("v1", "ConfigMap", "\"a\\nb\"", "", ""), "name"),
        one(
            "name-query",
            object("v1", "ConfigMap", "\"a?dryRun=All\"", "", ""),
            "name",
        ),
        escalation(
            "grant-token",
            "{apiGroups: [\"\"], resources: [serviceaccounts/token], verbs: [create]}",
        ),
        escalation(
            "grant-impersonate",
            "{apiGroups: [\"\"], resources: [serviceaccounts, users, groups], verbs: [impersonate]}",
        ),
        escalation(
            "grant-flux",
            "{apiGroups: [kustomize.toolkit.fluxcd.io], resources: [kustomizations], verbs: [create]}",
        ),
        escalation(
            "grant-status",
            "{apiGroups: [kustomize.toolkit.fluxcd.io], resources: [kustomizations/status], verbs: [patch]}",
        ),
        escalation(
            "grant-exec",
            "{apiGroups: [\"\"], resources: [pods/exec], verbs: [create]}",
        ),
        escalation("grant-all", "{apiGroups: [\"*\"], resources: [\"*\"], verbs: [\"*\"]}"),
        Contents {
            name: "bind-edit",
            attempt: vec![("a.yaml", binding("bind-edit", "ClusterRole", "edit", own))],
            expected: "is attempting to grant RBAC permissions not currently held",
            // A tenant may grant its own rights to any account, also to another tenant's ServiceAccount.
            control: vec![
                ("a.yaml", role("bind-edit", narrow)),
                ("b.yaml", binding("bind-edit-control", "Role", "bind-edit", other)),
            ],
        },
    ]
    .into_iter()
    .chain(foreign_objects(foreign, child))
    .chain(kustomization_files())
    .collect()
}

/// No target namespace is set for these, so that the namespaces in the files count.
fn foreign_objects(foreign: &'static str, child: &str) -> Vec<Contents> {
    let owned = |contents: Contents| Contents {
        control: vec![(
            "a.yaml",
            config_map(contents.name, "1").replace("metadata:\n", "metadata:\n  namespace: EVIL\n"),
        )],
        ..contents
    };
    vec![
        owned(one(
            "foreign-child",
            object(KUSTOMIZATION.0, KUSTOMIZATION.1, "child", "ALPHA", child),
            foreign,
        )),
        owned(one(
            "foreign-platform",
            object(KUSTOMIZATION.0, KUSTOMIZATION.1, "child", "tenure-system", child),
            foreign,
        )),
        owned(one(
            "foreign-list",
            format!(
                "apiVersion: v1\nkind: List\nitems:\n  - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: planted, namespace: ALPHA}}}}\n  - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {}, namespace: EVIL}}}}\n",
                "planted"
            ),
            foreign,
        )),
        owned(one(
            "foreign-slash",
            object("v1", "ConfigMap", "planted", "EVIL/../ALPHA", ""),
            "namespace",
        )),
        owned(one(
            "foreign-role",
            object(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                "planted",
                "ALPHA",
                "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: EVIL-owner}]\n",
            ),
            foreign,
        )),
        owned(Contents {
            attempt: vec![
                (
                    "kustomization.yaml",
                    "namespace: ALPHA\nresources: [a.yaml]\n".to_owned(),
                ),
                ("a.yaml", config_map("planted", "1")),
            ],
            ..one("foreign-transformer", String::new(), foreign)
        }),
    ]
}

fn kustomization_files() -> Vec<Contents> {
    let exec = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: run\n  annotations:\n    config.kubernetes.io/function: |\n      exec:\n        path: /bin/sh\n";
    let mut executed = file("generator-exec", "generators: [run.yaml]\n", "never run during a build");
    executed.attempt.push(("run.yaml", exec.to_owned()));
    vec![
        executed,
        file(
            "helm",
            "helmCharts: [{name: x, repo: \"https://example.com\"}]\n",
            "helm",
        ),
        file(
            "remote-patch",
            "patches: [{path: \"https://example.com/p.yaml\"}]\n",
            "https://example.com/p.yaml",
        ),
        file(
            "remote-schema",
            "openapi: {path: \"https://example.com/s.json\"}\n",
            "openapi.path",
        ),
        file(
            "remote-crd",
            "crds: [\"https://example.com/c.json\"]\n",
            "https://example.com/c.json",
        ),
        file(
            "remote-component",
            "components: [\"git::ssh://git@example.com/x\"]\n",
            "example.com",
        ),
        file("file-base", "components: [\"file:///etc\"]\n", "file:///etc"),
        file(
            "generator-passwd",
            "configMapGenerator: [{name: x, files: [/etc/passwd]}]\n",
            "/etc/passwd",
        ),
        file(
            "generator-up",
            "configMapGenerator: [{name: x, files: [../../../../../../etc/passwd]}]\n",
            "etc/passwd",
        ),
        file(
            "generator-neighbour",
            "configMapGenerator: [{name: x, files: [../../../own.txt]}]\n",
            "own.txt",
        ),
        file(
            "environment",
            "configMapGenerator: [{name: x, envs: [/proc/self/environ]}]\n",
            "/proc/self/environ",
        ),
        file(
            "replacement",
            "replacements: [{path: \"https://example.com/r.yaml\"}]\n",
            "https://example.com/r.yaml",
        ),
    ]
}

pub(super) fn files_of(pairs: &[Contents]) -> Vec<(String, String)> {
    let mut files = vec![("own.txt".to_owned(), "a neighbour".to_owned())];
    for contents in pairs {
        for (folder, side) in [("attempt", &contents.attempt), ("control", &contents.control)] {
            for (path, text) in side {
                files.push((format!("{}/{folder}/{path}", contents.name), text.clone()));
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_content_reaches_nothing_outside_its_tenant() {
    let scene = Scene::set("attacks-c").await;
    let pairs = pairs();
    scene.serve(&files_of(&pairs)).await;
    let attacks: Vec<Attack> = pairs
        .iter()
        .map(|contents| {
            let at = |side: &str| {
                let path = format!("./{}/{side}", contents.name);
                // The namespaces in the files count only without a target namespace.
                let target = (!contents.name.starts_with("foreign-")).then_some("EVIL");
                json!({ "path": path, "targetNamespace": target })
            };
            attack(contents.name, at("attempt"), contents.expected, at("control"))
        })
        .collect();
    scene
        .check(&attacks, |_, name, spec| scene.kustomization(name, spec))
        .await;
    scene
        .absent(&[
            (KUSTOMIZATION, "EVIL", "child"),
            (KUSTOMIZATION, "ALPHA", "child"),
            (KUSTOMIZATION, "tenure-system", "child"),
            (GIT_REPOSITORY, "EVIL", "child"),
            (SURFACE, "EVIL", "child"),
            (TENANT, "", "child"),
            (("v1", "Namespace"), "", "EVIL-more"),
            (CONFIG_MAP, "ALPHA", "planted"),
            (CONFIG_MAP, "tenure-system", "x"),
            (("rbac.authorization.k8s.io/v1", "RoleBinding"), "ALPHA", "planted"),
            (("rbac.authorization.k8s.io/v1", "RoleBinding"), "EVIL", "bind-edit"),
            (("rbac.authorization.k8s.io/v1", "Role"), "EVIL", "grant-all"),
        ])
        .await;
    scene.shut_down().await;
}
