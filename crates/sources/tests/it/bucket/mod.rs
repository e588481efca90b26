//! Fetches of buckets from a store on the loopback address, which behaves correctly or not.

mod content;
mod credentials;
mod hostile;
mod real;

use std::time::Duration;

use tempfile::TempDir;
use tenure_bucket_server::{BucketServer, Keys};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::fetch::Fetched;
use tenure_sources::{
    ArtifactStore, BucketError, BucketRequest, BucketSecrets, FetchBudgets, Limits, Policy, SourceKey, Tree,
    fetch_bucket,
};

use crate::bed::{make_unlimited_budget, secret};

const BUCKET: &str = "apps";

struct Stand {
    folder: TempDir,
    server: BucketServer,
    store: ArtifactStore,
    policy: Policy,
    limits: Limits,
    account: FetchBudgets,
    secrets: BucketSecrets,
}

impl Stand {
    async fn new() -> Self {
        Self::with(BucketServer::start().await.unwrap(), "http")
    }

    fn with(server: BucketServer, scheme: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let store = ArtifactStore::open(folder.path().join("artifacts"), make_unlimited_budget()).unwrap();
        let allow = vec![format!("{scheme}://{}", server.address()).parse().unwrap()];
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
            secrets: BucketSecrets::default(),
        }
    }

    /// Makes the store require these keys, and puts them into the Secret.
    fn require_keys(&mut self, region: &str) {
        self.server.require(Keys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "open/sesame+".to_owned(),
            region: region.to_owned(),
        });
        self.secrets.credentials = secret(&[("accesskey", "AKIDEXAMPLE"), ("secretkey", "open/sesame+")]);
    }

    fn put(&self, objects: &[(&str, &str)]) {
        for (key, content) in objects {
            self.server.put(BUCKET, key, content.as_bytes());
        }
    }

    fn make_request(&self) -> FetchRequest {
        FetchRequest {
            endpoint: self.server.address().to_string(),
            bucket: BUCKET.to_owned(),
            region: None,
            prefix: String::new(),
            insecure: true,
            secret: None,
            certificates: None,
            proxy: None,
            ignore: None,
            timeout: Duration::from_secs(30),
            known: None,
            platform: false,
        }
    }

    fn ask_again(&self, known: &StoredArtifact) -> FetchRequest {
        FetchRequest {
            known: Some(known.clone()),
            ..self.make_request()
        }
    }

    async fn fetch(&self, asked: FetchRequest) -> Result<Fetched, BucketError> {
        let request = BucketRequest::read(source_key(), asked, &self.secrets)?;
        fetch_bucket(&request, &self.policy, &self.limits, &self.store, &self.account).await
    }

    async fn get(&self, asked: FetchRequest) -> StoredArtifact {
        match self.fetch(asked).await.unwrap() {
            Fetched::Stored { artifact, .. } => artifact,
            other @ Fetched::Unchanged { .. } => panic!("{other:?}"),
        }
    }

    /// Fetches a request that must fail, and checks that nothing is left of it.
    async fn refuse(&self, asked: FetchRequest) -> (BucketError, String) {
        let error = self.fetch(asked).await.unwrap_err();
        let message = error.to_string();
        assert!(!message.contains("sesame") && !message.contains("AKID"), "{message}");
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

    /// Returns the requests since the last call: the keys of objects, and an empty key for a page of the list.
    fn take_asked(&self) -> Vec<String> {
        let paths = self.server.take_requests().into_iter().map(|request| {
            let path = request.target.split('?').next().unwrap_or_default().to_owned();
            path.trim_start_matches("/apps/").to_owned()
        });
        let mut paths: Vec<String> = paths.collect();
        paths.sort();
        paths
    }
}

fn source_key() -> SourceKey {
    SourceKey::new("Bucket", "team", "app", "1").unwrap()
}
