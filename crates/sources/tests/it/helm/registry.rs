//! Charts in a container registry.

use tenure_api::SourceUrl;
use tenure_registry_server::{Access, Artifact, compute_digest, pack_files};
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::helm::{ChartOrigin, ChartRequest, RepositoryAccess};

use super::{CHART, Stand};
use crate::bed::secret;

const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

fn push(stand: &Stand, version: &str, values: &str) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: app\nversion: {version}\n");
    let archive = pack_files(&[("app/Chart.yaml", &metadata), ("app/values.yaml", values)]);
    let artifact = Artifact {
        layers: vec![(CHART_TYPE.to_owned(), archive.clone())],
        annotations: serde_json::json!({}),
    };
    stand.server.push("charts/app", &version.replace('+', "_"), &artifact);
    archive
}

fn make_request(stand: &Stand, version: &str) -> ChartRequest {
    let repository = RepositoryAccess {
        url: SourceUrl::new(format!("oci://{}/charts", stand.server.address())),
        insecure: true,
        secret: stand.secrets.credentials.is_some().then(|| "credentials".to_owned()),
        ..RepositoryAccess::default()
    };
    stand.write_request(ChartOrigin::Registry {
        repository,
        version: version.to_owned(),
        keys: None,
    })
}

#[tokio::test]
async fn highest_version_in_range_is_fetched() {
    let stand = Stand::new().await;
    push(&stand, "1.0.0", "a: 1\n");
    let archive = push(&stand, "1.2.0+build", "a: 2\n");
    push(&stand, "2.0.0", "a: 3\n");
    let mut asked = make_request(&stand, "1.x");
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.revision, "1.2.0+build");
    assert_eq!(stored.facts.digest, compute_digest(&archive));
    assert!(stored.metadata.is_empty());
    asked.known = Some(stored);
    assert!(matches!(stand.fetch(&asked).await.unwrap(), Fetched::Unchanged { revision } if revision == "1.2.0+build"));
    assert_eq!(stand.get(&make_request(&stand, "1.0.0")).await.facts.revision, "1.0.0");
    assert_eq!(stand.get(&make_request(&stand, "")).await.facts.revision, "2.0.0");
}

#[tokio::test]
async fn values_files_of_a_registry_chart_are_merged_once() {
    let stand = Stand::new().await;
    push(&stand, "1.0.0", "a: 1\n");
    let mut asked = make_request(&stand, "1.x");
    asked.values_files = vec!["values.yaml".to_owned(), "values.yaml".to_owned()];
    asked.version_metadata = Some("3".to_owned());
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.revision, "1.0.0+3");
    assert_eq!(stand.read_file(&stored, "app/values.yaml"), "a: 1\n");
    asked.known = Some(stored);
    assert!(matches!(stand.fetch(&asked).await.unwrap(), Fetched::Unchanged { .. }));
}

#[tokio::test]
async fn missing_versions_are_named() {
    let stand = Stand::new().await;
    push(&stand, "1.0.0", "a: 1\n");
    let (reason, message) = stand.refuse(&make_request(&stand, "3.x")).await;
    assert_eq!(reason, "InvalidChartReference", "{message}");
    let (reason, message) = stand.refuse(&make_request(&stand, "3.0.0")).await;
    assert_eq!(reason, "ChartPullError", "{message}");
    let other = Artifact {
        layers: vec![("application/x".to_owned(), pack_files(&[("app/Chart.yaml", CHART)]))],
        annotations: serde_json::json!({}),
    };
    stand.server.push("charts/app", "4.0.0", &other);
    let (reason, message) = stand.refuse(&make_request(&stand, "4.0.0")).await;
    assert_eq!(reason, "ChartPullError", "{message}");
}

#[tokio::test]
async fn user_and_password_are_sent_to_the_registry() {
    let mut stand = Stand::new().await;
    push(&stand, "1.0.0", "a: 1\n");
    stand.server.require(Access::Basic {
        pair: "user:sesame".to_owned(),
    });
    let (reason, _) = stand.refuse(&make_request(&stand, "1.x")).await;
    assert_eq!(reason, "AuthenticationFailed");
    stand.secrets.credentials = secret(&[("username", "user"), ("password", "sesame")]);
    assert_eq!(stand.get(&make_request(&stand, "1.x")).await.facts.revision, "1.0.0");
    stand.secrets.credentials = secret(&[("token", "sesame")]);
    let (reason, message) = stand.refuse(&make_request(&stand, "1.x")).await;
    assert_eq!(reason, "AuthenticationFailed");
    assert!(
        message.contains("it needs username and password, or .dockerconfigjson"),
        "{message}"
    );
}

#[tokio::test]
async fn unsigned_chart_is_refused_where_keys_are_named() {
    let mut stand = Stand::new().await;
    push(&stand, "1.0.0", "a: 1\n");
    let key = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVjN6bnF3Vw3S9Zq3bVh3c0nXwq0S\nq8h0n0H2Zc9m2w3h3m1Jr0m2l3mYwM1dG1m1Yk0p7cQmK8cZ2w0b8V0m2w==\n-----END PUBLIC KEY-----\n";
    stand.secrets.keys = secret(&[("author.pub", key)]);
    let mut asked = make_request(&stand, "1.x");
    let ChartOrigin::Registry { keys, .. } = &mut asked.origin else {
        panic!()
    };
    *keys = Some("keys".to_owned());
    let (reason, message) = stand.refuse(&asked).await;
    assert_eq!(reason, "ChartVerificationError", "{message}");
}
