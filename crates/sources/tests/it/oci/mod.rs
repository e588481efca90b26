//! Fetches of artifacts from a registry on the loopback address, which behaves correctly or not.

mod content;
mod credentials;
mod hostile;
mod real;
mod signatures;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_registry_server::{Artifact, RegistryServer};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::oci::{FetchRequest, LayerOperation};
use tenure_sources::{
    ArtifactStore, FetchBudgets, Limits, OciError, OciRequest, OciSecrets, Policy, SecretData, SourceKey, Tree,
    fetch_artifact,
};

use crate::bed::make_unlimited_budget;

struct Stand {
    folder: TempDir,
    server: RegistryServer,
    store: ArtifactStore,
    policy: Policy,
    limits: Limits,
    account: FetchBudgets,
    secrets: OciSecrets,
}

impl Stand {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let server = RegistryServer::start().await.unwrap();
        let store = ArtifactStore::open(folder.path().join("artifacts"), make_unlimited_budget()).unwrap();
        let allow = vec![format!("http://{}", server.address()).parse().unwrap()];
        Self {
            folder,
            server,
            store,
            policy: Policy {
                allow,
                cluster: Vec::new(),
            },
            limits: Limits::default(),
            account: FetchBudgets::unlimited(),
            secrets: OciSecrets::default(),
        }
    }

    fn allow(&mut self, endpoint: &str) {
        self.policy.allow.push(endpoint.parse().unwrap());
    }

    /// Puts credentials for these hosts into the Secret.
    fn set_credentials(&mut self, entries: &[(&str, &str)]) {
        let auths: serde_json::Map<String, Value> = entries
            .iter()
            .map(|(host, pair)| ((*host).to_owned(), json!({ "auth": STANDARD.encode(pair) })))
            .collect();
        let config = json!({ "auths": auths }).to_string();
        self.secrets.credentials = vec![SecretData::from([(
            ".dockerconfigjson".to_owned(),
            config.into_bytes(),
        )])];
    }

    fn host(&self) -> String {
        self.server.address().to_string()
    }

    fn make_request(&self, reference: Value) -> FetchRequest {
        FetchRequest {
            url: tenure_api::SourceUrl::new(format!("oci://{}/team/app", self.host())),
            reference: serde_json::from_value(reference).unwrap(),
            media_type: None,
            operation: LayerOperation::Extract,
            insecure: true,
            secret: None,
            service_account: None,
            certificates: None,
            proxy: None,
            keys: None,
            ignore: None,
            timeout: Duration::from_secs(30),
            known: None,
            platform: false,
        }
    }

    async fn fetch(&self, asked: FetchRequest) -> Result<Fetched, OciError> {
        let request = OciRequest::read(source_key(), asked, &self.secrets)?;
        fetch_artifact(&request, &self.policy, &self.limits, &self.store, &self.account).await
    }

    async fn get(&self, asked: FetchRequest) -> StoredArtifact {
        match self.fetch(asked).await.unwrap() {
            Fetched::Stored { artifact, .. } => artifact,
            other @ Fetched::Unchanged { .. } => panic!("{other:?}"),
        }
    }

    /// Fetches a request that must fail, and checks that nothing is left of it.
    async fn refuse(&self, asked: FetchRequest) -> (OciError, String) {
        let error = self.fetch(asked).await.unwrap_err();
        let message = error.to_string();
        assert!(!message.contains("sesame"), "{message}");
        let incoming = self.folder.path().join("artifacts/.incoming");
        assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
        (error, message)
    }

    fn load(&self, artifact: &StoredArtifact) -> Tree {
        self.store
            .load(&source_key(), &artifact.facts.digest, &self.limits)
            .unwrap()
    }

    fn list(&self, artifact: &StoredArtifact) -> Vec<String> {
        self.load(artifact).iter().map(|(path, _)| path.to_owned()).collect()
    }

    fn push(&self, tag: &str, files: &[(&str, &str)]) -> String {
        self.server.push("team/app", tag, &Artifact::from_files(files))
    }

    fn push_layer(&self, layer: Vec<u8>) {
        let artifact = Artifact {
            layers: vec![("application/x".to_owned(), layer)],
            annotations: json!({}),
        };
        self.server.push("team/app", "latest", &artifact);
    }
}

fn source_key() -> SourceKey {
    SourceKey::new("OCIRepository", "team", "app", "1").unwrap()
}
