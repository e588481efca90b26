//! The allow-list of dependencies between the workspace's crates, and the list of pure crates. A dependency that is not in the list is a finding, even if it compiles.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use super::Finding;

/// A crate, its folder, and the workspace's crates that it may depend on (dev-dependencies not counted).
const LAYERS: &[(&str, &str, &[&str])] = &[
    ("tenure-api", "crates/api", &["go-words"]),
    ("go-words", "crates/go-words", &[]),
    ("go-yaml", "crates/go-yaml", &[]),
    ("openpgp-packets", "crates/openpgp-packets", &[]),
    ("git-signatures", "crates/git-signatures", &["openpgp-packets"]),
    ("sops", "crates/sops", &["go-words", "go-yaml", "openpgp-packets"]),
    ("structured-merge", "crates/structured-merge", &["go-words"]),
    ("kustomize", "crates/kustomize", &["go-words", "go-yaml"]),
    ("kubernetes-cel", "crates/cel", &["go-words"]),
    ("kubernetes-reach", "crates/reach", &["kubernetes-cel"]),
    ("tenure-git-server", "crates/git-server", &[]),
    ("tenure-registry-server", "crates/registry-server", &[]),
    ("tenure-bucket-server", "crates/bucket-server", &[]),
    ("tenure-forge-server", "crates/forge-server", &["tenure-git-server"]),
    (
        "tenure-tenancy",
        "crates/tenancy",
        &["tenure-api", "go-words", "structured-merge"],
    ),
    (
        "tenure-admission-rules",
        "crates/admission-rules",
        &["tenure-api", "tenure-tenancy", "go-words", "structured-merge"],
    ),
    ("tenure-remote-requests", "crates/remote-requests", &["tenure-api"]),
    (
        "tenure-git-access",
        "crates/git-access",
        &["tenure-api", "tenure-remote-requests", "tenure-tenancy", "go-yaml"],
    ),
    (
        "tenure-inspection",
        "crates/inspection",
        &[
            "tenure-api",
            "tenure-remote-requests",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-planner",
            "tenure-git-access",
            "kustomize",
            "structured-merge",
        ],
    ),
    (
        "tenure-planner",
        "crates/planner",
        &[
            "tenure-api",
            "tenure-remote-requests",
            "tenure-tenancy",
            "tenure-admission-rules",
            "go-words",
            "go-yaml",
            "kubernetes-cel",
            "kustomize",
            "structured-merge",
        ],
    ),
    ("tenure-checkpoint", "crates/checkpoint", &[]),
    ("tenure-background", "crates/background", &[]),
    ("tenure-exposition", "crates/exposition", &[]),
    ("tenure-trials", "crates/trials", &[]),
    ("tenure-test-ports", "crates/test-ports", &[]),
    ("tenure-auth", "crates/auth", &["tenure-checkpoint", "go-words"]),
    (
        "tenure-kinds",
        "crates/kinds",
        &[
            "tenure-checkpoint",
            "tenure-auth",
            "go-words",
            "structured-merge",
            "kubernetes-cel",
        ],
    ),
    ("tenure-store", "crates/store", &["tenure-api"]),
    (
        "tenure-sources",
        "crates/sources",
        &[
            "tenure-api",
            "tenure-remote-requests",
            "go-words",
            "go-yaml",
            "git-signatures",
        ],
    ),
    (
        "tenure-git-hosts",
        "crates/git-hosts",
        &["tenure-api", "tenure-remote-requests", "tenure-sources"],
    ),
    (
        "tenure-cluster",
        "crates/cluster",
        &[
            "tenure-api",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-planner",
            "tenure-background",
        ],
    ),
    (
        "tenure-controllers",
        "crates/controllers",
        &[
            "tenure-api",
            "tenure-remote-requests",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-planner",
            "tenure-git-access",
            "kustomize",
            "sops",
            "tenure-cluster",
            "tenure-exposition",
            "tenure-sources",
            "tenure-git-hosts",
        ],
    ),
    (
        "tenure-apiserver",
        "crates/apiserver",
        &[
            "tenure-store",
            "tenure-checkpoint",
            "tenure-background",
            "tenure-exposition",
            "tenure-auth",
            "tenure-kinds",
            "go-words",
            "go-yaml",
            "structured-merge",
            "kubernetes-cel",
        ],
    ),
    (
        "tenure-admission",
        "crates/admission",
        &[
            "tenure-api",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-apiserver",
            "tenure-kinds",
            "tenure-cluster",
            "tenure-planner",
        ],
    ),
    (
        "tenure-testkit",
        "crates/testkit",
        &[
            "tenure-api",
            "tenure-admission",
            "tenure-apiserver",
            "tenure-store",
            "tenure-git-server",
            "tenure-cluster",
            "tenure-controllers",
            "tenure-sources",
            "kubernetes-reach",
            "tenure-planner",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-test-ports",
        ],
    ),
    (
        "tenure",
        "crates/tenure",
        &[
            "tenure-api",
            "tenure-admission",
            "tenure-remote-requests",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-planner",
            "tenure-git-access",
            "tenure-inspection",
            "kubernetes-reach",
            "kustomize",
            "structured-merge",
            "tenure-sources",
            "tenure-git-hosts",
            "tenure-cluster",
            "tenure-controllers",
            "tenure-git-server",
            "tenure-forge-server",
            "tenure-store",
            "tenure-apiserver",
        ],
    ),
    (
        "tenure-differential",
        "crates/differential",
        &["tenure-apiserver", "tenure-testkit"],
    ),
    (
        "tenure-bench",
        "crates/bench",
        &[
            "tenure-forge-server",
            "tenure-planner",
            "tenure-git-access",
            "tenure-git-server",
            "tenure-registry-server",
            "kustomize",
            "go-yaml",
            "tenure-api",
            "tenure-apiserver",
            "tenure-cluster",
            "tenure-admission",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-testkit",
            "tenure-test-ports",
        ],
    ),
    (
        "xtask",
        "xtask",
        &[
            "tenure-api",
            "kustomize",
            "structured-merge",
            "tenure-planner",
            "tenure-tenancy",
            "tenure-admission-rules",
            "tenure-git-server",
        ],
    ),
];

/// Crates without tokio, client, clock, environment or filesystem.
const PURE: &[&str] = &[
    "go-words",
    "go-yaml",
    "sops",
    "openpgp-packets",
    "git-signatures",
    "tenure-api",
    "structured-merge",
    "kustomize",
    "kubernetes-cel",
    "kubernetes-reach",
    "tenure-remote-requests",
    "tenure-tenancy",
    "tenure-admission-rules",
    "tenure-planner",
    "tenure-git-access",
    "tenure-inspection",
    "tenure-checkpoint",
    "tenure-exposition",
    "tenure-auth",
    "tenure-kinds",
];

/// Crates that a pure crate must not reach, however indirectly.
const NEVER_PURE: &[&str] = &["tokio", "hyper", "kube-client", "reqwest", "gix", "rustls", "redb"];

/// Settings that a pure crate's clippy.toml must contain, because it replaces the root's file.
const PURE_BANS: &[&str] = &[
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::env::var",
    "std::fs::read",
    "std::process::Command::new",
];

/// Compares the dependency graph with the allow-list.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let metadata = read_metadata(root)?;
    let mut findings = Vec::new();
    let packages = metadata
        .get("packages")
        .and_then(Value::as_array)
        .context("cargo metadata: no packages")?;
    let ours: Vec<&str> = packages
        .iter()
        .filter(|package| is_null(package, "source"))
        .filter_map(read_name)
        .collect();
    for package in packages.iter().filter(|package| is_null(package, "source")) {
        let Some(package_name) = read_name(package) else {
            continue;
        };
        let Some((_, folder, allowed)) = LAYERS.iter().find(|(layer, ..)| *layer == package_name) else {
            findings.push(Finding::new(
                package_name,
                "a crate that xtask/src/tidy/layers.rs does not know: add it with what it may depend on",
            ));
            continue;
        };
        let dependencies = package
            .get("dependencies")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        for dependency in dependencies.iter().filter(|dependency| is_null(dependency, "kind")) {
            let Some(dependency_name) = read_name(dependency) else {
                continue;
            };
            if ours.contains(&dependency_name) && !allowed.contains(&dependency_name) {
                findings.push(Finding::new(
                    *folder,
                    format!("may not depend on {dependency_name} (see ARCHITECTURE.md)"),
                ));
            }
        }
        findings.extend(check_manifest(root, folder)?);
    }
    for pure in PURE {
        findings.extend(check_purity(root, pure)?);
    }
    Ok(findings)
}

/// Checks that a crate inherits the workspace's lints, and that a pure crate bans clock, environment and filesystem.
fn check_manifest(root: &Path, folder: &str) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let path = root.join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    if !text.contains("[lints]\nworkspace = true") {
        findings.push(Finding::new(
            format!("{folder}/Cargo.toml"),
            "does not inherit the workspace's lints: add [lints] workspace = true",
        ));
    }
    if LAYERS
        .iter()
        .any(|(layer, place, _)| *place == folder && PURE.contains(layer))
    {
        let clippy = std::fs::read_to_string(root.join(folder).join("clippy.toml")).unwrap_or_default();
        for ban in PURE_BANS.iter().filter(|ban| !clippy.contains(**ban)) {
            findings.push(Finding::new(
                format!("{folder}/clippy.toml"),
                format!("a pure room must ban {ban}"),
            ));
        }
    }
    Ok(findings)
}

/// Checks that a pure crate does not depend on a shell's library, not even indirectly.
fn check_purity(root: &Path, package: &str) -> anyhow::Result<Vec<Finding>> {
    let output = std::process::Command::new("cargo")
        .args([
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--locked",
        ])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let reached = |banned: &&&str| text.lines().any(|line| line.split(' ').next() == Some(**banned));
    Ok(NEVER_PURE
        .iter()
        .filter(reached)
        .map(|banned| {
            Finding::new(
                package,
                format!("a pure room reaches {banned}: see `cargo tree -p {package} -i {banned}`"),
            )
        })
        .collect())
}

fn is_null(value: &Value, field: &str) -> bool {
    value.get(field).is_none_or(Value::is_null)
}

fn read_name(value: &Value) -> Option<&str> {
    value.get("name")?.as_str()
}

fn read_metadata(root: &Path) -> anyhow::Result<Value> {
    let output = std::process::Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
