//! Every kind of reference, its revision, and the error when it is missing.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::json;
use tenure_git_server::{Options, ProtocolVersions};
use tenure_remote_requests::fetch::Fetched;
use tenure_sources::{Entry, FetchError};

use crate::bed::Bed;

#[tokio::test]
async fn all_kinds_of_reference_have_fluxs_revisions() {
    for versions in [
        ProtocolVersions::All,
        ProtocolVersions::OnlyZero,
        ProtocolVersions::OnlyZeroWithMultiAck,
    ] {
        let bed = Bed::with(Options {
            versions,
            ..Options::default()
        })
        .await;
        let repository = &bed.repository;
        let first = repository.commit([("file", "1")], "first\n\nbody").await.unwrap();
        repository.tag("v1.0.0", &first).await.unwrap();
        let second = repository.commit([("file", "2")], "second").await.unwrap();
        repository.annotated_tag("v1.2.0", &second, "a release").await.unwrap();
        let third = repository.commit([("file", "3")], "third").await.unwrap();
        repository
            .annotated_tag("v2.0.0-rc.1", &third, "not yet")
            .await
            .unwrap();
        repository.set_reference("refs/pull/1/head", &first).await.unwrap();
        repository.set_reference("refs/heads/feature/x", &second).await.unwrap();

        for (reference, revision, content) in [
            (json!({"branch": "main"}), format!("main@sha1:{third}"), "3"),
            (json!({"branch": "feature/x"}), format!("feature/x@sha1:{second}"), "2"),
            (json!({"tag": "v1.0.0"}), format!("v1.0.0@sha1:{first}"), "1"),
            (json!({"tag": "v1.2.0"}), format!("v1.2.0@sha1:{second}"), "2"),
            (json!({"semver": ">=1.0.0"}), format!("v1.2.0@sha1:{second}"), "2"),
            (json!({"semver": ">=1.0.0-0"}), format!("v2.0.0-rc.1@sha1:{third}"), "3"),
            (json!({"semver": "1.0.x"}), format!("v1.0.0@sha1:{first}"), "1"),
            (
                json!({"name": "refs/pull/1/head"}),
                format!("refs/pull/1/head@sha1:{first}"),
                "1",
            ),
            (
                json!({"name": "refs/heads/main"}),
                format!("refs/heads/main@sha1:{third}"),
                "3",
            ),
            (json!({"name": "HEAD"}), format!("HEAD@sha1:{third}"), "3"),
            (json!({"commit": first.clone()}), format!("sha1:{first}"), "1"),
            (
                json!({"commit": second.clone(), "branch": "main"}),
                format!("main@sha1:{second}"),
                "2",
            ),
            (
                json!({"commit": first.to_uppercase(), "tag": "v9"}),
                format!("sha1:{first}"),
                "1",
            ),
        ] {
            let (artifact, _) = bed.get(reference.clone()).await;
            assert_eq!(artifact.facts.revision, revision, "{versions:?} {reference}");
            assert_eq!(
                bed.load(&artifact).entry("file"),
                Some(Entry::File(content.as_bytes())),
                "{reference}"
            );
        }
        let (_, subject) = bed.get(json!({"tag": "v1.0.0"})).await;
        assert_eq!(subject, "first");
        bed.assert_tidy();
    }
}

#[tokio::test]
async fn a_missing_reference_is_reported_with_its_neighbours() {
    let bed = Bed::new().await;
    let commit = bed.repository.commit([("a", "b")], "first").await.unwrap();
    bed.repository
        .set_reference("refs/heads/develop", &commit)
        .await
        .unwrap();
    bed.repository.tag("v1.0.0", &commit).await.unwrap();
    let unknown = "0123456789012345678901234567890123456789";
    for (reference, words) in [
        (json!({}), "branch \"master\" not found in http://127.0.0.1"),
        (json!({}), "; close to it: main"),
        (json!({"branch": "develp"}), "close to it: develop"),
        (json!({"tag": "v1.0.1"}), "tag \"v1.0.1\" not found"),
        (json!({"tag": "1.0.0"}), "close to it: v1.0.0"),
        (
            json!({"semver": ">=2"}),
            "a tag that matches the versions \">=2\" not found",
        ),
        (json!({"name": "refs/heads/mian"}), "close to it: refs/heads/main"),
        (
            json!({"commit": unknown}),
            "commit 0123456789012345678901234567890123456789 not found",
        ),
        (json!({"commit": unknown, "branch": "no"}), "on branch \"no\" not found"),
    ] {
        let (error, message) = bed.refuse(reference.clone()).await;
        assert!(
            matches!(error, FetchError::ReferenceNotFound { .. }),
            "{reference}: {message}"
        );
        assert!(message.contains(words), "{reference}: {message}");
        assert_eq!(
            (error.reason().as_str(), error.is_transient(), error.is_stalled()),
            ("GitOperationFailed", false, false)
        );
    }
    bed.assert_tidy();
}

#[tokio::test]
async fn an_empty_repository_has_no_branch() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let bed = Bed::with(Options {
            versions,
            ..Options::default()
        })
        .await;
        let (_, message) = bed.refuse(json!({"branch": "main"})).await;
        assert!(message.contains("branch \"main\" not found"), "{message}");
    }
}

#[tokio::test]
async fn nothing_is_received_when_nothing_changed() {
    let bed = Bed::new().await;
    let first = bed.repository.commit([("a", "1")], "first").await.unwrap();
    let request = bed.request(json!({"branch": "main"}));
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(bed.server.packs_sent(), 1);

    let unchanged = Fetched::Unchanged {
        revision: format!("main@sha1:{first}"),
    };
    assert_eq!(bed.fetch(&request, Some(&artifact)).await.unwrap(), unchanged);
    assert_eq!(bed.server.packs_sent(), 1, "the references were enough");

    // Other ignore patterns, a lost file, or another commit each need a new artifact.
    let mut other = request.clone();
    other.asked.ignore = Some("b".to_owned());
    assert!(matches!(
        bed.fetch(&other, Some(&artifact)).await.unwrap(),
        Fetched::Stored { .. }
    ));
    for archive in bed.archives() {
        std::fs::remove_file(archive).unwrap();
    }
    assert!(matches!(
        bed.fetch(&request, Some(&artifact)).await.unwrap(),
        Fetched::Stored { .. }
    ));
    let second = bed.repository.commit([("a", "2")], "second").await.unwrap();
    match bed.fetch(&request, Some(&artifact)).await.unwrap() {
        Fetched::Stored { artifact, .. } => assert_eq!(artifact.facts.revision, format!("main@sha1:{second}")),
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.server.packs_sent(), 4);

    // A commit never changes: a stored one needs no request.
    let request = bed.request(json!({"commit": first}));
    let (artifact, _) = bed.get_request(&request).await;
    let requests = bed.server.requests();
    assert!(matches!(
        bed.fetch(&request, Some(&artifact)).await.unwrap(),
        Fetched::Unchanged { .. }
    ));
    assert_eq!(bed.server.requests(), requests);
}

#[tokio::test]
async fn history_stays_on_the_server() {
    let bed = Bed::new().await;
    let big: Vec<u8> = (0..200_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let old = bed.repository.commit([("big", big)], "big").await.unwrap();
    bed.repository.commit([("big", "small")], "small").await.unwrap();
    let mut bed = bed;
    bed.limits.received_bytes = 100_000;
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    assert_eq!(bed.load(&artifact).len(), 1);
    let (error, _) = bed.refuse(json!({"commit": old})).await;
    assert!(
        matches!(
            error,
            FetchError::TooLarge {
                what: "received bytes",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn repositories_of_sha256() {
    let bed = Bed::new().await;
    let folder = bed.folder.path().join("repositories/other.git");
    let made = tokio::process::Command::new("git")
        .args([
            "init",
            "--quiet",
            "--bare",
            "--template=",
            "--object-format=sha256",
            "--initial-branch=main",
        ])
        .arg(&folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status()
        .await
        .unwrap();
    assert!(made.success());
    let repository = bed.server.repository("other").unwrap();
    let commit = repository.commit([("a", "1"), ("b/c", "2")], "first").await.unwrap();
    let request = bed.request_spec(json!({"url": bed.server.http_url("other"), "ref": {"branch": "main"}}));
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(artifact.facts.revision, format!("main@sha256:{commit}"));
    assert_eq!(bed.load(&artifact).len(), 2);
}

/// References that are not UTF-8 don't hide the others. A tag of a tree is named in the error.
#[tokio::test]
async fn strange_references_are_named_or_passed_over() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let bed = Bed::with(Options {
            versions,
            ..Options::default()
        })
        .await;
        let first = bed.repository.commit([("file", "1")], "first").await.unwrap();
        bed.repository.tag("v1.0.0", &first).await.unwrap();
        let name = std::ffi::OsStr::from_bytes(b"refs/tags/caf\xe9");
        let made = tokio::process::Command::new("git")
            .args(["update-ref".as_ref(), name, first.as_ref()])
            .current_dir(bed.repository.folder())
            .status()
            .await
            .unwrap();
        assert!(made.success());
        bed.get(json!({"branch": "main"})).await;
        let (artifact, _) = bed.get(json!({"semver": "1.x"})).await;
        assert_eq!(artifact.facts.revision, format!("v1.0.0@sha1:{first}"));

        let tree = tokio::process::Command::new("git")
            .args(["rev-parse", "main^{tree}"])
            .current_dir(bed.repository.folder())
            .output()
            .await
            .unwrap();
        let tree = String::from_utf8(tree.stdout).unwrap().trim().to_owned();
        bed.repository.tag("v1.1.0", &tree).await.unwrap();
        for reference in [json!({"semver": "1.x"}), json!({"tag": "v1.1.0"})] {
            let (_, message) = bed.refuse(reference).await;
            assert!(
                message.contains("refs/tags/v1.1.0") && message.contains("leads to a tree and not to a commit"),
                "{message}"
            );
        }
    }
}
