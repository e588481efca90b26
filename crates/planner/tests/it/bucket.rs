//! Plans for a Bucket: the fetches, the refused fields, and the status.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::Bucket;
use tenure_planner::bucket::{Attempt, FetchFailure, FetchReason, Fetched, Plan, Snapshot, Step, plan};
use tenure_planner::invariants;
use tenure_planner::source::FetchStep as _;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_tenancy::TenancyFacts;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_snapshot(fields: &Value) -> Snapshot {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue" } }],
        "namespaces": [{ "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }],
    }))
    .unwrap();
    let mut spec = json!({ "endpoint": "store.example:9000", "bucketName": "apps", "interval": "10m" });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let repository: Bucket = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
        "metadata": { "name": "bucket", "namespace": "blue", "generation": 1, "uid": "u" },
        "spec": spec,
    }))
    .unwrap();
    let attempt = Attempt::new(start(), &repository);
    let known = json!({ "repository": repository, "placement": tenancy.find_placement("blue"), "attempt": attempt });
    serde_json::from_value(known).unwrap()
}

fn plan_now(snapshot: &Snapshot) -> Plan {
    let plan = plan(snapshot, start());
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

#[test]
fn every_field_is_requested_as_namespace_account() {
    let fields = json!({
        "provider": "aws", "region": "eu-west-1", "prefix": "web/", "insecure": true, "ignore": "*.md", "timeout": "30s",
        "secretRef": { "name": "keys" }, "certSecretRef": { "name": "tls" }, "proxySecretRef": { "name": "way" },
    });
    let plan = plan_now(&make_snapshot(&fields));
    let [Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    assert_eq!(
        plan.identity.as_ref().unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );
    assert_eq!(request.describe(), "http://store.example:9000/apps");
    assert_eq!(
        (request.region.as_deref(), request.prefix.as_str()),
        (Some("eu-west-1"), "web/")
    );
    assert_eq!(
        (
            request.secret.as_deref(),
            request.certificates.as_deref(),
            request.proxy.as_deref()
        ),
        (Some("keys"), Some("tls"), Some("way"))
    );
    assert_eq!(
        (request.ignore.as_deref(), request.timeout.as_secs()),
        (Some("*.md"), 30)
    );
    assert!(request.insecure && !request.platform && !request.is_public());
    // A public fetch needs no identity, and has an empty prefix.
    let plan = plan_now(&make_snapshot(&json!({ "region": "" })));
    let [Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    assert!(request.is_public() && request.prefix.is_empty() && request.region.is_none());
}

#[test]
fn stored_artifacts_are_reported_in_fluxs_words() {
    let mut snapshot = make_snapshot(&json!({}));
    let stored = StoredArtifact {
        facts: ArtifactFacts {
            revision: "sha256:1".to_owned(),
            digest: "sha256:2".to_owned(),
            ..ArtifactFacts::default()
        },
        size: 10,
        path: "x".to_owned(),
        stored_at: Some(start()),
        ..StoredArtifact::default()
    };
    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: stored.clone(),
        subject: Some("12".to_owned()),
    }));
    snapshot.stored = Some(stored);
    let plan = plan_now(&snapshot);
    let text = plan.to_string();
    for line in [
        "Ready=True Succeeded: stored artifact: revision 'sha256:1'",
        "ArtifactInStorage=True Succeeded: stored artifact: revision 'sha256:1'",
        "event Normal NewArtifact: stored artifact with 12 fetched files from 'apps' bucket",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // A failed fetch keeps the stored artifact.
    snapshot.repository.status = plan.status;
    snapshot.attempt.fetched = Some(Err(FetchFailure {
        reason: FetchReason::BucketOperationFailed,
        message: "bucket 'apps' not found".to_owned(),
        terminal: false,
        retry_after: None,
    }));
    let failed = plan_now(&snapshot);
    assert!(
        failed
            .to_string()
            .contains("FetchFailed=True BucketOperationFailed: bucket 'apps' not found"),
        "{failed}"
    );
    assert!(failed.status.unwrap().artifact.is_some());
}

#[test]
fn unsupported_or_forbidden_field_stalls_source() {
    let long = "x".repeat(1025);
    for (fields, message) in [
        (
            json!({ "provider": "aws" }),
            "spec.provider: aws without spec.secretRef is set",
        ),
        (json!({ "provider": "azure" }), "spec.provider: azure is set"),
        (json!({ "provider": "gcp" }), "spec.provider: gcp is set"),
        (
            json!({ "proxySecretRef": { "name": "../x" } }),
            "spec.proxySecretRef.name",
        ),
        (json!({ "serviceAccountName": "x" }), "spec.serviceAccountName is set"),
        (
            json!({ "sts": { "provider": "ldap", "endpoint": "https://x" } }),
            "spec.sts is set",
        ),
        (json!({ "endpoint": "https://store.example" }), "without a scheme"),
        (json!({ "endpoint": "store.example/path" }), "without a user, a path"),
        (
            json!({ "endpoint": "user:sesame@store.example" }),
            "without a user, a path",
        ),
        (json!({ "endpoint": "" }), "spec.endpoint"),
        (json!({ "bucketName": "a/../b" }), "spec.bucketName"),
        (json!({ "bucketName": "a..b" }), "spec.bucketName"),
        (json!({ "bucketName": "ab" }), "spec.bucketName"),
        (json!({ "bucketName": "-abc" }), "spec.bucketName"),
        (json!({ "bucketName": "abc?x=1" }), "spec.bucketName"),
        (json!({ "region": "a/b" }), "spec.region"),
        (json!({ "prefix": "a\nb" }), "spec.prefix"),
        (json!({ "prefix": long }), "spec.prefix"),
        (json!({ "timeout": "2h" }), "spec.timeout"),
        (
            json!({ "secretRef": { "name": "other/secret" } }),
            "spec.secretRef.name",
        ),
        (
            json!({ "certSecretRef": { "name": "../x" } }),
            "spec.certSecretRef.name",
        ),
    ] {
        let plan = plan_now(&make_snapshot(&fields));
        assert!(plan.to_string().contains(message), "{message}: {plan}");
        assert!(
            plan.to_string().contains("Stalled=True") && !plan.to_string().contains("sesame"),
            "{plan}"
        );
        assert!(plan.steps.is_empty());
    }
}
