//! Artifacts of other controllers: the stored content has the digest, or nothing is stored.

use std::time::Duration;

use tempfile::TempDir;
use tenure_registry_server::{Answer, RegistryServer, compute_digest, pack_files};
use tenure_remote_requests::download::DownloadRequest;
use tenure_remote_requests::fetch::{FetchFailure, Fetched};
use tenure_sources::{ArtifactStore, DownloadError, FetchBudgets, Limits, Policy, SourceKey, download};

use crate::bed::make_unlimited_budget;

struct Stand {
    folder: TempDir,
    server: RegistryServer,
    store: ArtifactStore,
    policy: Policy,
    limits: Limits,
}

impl Stand {
    async fn new() -> Self {
        let (folder, server) = (TempDir::new().unwrap(), RegistryServer::start().await.unwrap());
        let allow = vec![format!("http://{}", server.address()).parse().unwrap()];
        Self {
            store: ArtifactStore::open(folder.path().join("artifacts"), make_unlimited_budget()).unwrap(),
            folder,
            server,
            policy: Policy {
                allow,
                cluster: Vec::new(),
            },
            limits: Limits::default(),
        }
    }

    fn make_request(&self, digest: &str) -> DownloadRequest {
        DownloadRequest {
            url: format!("http://{}/artifacts/x.tar.gz", self.server.address()),
            digest: digest.to_owned(),
            revision: "v1".to_owned(),
            timeout: Duration::from_secs(30),
            ..DownloadRequest::default()
        }
    }

    async fn fetch(&self, request: &DownloadRequest) -> Result<Fetched, String> {
        self.try_fetch(request).await.map_err(|error| error.to_string())
    }

    async fn try_fetch(&self, request: &DownloadRequest) -> Result<Fetched, DownloadError> {
        let account = FetchBudgets::unlimited();
        let fetched = download(
            &source_key(),
            request,
            &self.policy,
            &self.limits,
            &self.store,
            &account,
        )
        .await;
        let incoming = self.folder.path().join("artifacts/.incoming");
        assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0, "nothing is left of it");
        fetched
    }
}

fn source_key() -> SourceKey {
    SourceKey::new("ExternalArtifact", "team", "app", "1").unwrap()
}

#[tokio::test]
async fn a_server_says_when_it_may_be_asked_again() {
    let stand = Stand::new().await;
    let busy = |_: &_| Some(Answer::new(429, Vec::new()).with("Retry-After", "120"));
    stand.server.answer_with(busy);
    let error = stand
        .try_fetch(&stand.make_request(&compute_digest(b"x")))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("; it asks to wait for 120 s"), "{error}");
    assert_eq!(FetchFailure::from(&error).retry_after, Some(120));
}

#[tokio::test]
async fn artifact_with_matching_digest_is_fetched_once() {
    let stand = Stand::new().await;
    let archive = pack_files(&[("a.yaml", "x")]);
    let digest = compute_digest(&archive);
    stand
        .server
        .answer_with(move |_| Some(Answer::new(200, archive.clone())));
    let mut asked = stand.make_request(&digest);
    let Ok(Fetched::Stored { artifact, .. }) = stand.fetch(&asked).await else {
        panic!("nothing stored")
    };
    assert_eq!(
        (artifact.facts.digest.as_str(), artifact.facts.revision.as_str()),
        (digest.as_str(), "v1")
    );
    let tree = stand.store.load(&source_key(), &digest, &stand.limits).unwrap();
    assert_eq!(tree.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["a.yaml"]);
    let before = stand.server.requests().len();
    asked.known = Some(artifact);
    assert!(matches!(stand.fetch(&asked).await, Ok(Fetched::Unchanged { .. })));
    // Another revision of the same file is a new artifact.
    asked.revision = "v2".to_owned();
    let Ok(Fetched::Stored { artifact, .. }) = stand.fetch(&asked).await else {
        panic!("nothing stored")
    };
    assert_eq!(artifact.facts.revision, "v2");
    assert_eq!(stand.server.requests().len(), before, "nobody was asked");
}

#[tokio::test]
async fn wrong_digests_and_denied_addresses_are_refused() {
    let mut stand = Stand::new().await;
    let archive = pack_files(&[("a.yaml", "x")]);
    let good = compute_digest(&archive);
    let check = |answered: Result<Fetched, String>, expected: &str| {
        let message = answered.unwrap_err();
        assert!(message.contains(expected), "{expected}: {message}");
    };
    let bytes = archive.clone();
    stand.server.answer_with(move |_| Some(Answer::new(200, bytes.clone())));
    let other = compute_digest(b"another");
    check(stand.fetch(&stand.make_request(&other)).await, "and its status says");
    assert!(!stand.store.contains(&source_key(), &good) && !stand.store.contains(&source_key(), &other));
    // Addresses that the policy denies for sources, too.
    for url in [
        "http://169.254.169.254/latest/x",
        "http://localhost:1/x",
        "http://[::1]/x",
    ] {
        let asked = DownloadRequest {
            url: url.to_owned(),
            ..stand.make_request(&good)
        };
        assert!(stand.fetch(&asked).await.is_err(), "{url}");
    }
    let trap = RegistryServer::start().await.unwrap();
    let elsewhere = format!("http://{}/x", trap.address());
    stand
        .server
        .answer_with(move |_| Some(Answer::new(302, "").with("Location", elsewhere.clone())));
    check(
        stand.fetch(&stand.make_request(&good)).await,
        "answered HTTP 302; redirects are not followed",
    );
    assert!(trap.requests().is_empty());
    stand.server.answer_with(|_| Some(Answer::new(404, "secret words")));
    let message = stand.fetch(&stand.make_request(&good)).await.unwrap_err();
    assert!(message.contains("HTTP 404") && !message.contains("secret"), "{message}");
    stand.limits.received_bytes = 10;
    let bytes = archive.clone();
    stand.server.answer_with(move |_| Some(Answer::new(200, bytes.clone())));
    assert!(
        stand.fetch(&stand.make_request(&good)).await.is_err(),
        "it is longer than may be received"
    );
    // The control: within the bounds it is stored.
    stand.limits = Limits::default();
    assert!(stand.fetch(&stand.make_request(&good)).await.is_ok());
}
