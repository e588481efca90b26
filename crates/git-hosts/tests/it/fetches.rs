//! Tenure's own sources, with a Secret made from a host's credential.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::{git, oci};
use tenure_sources::{
    ArtifactStore, BudgetLimits, ByteBudget, Connector, FetchBudgets, GitRequest, GitSecrets, Limits, OciRequest,
    OciSecrets, SecretData, SourceKey, fetch, fetch_artifact,
};

struct Store {
    _folder: TempDir,
    artifacts: ArtifactStore,
}

impl Store {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let budget = ByteBudget::new(BudgetLimits::unlimited("bytes of archives"));
        Self {
            artifacts: ArtifactStore::open(folder.path(), budget).unwrap(),
            _folder: folder,
        }
    }
}

/// Returns the files of a GitRepository, or the reason for a failure.
pub(crate) async fn fetch_git(url: &str, secret: &SecretData, reach: &Connector) -> Result<Vec<String>, String> {
    let (store, limits) = (Store::new(), Limits::default());
    let source = SourceKey::new("GitRepository", "team", "app", "1").unwrap();
    let asked = git::FetchRequest {
        url: tenure_api::SourceUrl::new(url),
        reference: serde_json::from_value(json!({ "branch": "main" })).unwrap(),
        timeout: Duration::from_secs(60),
        ..git::FetchRequest::default()
    };
    let secrets = GitSecrets {
        credentials: Some(secret.clone()),
        ..GitSecrets::default()
    };
    let request = GitRequest::read(source.clone(), asked, &secrets).unwrap();
    let fetched = fetch(&request, reach, &limits, &store.artifacts, &FetchBudgets::unlimited()).await;
    list(&source, fetched.map_err(|error| error.to_string())?, &store)
}

/// Returns the files of an OCIRepository, or the reason for a failure.
pub(crate) async fn fetch_image(url: &str, secret: &SecretData, reach: &Connector) -> Result<Vec<String>, String> {
    let (store, limits) = (Store::new(), Limits::default());
    let source = SourceKey::new("OCIRepository", "team", "app", "1").unwrap();
    let asked = oci::FetchRequest {
        url: tenure_api::SourceUrl::new(url),
        reference: serde_json::from_value(json!({ "tag": "latest" })).unwrap(),
        media_type: None,
        operation: oci::LayerOperation::Extract,
        insecure: true,
        secret: None,
        service_account: None,
        certificates: None,
        proxy: None,
        keys: None,
        ignore: None,
        timeout: Duration::from_secs(60),
        known: None,
        platform: false,
    };
    let secrets = OciSecrets {
        credentials: vec![secret.clone()],
        ..OciSecrets::default()
    };
    let request = OciRequest::read(source.clone(), asked, &secrets).unwrap();
    let fetched = fetch_artifact(&request, reach, &limits, &store.artifacts, &FetchBudgets::unlimited()).await;
    list(&source, fetched.map_err(|error| error.to_string())?, &store)
}

fn list(source: &SourceKey, fetched: Fetched, store: &Store) -> Result<Vec<String>, String> {
    let Fetched::Stored { artifact, .. } = fetched else {
        return Err("there was one already".to_owned());
    };
    let tree = store
        .artifacts
        .load(source, &artifact.facts.digest, &Limits::default())
        .unwrap();
    Ok(tree.iter().map(|(path, _)| path.to_owned()).collect())
}
