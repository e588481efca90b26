//! The files of the bootstrap, and the objects of the platform in them: the account that applies the repository, its rights, and the Surface.

use serde_json::{Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};

use super::repository::{COMPONENTS_FILE, KUSTOMIZATION_FILE, OWN_FOLDER, SYNC_FILE};
use super::{Commit, Folder, Refusal, RepositoryFacts, WantedFiles};

/// The first words of the files that a bootstrap may replace.
pub(super) const HEADER: &str = "# Written by tenure bootstrap";
/// The name of the platform's Surface.
pub const PLATFORM_SURFACE: &str = "platform";
/// The name of the Surface's source.
pub const REPOSITORY_SOURCE: &str = "repository";
/// The ServiceAccount that applies the repository, an administrator of the cluster.
pub const PLATFORM_ACCOUNT: &str = "platform-gitops";
/// The Secret with the deploy key, and the Role that reads it.
pub const DEPLOY_KEY_SECRET: &str = "platform-deploy-key";
/// The account of the lane that applies the repository.
const PLATFORM_LANE: &str = "tenure-lane-platform";
/// The cluster-scoped binding of the account.
const CLUSTER_BINDING: &str = "tenure-platform-gitops";
/// The Role that lets the lane request a token of the account.
const MINTING: &str = "mints-platform-gitops";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The repository, as the cluster reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformSource {
    /// The address, which begins with `ssh://`.
    pub url: String,
    /// The branch.
    pub branch: String,
    /// The folder that is applied.
    pub folder: Folder,
    /// The time between two checks, such as `1m`.
    pub interval: String,
}

/// Returns the account of the platform's Surface and its rights, in the order of their writes. The account is an administrator: the repository has kinds, rights and
/// the controllers themselves. So the lane needs an explicit right to the account's token.
#[must_use]
pub fn list_platform_objects() -> Vec<Value> {
    let labels = json!({ MANAGED_BY: MANAGED_BY_TENURE });
    let here = |name: &str| json!({ "name": name, "namespace": PLATFORM_NAMESPACE, "labels": labels });
    let account = |name: &str| json!([{ "kind": "ServiceAccount", "name": name, "namespace": PLATFORM_NAMESPACE }]);
    let role = |kind: &str, name: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": name });
    let make_role = |name: &str, resource: &str, named: &str, verb: &str| {
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": here(name),
            "rules": [{ "apiGroups": [""], "resources": [resource], "resourceNames": [named], "verbs": [verb] }] })
    };
    let bind_role = |name: &str, to: &str| {
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": here(name),
            "roleRef": role("Role", name), "subjects": account(to) })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": here(PLATFORM_ACCOUNT) }),
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": CLUSTER_BINDING, "labels": labels },
            "roleRef": role("ClusterRole", "cluster-admin"), "subjects": account(PLATFORM_ACCOUNT) }),
        make_role(MINTING, "serviceaccounts", PLATFORM_ACCOUNT, "mint-administrator"),
        bind_role(MINTING, PLATFORM_LANE),
        make_role(DEPLOY_KEY_SECRET, "secrets", DEPLOY_KEY_SECRET, "get"),
        // A source reads its Secrets as the default account of its namespace.
        bind_role(DEPLOY_KEY_SECRET, "default"),
    ]
}

/// Returns the platform's Surface. Its deletion leaves the applied objects: the controllers are among them.
#[must_use]
pub fn make_surface(source: &PlatformSource) -> Value {
    json!({
        "apiVersion": "tenure.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {
            "name": PLATFORM_SURFACE,
            "namespace": PLATFORM_NAMESPACE,
            "labels": { MANAGED_BY: MANAGED_BY_TENURE },
        },
        "spec": {
            "serviceAccountName": PLATFORM_ACCOUNT,
            "sources": [{
                "name": REPOSITORY_SOURCE,
                "url": source.url,
                "ref": { "branch": source.branch },
                "secretRef": { "name": DEPLOY_KEY_SECRET },
                "interval": source.interval,
                "path": source.folder.relative(),
                "prune": true,
                "deletionPolicy": "Orphan",
            }],
        },
    })
}

/// Writes the file with the installation.
#[must_use]
pub fn write_components(objects: &[Value], version: &str) -> String {
    write_objects(
        &format!(
            "{HEADER} {version}. The same command of a later version replaces the file; patches belong into kustomization.yaml."
        ),
        objects,
    )
}

/// Writes the file with the platform's Surface.
#[must_use]
pub fn write_sync(surface: &Value) -> String {
    write_objects(
        &format!("{HEADER}. The command replaces the file when its flags change."),
        std::slice::from_ref(surface),
    )
}

fn write_objects(header: &str, objects: &[Value]) -> String {
    let mut text = format!("{header}\n");
    for object in objects {
        text.push_str("---\n");
        text.push_str(&kustomize::to_yaml(object));
    }
    text
}

/// Writes the kustomization that lists the files.
#[must_use]
pub fn write_kustomization(files: &WantedFiles) -> String {
    let mut text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n".to_owned();
    let listed = [
        files.components.as_ref().map(|_| COMPONENTS_FILE),
        files.sync.as_ref().map(|_| SYNC_FILE),
    ];
    for name in listed.into_iter().flatten() {
        text.push_str(&format!("- {name}\n"));
    }
    text
}

/// Builds the bootstrap's own folder after the commits, with the patches of its kustomization. So the cluster gets at once what the repository gives it later.
/// Without the folder, there are no objects.
///
/// # Errors
/// When the kustomization can't be built.
pub fn build_installation(
    repository: &RepositoryFacts,
    folder: &Folder,
    commits: &[Commit],
) -> Result<Vec<Value>, Refusal> {
    let own = folder.join(OWN_FOLDER);
    let prefix = format!("{own}/");
    let mut tree = kustomize::MapTree::new();
    let committed = commits.iter().flat_map(|commit| &commit.files);
    let committed = committed.map(|(path, text)| (path, text));
    for (path, text) in repository.texts.iter().chain(committed) {
        if path.starts_with(&prefix) {
            tree.insert(path, text.replace("\r\n", "\n"));
        }
    }
    if kustomize::FileTree::entry(&tree, &own).is_none() {
        return Ok(Vec::new());
    }
    // The order of the file stays: policies come before the rights that they bound.
    let options = kustomize::Options {
        reorder: kustomize::Reorder::None,
        ..kustomize::Options::default()
    };
    let built = kustomize::build(&tree, &own, &options);
    let built = built.map_err(|error| {
        Refusal::new(
            format!("{own} can't be built: {error}"),
            format!("look at {prefix}{KUSTOMIZATION_FILE}; without the file, the command writes a new one"),
        )
    })?;
    Ok(built.resources.into_iter().map(|built| built.object).collect())
}

/// Whether a kustomization names a file or folder, in any style of lists. Comments don't count.
pub(super) fn is_listed(text: &str, name: &str) -> bool {
    let is_separator = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '[' | ']' | '"' | '\'');
    let lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default());
    let mut words = lines
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split(is_separator));
    words.any(|word| word.trim_start_matches("./").trim_end_matches('/') == name)
}
