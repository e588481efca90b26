//! Charts in the files of another source, here of a bucket.

use std::time::Duration;

use tenure_bucket_server::BucketServer;
use tenure_registry_server::pack_files;
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::composition::{FoundSource, SourceState};
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::helm::{ChartOrigin, ChartRequest};
use tenure_sources::{BucketRequest, BucketSecrets, FetchBudgets, Limits, SourceKey, fetch_bucket};

use super::{CHART, Stand};

/// Stores the objects of a bucket as an artifact, and requests the chart at `charts/app` of it.
async fn make_request(stand: &mut Stand, objects: &[(&str, &[u8])]) -> ChartRequest {
    let server = BucketServer::start().await.unwrap();
    stand
        .policy
        .allow
        .push(format!("http://{}", server.address()).parse().unwrap());
    for (key, content) in objects {
        server.put("apps", key, content);
    }
    let asked = FetchRequest {
        endpoint: server.address().to_string(),
        bucket: "apps".to_owned(),
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
    };
    let key = SourceKey::new("Bucket", "team", "files", "3").unwrap();
    let request = BucketRequest::read(key, asked, &BucketSecrets::default()).unwrap();
    let (limits, account) = (Limits::default(), FetchBudgets::unlimited());
    let fetched = fetch_bucket(&request, &stand.policy, &limits, &stand.store, &account).await;
    let Fetched::Stored { artifact, .. } = fetched.unwrap() else {
        panic!()
    };
    let origin = ChartOrigin::Files(FoundSource {
        kind: "Bucket".to_owned(),
        namespace: "team".to_owned(),
        name: "files".to_owned(),
        state: SourceState::Stored {
            uid: "3".to_owned(),
            artifact: (&artifact).into(),
        },
    });
    ChartRequest {
        chart: "./charts/app".to_owned(),
        ..stand.write_request(origin)
    }
}

async fn get_unchanged(stand: &Stand, asked: &ChartRequest, known: &StoredArtifact) -> bool {
    let asked = ChartRequest {
        known: Some(known.clone()),
        ..asked.clone()
    };
    matches!(stand.fetch(&asked).await.unwrap(), Fetched::Unchanged { .. })
}

#[tokio::test]
async fn folder_is_packaged_once_for_each_version() {
    let mut stand = Stand::new().await;
    let chart: &[(&str, &[u8])] = &[
        ("charts/app/Chart.yaml", CHART.as_bytes()),
        ("charts/app/values.yaml", b"a: 1\n"),
        ("charts/app/templates/a.yaml", b"x"),
    ];
    let asked = make_request(&mut stand, chart).await;
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.revision, "1.0.0");
    assert_eq!(
        stored.chart.as_ref().unwrap().describe("1.0.0"),
        "packaged 'app' chart with version '1.0.0'"
    );
    assert_eq!(stand.read_file(&stored, "app/templates/a.yaml"), "x");
    assert!(get_unchanged(&stand, &asked, &stored).await);

    // Other files with the same version are the same chart, as Flux decides by default.
    let changed: Vec<(&str, &[u8])> = [chart, &[("charts/app/templates/b.yaml", b"y".as_slice())]].concat();
    let mut asked = make_request(&mut stand, &changed).await;
    assert!(get_unchanged(&stand, &asked, &stored).await);
    asked.version_metadata = Some("0123456789ab".to_owned());
    let other = stand.get(&asked).await;
    assert_eq!(other.facts.revision, "1.0.0+0123456789ab");
    assert_eq!(stand.read_file(&other, "app/templates/b.yaml"), "y");
}

#[tokio::test]
async fn values_files_are_found_from_the_root_of_the_source() {
    let mut stand = Stand::new().await;
    let objects: &[(&str, &[u8])] = &[
        ("charts/app/Chart.yaml", CHART.as_bytes()),
        ("charts/app/values.yaml", b"a: 1\nb: 1\n"),
        ("prod.yaml", b"b: 2\n"),
    ];
    let mut asked = make_request(&mut stand, objects).await;
    asked.values_files = ["charts/app/values.yaml", "../prod.yaml"].map(str::to_owned).to_vec();
    asked.version_metadata = Some("1".to_owned());
    let stored = stand.get(&asked).await;
    assert_eq!(stand.read_file(&stored, "app/values.yaml"), "a: 1\nb: 2\n");
    asked.values_files = vec!["values.yaml".to_owned(), "prod.yaml".to_owned()];
    assert_eq!(stand.refuse(&asked).await.0, "ValuesFilesError");
}

#[tokio::test]
async fn packaged_chart_in_a_source_is_taken_as_it_is() {
    let mut stand = Stand::new().await;
    let archive = pack_files(&[("app/Chart.yaml", CHART), ("app/values.yaml", "a: 1\n")]);
    let mut asked = make_request(&mut stand, &[("charts/app.tgz", &archive)]).await;
    asked.chart = "charts/app.tgz".to_owned();
    let stored = stand.get(&asked).await;
    assert_eq!(stored.facts.digest, tenure_registry_server::compute_digest(&archive));
    assert!(!stored.chart.unwrap().is_packaged);
}

#[tokio::test]
async fn folders_that_are_no_charts_are_refused() {
    let mut stand = Stand::new().await;
    let dependency = format!("{CHART}dependencies: [{{name: db, version: 1.x, repository: 'https://db.example'}}]\n");
    for (objects, reason) in [
        (vec![("README.md", "x")], "InvalidChartReference"),
        (vec![("charts/app/values.yaml", "a: 1")], "InvalidChartReference"),
        (vec![("charts/app/Chart.yaml", "name: app\n")], "InvalidChartReference"),
        (
            vec![("charts/app/Chart.yaml", dependency.as_str())],
            "DependencyBuildError",
        ),
        (
            vec![("charts/app/Chart.yaml", CHART), ("charts/app/.helmignore", "a/**\n")],
            "ChartPackageError",
        ),
    ] {
        let objects: Vec<(&str, &[u8])> = objects.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        let asked = make_request(&mut stand, &objects).await;
        let (found, message) = stand.refuse(&asked).await;
        assert_eq!(found, reason, "{message}");
    }
}
