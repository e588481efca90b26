//! A repository that `flux bootstrap` made. Its files stay unchanged: Tenure reconciles Flux's own GitRepository and Kustomization, as Flux's own account.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};

use super::{Folder, Refusal, RepositoryFacts};

/// The folder of Flux's files, below the platform's folder.
pub(super) const FOLDER: &str = "flux-system";
/// The files of Flux that are read.
pub(super) const FILES: [&str; 2] = [COMPONENTS, SYNC];
const COMPONENTS: &str = "gotk-components.yaml";
const SYNC: &str = "gotk-sync.yaml";
/// The namespace of Flux.
pub const FLUX_NAMESPACE: &str = "flux-system";
/// The account that applies the repository.
pub const FLUX_ACCOUNT: &str = KUSTOMIZE_CONTROLLER;
/// The lane of the protected namespace.
const FLUX_LANE: &str = "tenure-lane-protected-flux-system";
const MINTING: &str = "mints-flux";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The kinds of Flux's installation that a reconciliation needs before it can begin: the namespace, and the account with its rights.
const BEFORE: [&str; 4] = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"];

/// The objects of Flux that start the reconciliation, and the facts about them.
#[derive(Clone, Debug, PartialEq)]
pub struct FluxSync {
    /// The address of the repository.
    pub url: String,
    /// The branch.
    pub branch: String,
    /// The name of the Secret with the credentials; `None` for a public repository.
    pub secret: Option<String>,
    /// Namespace, account and rights, in the order of their writes.
    pub before: Vec<Value>,
    /// The GitRepository and the Kustomization.
    pub start: Vec<Value>,
    /// The name of the Kustomization.
    pub kustomization: String,
}

/// Whether `flux bootstrap` made the folder.
pub(super) fn is_flux(repository: &RepositoryFacts, folder: &Folder) -> bool {
    repository.entries.contains_key(&name_file(folder, SYNC))
}

fn name_file(folder: &Folder, name: &str) -> String {
    folder.join(&format!("{FOLDER}/{name}"))
}

/// Reads Flux's objects from the folder, if `flux bootstrap` made it.
pub(super) fn find_sync(repository: &RepositoryFacts, folder: &Folder) -> Result<Option<FluxSync>, Refusal> {
    if !is_flux(repository, folder) {
        return Ok(None);
    }
    let unusable = |path: &str, why: &str| {
        Refusal::new(
            format!("{path}: {why}"),
            "flux bootstrap wrote the file; without it, name another folder with --path",
        )
    };
    let read = |name: &str| {
        let path = name_file(folder, name);
        let text = repository.find_text(&path);
        let text = text.ok_or_else(|| unusable(&path, "the file is missing or no text"))?;
        let objects = kustomize::read_manifests(&path, text, &kustomize::Limits::default());
        let objects = objects.map_err(|error| unusable(&path, &error.to_string()))?;
        Ok(objects.into_iter().map(|built| built.object).collect::<Vec<Value>>())
    };
    let path = name_file(folder, SYNC);
    let start = read(SYNC)?;
    let find = |kind: &str| {
        let mut found = start.iter().map(ObjectView::new).filter(|object| {
            object.read_text("/kind") == kind && object.read_text("/metadata/namespace") == FLUX_NAMESPACE
        });
        found
            .next()
            .ok_or_else(|| unusable(&path, &format!("it has no {kind} in {FLUX_NAMESPACE}")))
    };
    let (source, kustomization) = (find("GitRepository")?, find("Kustomization")?);
    let applied = Folder::parse(kustomization.read_text("/spec/path"));
    if applied.as_ref() != Ok(folder) {
        return Err(unusable(
            &path,
            &format!(
                "its Kustomization applies {:?}, not {folder}",
                kustomization.read_text("/spec/path")
            ),
        ));
    }
    let mut before = read(COMPONENTS)?;
    before.retain(|object| BEFORE.contains(&ObjectView::new(object).read_text("/kind")));
    before.extend(list_minting());
    let branch = source.find_text("/spec/ref/branch");
    let sync = FluxSync {
        url: source.read_text("/spec/url").to_owned(),
        branch: branch
            .ok_or_else(|| unusable(&path, "its GitRepository names no branch"))?
            .to_owned(),
        secret: source.find_text("/spec/secretRef/name").map(str::to_owned),
        before,
        kustomization: kustomization.read_text("/metadata/name").to_owned(),
        start: Vec::new(),
    };
    Ok(Some(FluxSync { start, ..sync }))
}

/// Returns the right of the lane to the token of Flux's account, which is an administrator.
fn list_minting() -> [Value; 2] {
    let metadata = json!({ "name": MINTING, "namespace": FLUX_NAMESPACE, "labels": { MANAGED_BY: MANAGED_BY_TENURE } });
    [
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [FLUX_ACCOUNT], "verbs": ["mint-administrator"] }] }),
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": MINTING },
            "subjects": [{ "kind": "ServiceAccount", "name": FLUX_LANE, "namespace": PLATFORM_NAMESPACE }] }),
    ]
}
