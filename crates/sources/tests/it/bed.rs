//! A git server, a store, and a policy that allows only this server.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_api::GitRepositorySpec;
use tenure_git_server::{GitServer, LargeFileOptions, Options, Repository};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::git::FetchRequest;
use tenure_sources::{
    ArtifactStore, BudgetLimits, ByteBudget, FetchBudgets, FetchError, GitRequest, GitSecrets, Limits, Policy,
    SecretData, SourceKey, Tree, fetch,
};

pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) server: GitServer,
    pub(crate) repository: Repository,
    pub(crate) store: ArtifactStore,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) secret: Option<SecretData>,
    pub(crate) account: FetchBudgets,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let folder = TempDir::new().unwrap();
        let server = GitServer::start(folder.path().join("repositories"), options)
            .await
            .unwrap();
        server.serve_large_files(LargeFileOptions::default());
        let repository = server.create("app").await.unwrap();
        let store = ArtifactStore::open(folder.path().join("artifacts"), make_unlimited_budget()).unwrap();
        let mut allow = vec![endpoint(&server.http_url("app"))];
        allow.extend(server.ssh_url("app").as_deref().map(endpoint));
        let policy = Policy {
            allow,
            cluster: Vec::new(),
        };
        Self {
            folder,
            server,
            repository,
            store,
            policy,
            limits: Limits::default(),
            secret: None,
            account: FetchBudgets::unlimited(),
        }
    }

    /// A request for this reference over HTTP.
    pub(crate) fn request(&self, reference: Value) -> GitRequest {
        self.request_spec(json!({"url": self.server.http_url("app"), "interval": "1m", "ref": reference}))
    }

    pub(crate) fn request_spec(&self, spec: Value) -> GitRequest {
        read_spec(spec, self.secret.as_ref()).unwrap()
    }

    pub(crate) async fn fetch(
        &self,
        request: &GitRequest,
        known: Option<&StoredArtifact>,
    ) -> Result<Fetched, FetchError> {
        let mut request = request.clone();
        request.asked.known = known.cloned();
        fetch(&request, &self.policy, &self.limits, &self.store, &self.account).await
    }

    /// Fetches a reference that must exist.
    pub(crate) async fn get(&self, reference: Value) -> (StoredArtifact, String) {
        self.get_request(&self.request(reference)).await
    }

    pub(crate) async fn get_request(&self, request: &GitRequest) -> (StoredArtifact, String) {
        match self.fetch(request, None).await.unwrap() {
            Fetched::Stored { artifact, subject } => (artifact, subject.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    /// Fetches a request that must fail, and returns the error with its message.
    pub(crate) async fn refuse(&self, reference: Value) -> (FetchError, String) {
        self.refuse_request(&self.request(reference)).await
    }

    pub(crate) async fn refuse_request(&self, request: &GitRequest) -> (FetchError, String) {
        let error = self.fetch(request, None).await.unwrap_err();
        let message = error.to_string();
        (error, message)
    }

    pub(crate) fn load(&self, artifact: &StoredArtifact) -> Tree {
        self.store
            .load(&source(), &artifact.facts.digest, &Limits::default())
            .unwrap()
    }

    pub(crate) fn archives(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("artifacts/gitrepository/team/app/1");
        let mut archives: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        archives.sort();
        archives
    }

    /// Checks that a fetch has left nothing behind, whether it succeeded or not.
    pub(crate) fn assert_tidy(&self) {
        let incoming = self.folder.path().join("artifacts/.incoming");
        assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
    }
}

pub(crate) fn source() -> SourceKey {
    SourceKey::new("GitRepository", "team", "app", "1").unwrap()
}

pub(crate) fn make_unlimited_budget() -> ByteBudget {
    ByteBudget::new(BudgetLimits::unlimited("bytes of archives"))
}

pub(crate) fn endpoint(url: &str) -> tenure_sources::Endpoint {
    tenure_sources::RemoteUrl::parse(url).unwrap().endpoint().clone()
}

pub(crate) fn secret(pairs: &[(&str, &str)]) -> Option<SecretData> {
    Some(
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect(),
    )
}

/// Finds a program on `PATH`, or in the folder of additional test programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let folders = ["PATH", "TENURE_BESIDE"].into_iter().filter_map(std::env::var_os);
    let mut folders = folders.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// Makes bytes that do not compress; another seed gives other bytes.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

/// Makes the request for a GitRepository with this spec.
pub(crate) fn read_spec(mut spec: Value, secret: Option<&SecretData>) -> Result<GitRequest, FetchError> {
    spec["interval"] = json!("1m");
    let spec: GitRepositorySpec = serde_json::from_value(spec).unwrap();
    let asked = FetchRequest {
        url: spec.url,
        reference: spec.reference.unwrap_or_default(),
        sparse: spec.sparse_checkout,
        ignore: spec.ignore,
        timeout: Duration::from_secs(60),
        ..FetchRequest::default()
    };
    let secrets = GitSecrets {
        credentials: secret.cloned(),
        ..GitSecrets::default()
    };
    GitRequest::read(source(), asked, &secrets)
}
