//! Indexes and charts of a repository on the loopback address, which behaves correctly or not.

mod files;
mod hostile;
mod registry;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_api::SourceUrl;
use tenure_registry_server::{Answer, RecordedRequest, RegistryServer, compute_digest, pack_files};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::composition::{FoundSource, SourceState};
use tenure_remote_requests::fetch::{FetchFailure, Fetched};
use tenure_remote_requests::helm::{ChartOrigin, ChartRequest, IndexRequest, RepositoryAccess};
use tenure_sources::{
    ArtifactStore, ChartError, ChartFetch, FetchBudgets, HelmSecrets, IndexFetch, Limits, Policy, SourceKey,
    fetch_chart, fetch_index,
};

use crate::bed::{make_unlimited_budget, secret};

/// The files of a web server, by path.
type Files = Arc<Mutex<BTreeMap<String, Answer>>>;

struct Stand {
    folder: TempDir,
    server: RegistryServer,
    files: Files,
    store: ArtifactStore,
    policy: Policy,
    secrets: HelmSecrets,
}

impl Stand {
    async fn new() -> Self {
        let (folder, server) = (TempDir::new().unwrap(), RegistryServer::start().await.unwrap());
        let files = Files::default();
        let known = Arc::clone(&files);
        server.answer_with(move |request: &RecordedRequest| known.lock().unwrap().get(&request.target).cloned());
        let allow = vec![format!("http://{}", server.address()).parse().unwrap()];
        Self {
            store: ArtifactStore::open(folder.path().join("artifacts"), make_unlimited_budget()).unwrap(),
            folder,
            server,
            files,
            policy: Policy {
                allow,
                cluster: Vec::new(),
            },
            secrets: HelmSecrets::default(),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    fn put(&self, path: &str, answer: Answer) {
        self.files.lock().unwrap().insert(path.to_owned(), answer);
    }

    /// Serves a chart and an index that lists it.
    fn serve_chart(&self, files: &[(&str, &str)]) -> Vec<u8> {
        let archive = pack_files(files);
        self.put("/charts/app-1.0.0.tgz", Answer::new(200, archive.clone()));
        let digest = compute_digest(&archive);
        let digest = digest.trim_start_matches("sha256:");
        self.serve_index(&format!(
            "- {{version: 1.0.0, urls: [app-1.0.0.tgz], digest: {digest}}}\n  - {{version: 2.0.0-rc.1, urls: [none.tgz]}}"
        ));
        archive
    }

    fn serve_index(&self, versions: &str) {
        let index = format!("apiVersion: v1\nentries:\n  app:\n  {versions}\n");
        self.put("/charts/index.yaml", Answer::new(200, index));
    }

    fn access(&self) -> RepositoryAccess {
        RepositoryAccess {
            url: SourceUrl::new(format!("{}/charts", self.url())),
            ..RepositoryAccess::default()
        }
    }

    async fn try_index(&self, known: Option<StoredArtifact>) -> Result<Fetched, ChartError> {
        let asked = IndexRequest {
            repository: self.access(),
            timeout: Duration::from_secs(30),
            known,
            platform: false,
        };
        let request = IndexFetch::read(index_key(), asked, &self.secrets)?;
        let limits = Limits::default();
        let fetched = fetch_index(&request, &self.policy, &limits, &self.store, &FetchBudgets::unlimited()).await;
        self.assert_tidy();
        fetched
    }

    async fn get_index(&self) -> StoredArtifact {
        match self.try_index(None).await.unwrap() {
            Fetched::Stored { artifact, .. } => artifact,
            other @ Fetched::Unchanged { .. } => panic!("{other:?}"),
        }
    }

    /// Makes a request for the chart, with the index that is fetched for it.
    async fn make_request(&self, version: &str) -> ChartRequest {
        let index = self.get_index().await;
        self.write_request(ChartOrigin::Index {
            repository: self.access(),
            index: FoundSource {
                kind: "HelmRepository".to_owned(),
                namespace: "team".to_owned(),
                name: "repo".to_owned(),
                state: SourceState::Stored {
                    uid: "1".to_owned(),
                    artifact: (&index).into(),
                },
            },
            version: version.to_owned(),
        })
    }

    fn write_request(&self, origin: ChartOrigin) -> ChartRequest {
        ChartRequest {
            chart: "app".to_owned(),
            origin,
            values_files: Vec::new(),
            ignores_missing_values_files: false,
            version_metadata: None,
            generation: Some(1),
            timeout: Duration::from_secs(30),
            known: None,
            platform: false,
        }
    }

    async fn fetch(&self, asked: &ChartRequest) -> Result<Fetched, ChartError> {
        let request = ChartFetch::read(chart_key(), asked.clone(), &self.secrets)?;
        let limits = Limits::default();
        let account = FetchBudgets::unlimited();
        let fetched = fetch_chart(&request, None, &self.policy, &limits, &self.store, &account).await;
        self.assert_tidy();
        fetched
    }

    async fn get(&self, asked: &ChartRequest) -> StoredArtifact {
        match self.fetch(asked).await.unwrap() {
            Fetched::Stored { artifact, .. } => artifact,
            other @ Fetched::Unchanged { .. } => panic!("{other:?}"),
        }
    }

    /// Fetches a chart that must fail, and returns the reason and the message.
    async fn refuse(&self, asked: &ChartRequest) -> (String, String) {
        let error = self.fetch(asked).await.unwrap_err();
        let failure = FetchFailure::from(&error);
        assert!(!failure.message.contains("sesame"), "{}", failure.message);
        (failure.reason.as_str().to_owned(), failure.message)
    }

    /// Returns the text of a file in a stored chart.
    fn read_file(&self, chart: &StoredArtifact, path: &str) -> String {
        let tree = self
            .store
            .load(&chart_key(), &chart.facts.digest, &Limits::default())
            .unwrap();
        match tree.entry(path) {
            Some(tenure_sources::Entry::File(content)) => String::from_utf8(content.to_vec()).unwrap(),
            other => panic!("{path}: {other:?}"),
        }
    }

    /// Checks that a fetch has left nothing behind, whether it succeeded or not.
    fn assert_tidy(&self) {
        let incoming = self.folder.path().join("artifacts/.incoming");
        assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
    }
}

fn index_key() -> SourceKey {
    SourceKey::new("HelmRepository", "team", "repo", "1").unwrap()
}

fn chart_key() -> SourceKey {
    SourceKey::new("HelmChart", "team", "app", "2").unwrap()
}

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

#[tokio::test]
async fn chart_of_an_index_is_stored_unchanged() {
    let stand = Stand::new().await;
    let archive = stand.serve_chart(&[("app/Chart.yaml", CHART), ("app/values.yaml", "a: 1\n")]);
    let mut asked = stand.make_request("1.x").await;
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.revision, "1.0.0");
    assert_eq!(stored.facts.digest, compute_digest(&archive));
    let facts = stored.chart.clone().unwrap();
    assert_eq!(facts.describe("1.0.0"), "pulled 'app' chart with version '1.0.0'");

    asked.known = Some(stored.clone());
    let before = stand.server.requests().len();
    assert!(matches!(stand.fetch(&asked).await.unwrap(), Fetched::Unchanged { revision } if revision == "1.0.0"));
    assert_eq!(stand.server.requests().len(), before);
    // Another index with the same chart needs no download, and is remembered.
    stand.serve_chart(&[("app/Chart.yaml", CHART), ("app/values.yaml", "a: 1\n")]);
    let index = format!(
        "{}\n# another\n",
        String::from_utf8_lossy(&stand.files.lock().unwrap()["/charts/index.yaml"].body)
    );
    stand.put("/charts/index.yaml", Answer::new(200, index));
    let mut other = stand.make_request("1.x").await;
    other.known = Some(stored.clone());
    let before = stand.server.requests().len();
    let remembered = stand.get(&other).await;
    assert_eq!(
        (stand.server.requests().len(), &remembered.facts),
        (before, &stored.facts)
    );
    other.known = Some(remembered);
    assert!(matches!(stand.fetch(&other).await.unwrap(), Fetched::Unchanged { .. }));
    // With another generation, the artifact is made again.
    asked.generation = Some(2);
    assert_eq!(stand.get(&asked).await.facts, stored.facts);
}

#[tokio::test]
async fn unchanged_index_is_not_stored_again() {
    let stand = Stand::new().await;
    stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    let stored = stand.get_index().await;
    assert_eq!(stored.facts.revision, stored.facts.digest);
    let again = stand.try_index(Some(stored.clone())).await.unwrap();
    assert!(matches!(again, Fetched::Unchanged { revision } if revision == stored.facts.revision));
    stand.serve_index("- {version: 3.0.0, urls: [x.tgz]}");
    let changed = stand.try_index(Some(stored.clone())).await.unwrap();
    assert!(matches!(changed, Fetched::Stored { artifact, .. } if artifact.facts != stored.facts));
}

#[tokio::test]
async fn values_files_replace_the_default_values() {
    let stand = Stand::new().await;
    stand.serve_chart(&[
        ("app/Chart.yaml", CHART),
        ("app/values.yaml", "a: {b: 1, c: 2}\nlist: [1, 2]\n"),
        ("app/values-prod.yaml", "a: {c: 3}\nlist: [9]\nbig: 9007199254740993\n"),
    ]);
    let mut asked = stand.make_request("").await;
    asked.values_files = ["values.yaml", "./values-prod.yaml"].map(str::to_owned).to_vec();
    asked.version_metadata = Some("1".to_owned());
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.revision, "1.0.0+1");
    let values = stand.read_file(&stored, "app/values.yaml");
    assert_eq!(values, "a:\n  b: 1\n  c: 3\nbig: 9007199254740993\nlist:\n- 9\n");
    assert!(
        stand
            .read_file(&stored, "app/Chart.yaml")
            .contains("version: 1.0.0+1\n")
    );
    let facts = stored.chart.clone().unwrap();
    assert_eq!(
        facts.describe("1.0.0+1"),
        "packaged 'app' chart with version '1.0.0+1' and merged values files [values.yaml ./values-prod.yaml]"
    );
    assert_eq!(stand.get(&asked).await.facts, stored.facts);

    asked.values_files.push("missing.yaml".to_owned());
    let (reason, message) = stand.refuse(&asked).await;
    assert_eq!(reason, "ValuesFilesError");
    assert!(
        message.contains("no values file found at path 'missing.yaml'"),
        "{message}"
    );
    asked.ignores_missing_values_files = true;
    assert_eq!(stand.get(&asked).await.chart.unwrap().values_files.len(), 2);
}

#[tokio::test]
async fn missing_charts_and_versions_are_named() {
    let stand = Stand::new().await;
    stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    for (version, problem) in [
        ("3.x", "no 'app' chart with version matching '3.x' found"),
        ("a b c", "improper constraint"),
    ] {
        let (reason, message) = stand.refuse(&stand.make_request(version).await).await;
        assert_eq!(reason, "InvalidChartReference");
        assert!(message.contains(problem), "{message}");
    }
    let mut asked = stand.make_request("").await;
    asked.chart = "other".to_owned();
    let (reason, message) = stand.refuse(&asked).await;
    assert_eq!(reason, "InvalidChartReference");
    assert!(message.contains("no chart name found: 'other'"), "{message}");
    let (reason, message) = stand.refuse(&stand.make_request("2.0.0-rc.1").await).await;
    assert_eq!(reason, "ChartPullError");
    assert!(message.contains("answered HTTP 404"), "{message}");
}

#[tokio::test]
async fn credentials_go_to_the_repository_alone() {
    let mut stand = Stand::new().await;
    let other = RegistryServer::start().await.unwrap();
    let archive = stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    other.answer_with(move |_| Some(Answer::new(200, archive.clone())));
    stand
        .policy
        .allow
        .push(format!("http://{}", other.address()).parse().unwrap());
    stand.serve_index(&format!(
        "- {{version: 1.0.0, urls: ['http://{}/app.tgz']}}",
        other.address()
    ));
    stand.secrets.credentials = secret(&[("username", "user"), ("password", "sesame")]);
    let mut asked = stand.make_request("").await;
    stand.get(&asked).await;
    let shown = |server: &RegistryServer| server.requests().last().unwrap().authorization.clone();
    assert!(shown(&stand.server).unwrap().starts_with("Basic "));
    assert_eq!(shown(&other), None);

    let ChartOrigin::Index { repository, .. } = &mut asked.origin else {
        panic!()
    };
    repository.passes_credentials = true;
    asked.generation = Some(2);
    stand.get(&asked).await;
    assert!(shown(&other).unwrap().starts_with("Basic "));
}

#[tokio::test]
async fn refused_credentials_are_an_authentication_failure() {
    let mut stand = Stand::new().await;
    stand.put("/charts/index.yaml", Answer::new(401, "no"));
    stand.secrets.credentials = secret(&[("username", "user"), ("password", "sesame")]);
    let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
    assert_eq!(failure.reason.as_str(), "AuthenticationFailed");
    assert!(
        failure
            .message
            .contains("does not accept the Secret's username and password"),
        "{}",
        failure.message
    );
    stand.secrets.credentials = secret(&[("username", "user")]);
    let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
    assert!(
        failure.message.contains("username is set without password"),
        "{}",
        failure.message
    );
}
