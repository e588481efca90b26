//! The content of an artifact, and the resolution of references.

use serde_json::json;
use tenure_registry_server::{Artifact, compute_digest, pack_files};
use tenure_remote_requests::fetch::{FetchReason, Fetched};
use tenure_remote_requests::oci::{FetchRequest, LayerOperation};

use super::Stand;

#[tokio::test]
async fn tags_digests_and_versions_become_artifacts() {
    let stand = Stand::new().await;
    let files = [
        ("a.yaml", "a"),
        ("b/c.yaml", "c"),
        ("b/image.png", "x"),
        (".git/config", "x"),
    ];
    let first = stand.push("v1.0.0", &files);
    let artifact = stand.get(stand.make_request(json!({ "tag": "v1.0.0" }))).await;
    assert_eq!(artifact.facts.revision, format!("v1.0.0@{first}"));
    assert_eq!(
        artifact.facts.origin_revision.as_deref(),
        Some("main@sha1:0123456789012345678901234567890123456789")
    );
    assert_eq!(
        artifact.metadata["org.opencontainers.image.source"],
        "https://git.example/app"
    );
    assert_eq!(
        stand.list(&artifact),
        ["a.yaml", "b/c.yaml"],
        "what Flux ignores is ignored"
    );

    // An unchanged registry gets one request for a digest, and no other.
    let before = stand.server.requests().len();
    let known = FetchRequest {
        known: Some(artifact.clone()),
        ..stand.make_request(json!({ "tag": "v1.0.0" }))
    };
    assert!(matches!(
        stand.fetch(known.clone()).await,
        Ok(Fetched::Unchanged { .. })
    ));
    assert_eq!(stand.server.requests().len(), before + 1);
    assert_eq!(stand.server.requests()[before].method, "HEAD");
    let other = FetchRequest {
        ignore: Some("b".to_owned()),
        ..known
    };
    let other = stand.get(other).await;
    assert_eq!(stand.list(&other), ["a.yaml"]);

    // A stored digest needs no registry.
    let by_digest = stand
        .get(stand.make_request(json!({ "digest": first, "tag": "gone" })))
        .await;
    assert_eq!(by_digest.facts.revision, first);
    let before = stand.server.requests().len();
    let known = FetchRequest {
        known: Some(by_digest),
        ..stand.make_request(json!({ "digest": first }))
    };
    assert!(matches!(stand.fetch(known).await, Ok(Fetched::Unchanged { .. })));
    assert_eq!(stand.server.requests().len(), before);

    // Versions, over pages of two tags.
    for tag in [
        "1.2.0",
        "v1.10.0",
        "1.3.0-rc.1",
        "2.0.0",
        "latest",
        "1.11.0_x",
        "v1.9.9",
    ] {
        stand.push(tag, &[("a.yaml", tag)]);
    }
    for (reference, expected) in [
        (json!({ "semver": "1.x" }), "v1.10.0"),
        (json!({ "semver": "*" }), "2.0.0"),
        (json!({ "semver": ">=1.0.0-0 <1.4.0" }), "1.3.0-rc.1"),
        (
            json!({ "semver": ">=1.0.0-0", "semverFilter": ".*-rc.*" }),
            "1.3.0-rc.1",
        ),
        (json!({}), "latest"),
    ] {
        let artifact = stand.get(stand.make_request(reference)).await;
        assert!(
            artifact.facts.revision.starts_with(&format!("{expected}@sha256:")),
            "{artifact:?}"
        );
    }
    let (error, message) = stand.refuse(stand.make_request(json!({ "semver": ">=3" }))).await;
    assert_eq!(error.reason(), FetchReason::ReadOperationFailed, "{message}");
    let (error, message) = stand.refuse(stand.make_request(json!({ "tag": "gone" }))).await;
    assert_eq!(error.reason(), FetchReason::OciArtifactPullFailed);
    assert!(message.contains("tag \"gone\" not found in"), "{message}");
}

#[tokio::test]
async fn a_layer_is_selected_and_extracted_or_copied() {
    let stand = Stand::new().await;
    let chart = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let layer = pack_files(&[("chart/a.yaml", "a"), ("chart/b.png", "b")]);
    let artifact = Artifact {
        layers: vec![
            ("application/x".to_owned(), pack_files(&[("first", "1")])),
            (chart.to_owned(), layer.clone()),
        ],
        annotations: json!({}),
    };
    stand.server.push("team/app", "1.0.0_build", &artifact);
    let by = |media_type: Option<&str>, operation| FetchRequest {
        media_type: media_type.map(str::to_owned),
        operation,
        ..stand.make_request(json!({ "tag": "1.0.0_build" }))
    };
    let first = stand.get(by(None, LayerOperation::Extract)).await;
    assert_eq!(stand.list(&first), ["first"]);
    let second = stand.get(by(Some(chart), LayerOperation::Extract)).await;
    assert_eq!(stand.list(&second), ["chart/a.yaml"]);
    let copied = stand.get(by(Some(chart), LayerOperation::Copy)).await;
    assert_eq!(
        (copied.facts.digest.as_str(), copied.size),
        (compute_digest(&layer).as_str(), layer.len() as u64)
    );
    assert_eq!(stand.list(&copied), ["chart/a.yaml", "chart/b.png"], "byte for byte");
    // In tags of charts `_` stands for `+`.
    let chart_version = FetchRequest {
        reference: serde_json::from_value(json!({ "semver": "1.x" })).unwrap(),
        ..by(Some(chart), LayerOperation::Extract)
    };
    assert!(
        stand
            .get(chart_version.clone())
            .await
            .facts
            .revision
            .starts_with("1.0.0_build@")
    );
    let (_, message) = stand
        .refuse(FetchRequest {
            media_type: None,
            ..chart_version
        })
        .await;
    assert!(message.contains("no tag of"), "{message}");
    let (error, message) = stand.refuse(by(Some("application/y"), LayerOperation::Extract)).await;
    assert_eq!(error.reason(), FetchReason::OciArtifactLayerOperationFailed);
    assert!(
        message.contains("failed to find layer with media type 'application/y'"),
        "{message}"
    );
}

#[tokio::test]
async fn lists_of_manifests_are_followed_once() {
    let stand = Stand::new().await;
    let inner = stand.push("inner", &[("a.yaml", "a")]);
    let one = json!({ "digest": inner, "size": 1, "platform": { "os": "linux", "architecture": "amd64" } });
    let index =
        json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [one] });
    let outer = stand.server.push_manifest("team/app", "latest", &index);
    let artifact = stand.get(stand.make_request(json!({}))).await;
    assert_eq!(artifact.facts.revision, format!("latest@{outer}"));
    assert_eq!(stand.list(&artifact), ["a.yaml"]);
    let again = json!({ "schemaVersion": 2, "manifests": [{ "digest": outer, "size": 1 }] });
    stand.server.push_manifest("team/app", "latest", &again);
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(message.contains("a list of lists"), "{message}");
}
