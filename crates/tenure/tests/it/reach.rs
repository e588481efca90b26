//! `tenure reach` from outside: on files, with added manifests, and its exit codes.

use std::path::Path;

use crate::process::tenure;

/// A namespace with an owner, and an account that is cluster-admin in a namespace that does not exist.
const CLUSTER: &str = r#"apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: deployer}}
- {apiVersion: v1, kind: Node, metadata: {name: worker}}
- apiVersion: v1
  kind: Secret
  metadata: {namespace: shop, name: deployer-token, annotations: {kubernetes.io/service-account.name: deployer}}
  type: kubernetes.io/service-account-token
  data: {token: aGlkZGVu}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {namespace: shop, name: reader}
  rules: [{verbs: [get, list], apiGroups: [""], resources: [secrets]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {namespace: shop, name: reader}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: cluster-admin}
  rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}]
"#;

/// Manifests that a repository would add.
const ADDED: &str = r#"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: shop, name: deployer}]
"#;

fn check(folder: &Path, arguments: &[&str], code: i32, expected: &[&str], unexpected: &[&str]) {
    let mut all = vec!["reach", "--from", "cluster.yaml"];
    all.extend(arguments);
    let output = tenure(&all).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let noted = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}\n{noted}");
    for word in expected {
        assert!(
            text.contains(word) || noted.contains(word),
            "{arguments:?}: no {word:?} in {text}\n{noted}"
        );
    }
    for word in unexpected {
        assert!(
            !text.contains(word) && !noted.contains(word),
            "{arguments:?}: {word:?} in {text}\n{noted}"
        );
    }
}

#[test]
fn reach_answers_from_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cluster.yaml"), CLUSTER).unwrap();
    std::fs::create_dir(folder.path().join("added")).unwrap();
    std::fs::write(folder.path().join("added/binding.yaml"), ADDED).unwrap();
    let check = |arguments: &[&str], code, expected: &[&str], unexpected: &[&str]| {
        check(folder.path(), arguments, code, expected, unexpected)
    };
    check(
        &["user", "anna"],
        0,
        &[
            "serviceaccount shop/deployer",
            "read-secrets > token-secret",
            "unknown: pods",
        ],
        &["cluster-admin", "aGlkZGVu"],
    );
    check(&["user/anna", "--as-admin"], 0, &["does not reach cluster-admin"], &[]);
    let with = ["user", "anna", "--with", "added"];
    check(
        &with,
        0,
        &["cluster-admin", "ClusterRoleBinding/deployer"],
        &["1      read-secrets"],
    );
    check(
        &["user", "anna", "--with", "added", "--as-admin"],
        1,
        &["--all-rights--> cluster-admin"],
        &[],
    );
    check(
        &["user", "anna", "--on", "secrets/shop/other"],
        1,
        &["read", "RoleBinding/shop/reader"],
        &["delete", "write"],
    );
    check(
        &["user", "anna", "--on", "secrets/bank/other"],
        0,
        &["out of reach"],
        &[],
    );
    check(
        &["user", "anna", "-o", "json"],
        0,
        &["\"edge\": \"token-secret\"", "\"rights\""],
        &["aGlkZGVu"],
    );
    check(&["user", "anna", "-o", "dot"], 0, &["digraph reach", "->"], &[]);
    check(
        &["user", "stranger", "--group", "system:masters", "--as-admin"],
        1,
        &["cluster-admin"],
        &[],
    );
    check(&["serviceaccount", "shop:deployer"], 0, &["nothing"], &[]);
    check(&["tenant", "shop"], 3, &["Tenant/shop: it does not exist"], &[]);
    check(&["anna"], 2, &["is not a subject"], &[]);
    check(&["user", "anna", "--on", "secrets"], 2, &["is no object"], &[]);
}
