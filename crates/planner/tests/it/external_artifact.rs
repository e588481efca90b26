//! Plans for an ExternalArtifact: its composition, and the trusted writers of one that is made elsewhere.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::ExternalArtifact;
use tenure_planner::Next;
use tenure_planner::artifact_generator::StoredRecipes;
use tenure_planner::external_artifact::{self, ArtifactMaker, FetchRequest, StatusArtifact, find_maker};
use tenure_planner::source::Fetched;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_tenancy::ExternalGrant;

use crate::artifact_generator::{carry_out, make_placement, make_snapshot, make_source, make_spec, start};

fn make_artifact(source_ref: Value) -> ExternalArtifact {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
        "metadata": { "name": "web", "namespace": "blue", "generation": 1, "uid": "e" },
        "spec": { "sourceRef": source_ref },
        "status": { "artifact": {
            "digest": "sha256:forged", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "x", "revision": "forged",
            "url": "http://127.0.0.1/x"
        } }
    }))
    .unwrap()
}

fn make_artifact_snapshot(artifact: &ExternalArtifact, beside: ArtifactMaker) -> external_artifact::Snapshot {
    serde_json::from_value(json!({
        "repository": artifact, "placement": make_placement(), "beside": beside,
        "attempt": external_artifact::Attempt::new(start(), artifact),
    }))
    .unwrap()
}

#[test]
fn artifact_follows_generator_recipe_and_not_its_status() {
    let mut generating = make_snapshot(make_spec());
    carry_out(&mut generating);
    let recipes = StoredRecipes::clone(&generating.memory.recipes.clone().unwrap());
    let own =
        json!({ "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "name": "gen" });
    let made = make_artifact(own);
    let beside = |stored: Option<StoredRecipes>| find_maker(&made, &[], |_| true, |_| stored.as_ref());
    let mut known = make_artifact_snapshot(&made, beside(Some(recipes.clone())));
    let plan = external_artifact::plan(&known, start());
    let [external_artifact::Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    let FetchRequest::Compose(request) = request.as_ref() else {
        panic!("{plan}")
    };
    assert_eq!(request.recipe.name, "web");
    assert_eq!(
        request.sources.keys().collect::<Vec<_>>(),
        ["repo"],
        "only what it is made of"
    );
    // The recipe changes again soon after the last change: it waits a second, even if generators feed each other.
    known.memory = plan.memory.clone();
    let mut other = recipes.clone();
    other.sources.insert("repo".to_owned(), make_source("mono", "7"));
    known.beside = beside(Some(other));
    let soon = external_artifact::plan(&known, start());
    assert!(
        soon.steps.is_empty() && soon.next == Next::Done(Some("2026-01-01T00:00:01Z".parse().unwrap())),
        "{soon}"
    );
    // The result of the composition.
    let stored = StoredArtifact {
        facts: ArtifactFacts {
            revision: "latest@sha256:5".to_owned(),
            digest: "sha256:5".to_owned(),
            origin_revision: Some("main@sha1:1".to_owned()),
        },
        metadata: BTreeMap::from([("org.opencontainers.image.revision".to_owned(), "main@sha1:1".to_owned())]),
        ..StoredArtifact::default()
    };
    known.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: stored.clone(),
        subject: None,
    }));
    known.stored = Some(stored);
    let plan = external_artifact::plan(&known, start());
    let status = plan.status.unwrap();
    assert_eq!(
        status.artifact.as_ref().unwrap().digest.as_deref(),
        Some("sha256:5"),
        "what was forged is gone"
    );
    assert!(
        status
            .artifact
            .unwrap()
            .metadata
            .unwrap()
            .contains_key("org.opencontainers.image.revision")
    );

    for (beside, withheld) in [
        (beside(None), "has not reported its sources yet"),
        (
            beside(Some(StoredRecipes {
                is_suspended: true,
                ..recipes.clone()
            })),
            "is disabled",
        ),
        (
            beside(Some(StoredRecipes {
                problem: Some("a circle".to_owned()),
                ..recipes.clone()
            })),
            "makes nothing: a circle",
        ),
    ] {
        let plan = external_artifact::plan(&make_artifact_snapshot(&made, beside), start());
        assert!(plan.steps.is_empty() && plan.status.is_none(), "{plan}");
        assert!(plan.to_string().contains(withheld), "{plan}");
    }
    let mut without = recipes;
    without.recipes.clear();
    let plan = external_artifact::plan(&make_artifact_snapshot(&made, beside(Some(without))), start());
    assert!(
        plan.to_string()
            .contains("ArtifactGenerator gen makes no artifact of this name"),
        "{plan}"
    );
}

/// Tenure refuses the artifact, and leaves its status unchanged.
/// Any writer of the status could name any address in it, loopback included.
#[test]
fn artifact_of_unpermitted_maker_is_refused() {
    for source_ref in [
        json!({ "apiVersion": "example.com/v1", "kind": "Source", "name": "gen" }),
        json!({ "apiVersion": "example.com/v1", "kind": "ArtifactGenerator", "name": "gen" }),
        json!({ "kind": "ArtifactGenerator", "name": "gen", "namespace": "red" }),
    ] {
        let forged = make_artifact(source_ref);
        for grants in [
            Vec::new(),
            parse_grants(&["red/*=http://127.0.0.1/", "blue/other=http://127.0.0.1/"]),
        ] {
            let beside = find_maker(&forged, &grants, |_| true, |_| Some(Box::new(StoredRecipes::default())));
            assert_eq!(beside, ArtifactMaker::Elsewhere(StatusArtifact::NotAllowed));
            let plan = external_artifact::plan(&make_artifact_snapshot(&forged, beside), start());
            assert!(plan.steps.is_empty() && plan.status.is_none(), "{plan}");
            assert!(plan.to_string().contains("no administrator has named it"), "{plan}");
        }
    }
}

fn parse_grants(texts: &[&str]) -> Vec<ExternalGrant> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn permitted_artifact_is_fetched_by_digest_below_address() {
    let digest = format!("sha256:{}", "a1".repeat(32));
    let look = |fields: Value| {
        let mut made = make_artifact(json!({ "apiVersion": "example.com/v1", "kind": "Source", "name": "x" }));
        let mut usual = json!({
            "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "x", "revision": "v1@x",
            "url": "http://builder/artifacts/x.tar.gz"
        });
        for (key, value) in fields.as_object().unwrap() {
            usual[key] = value.clone();
        }
        made.status.as_mut().unwrap().artifact = serde_json::from_value(usual).unwrap();
        let grants = parse_grants(&["blue/web=http://builder/artifacts/"]);
        let beside = find_maker(&made, &grants, |_| true, |_| None::<Box<StoredRecipes>>);
        external_artifact::plan(&make_artifact_snapshot(&made, beside), start())
    };
    let plan = look(json!({}));
    let [external_artifact::Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    let FetchRequest::Download(request) = request.as_ref() else {
        panic!("{plan}")
    };
    assert_eq!(
        (request.url.as_str(), request.digest.as_str()),
        ("http://builder/artifacts/x.tar.gz", digest.as_str())
    );
    assert!(!request.platform && plan.status.is_none(), "its status is its maker's");
    for (fields, expected) in [
        (
            json!({ "url": "http://127.0.0.1/artifacts/x" }),
            "status.artifact.url is not below an address",
        ),
        (
            json!({ "url": "http://builder/artifacts/../x" }),
            "status.artifact.url is not below an address",
        ),
        (
            json!({ "url": "http://builder.evil/artifacts/x" }),
            "status.artifact.url is not below an address",
        ),
        (json!({ "digest": null }), "status.artifact.digest must be sha256:"),
        (
            json!({ "digest": "sha256:../../x" }),
            "status.artifact.digest must be sha256:",
        ),
        (
            json!({ "digest": "md5:900150983cd24fb0d6963f7d28e17f72" }),
            "status.artifact.digest must be sha256:",
        ),
        (json!({ "revision": "" }), "status.artifact.revision"),
        (json!({ "revision": "a\nb" }), "status.artifact.revision"),
    ] {
        let plan = look(fields);
        assert!(plan.steps.is_empty() && plan.status.is_none(), "{plan}");
        assert!(plan.to_string().contains(expected), "{expected}: {plan}");
    }
}
