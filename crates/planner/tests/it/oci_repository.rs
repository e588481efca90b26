//! Plans for an OCIRepository: the fetches, the refused fields, and the status about signatures and origins.

use std::time::Duration;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_planner::oci_repository::{
    Attempt, FetchFailure, FetchReason, Fetched, LayerOperation, Memory, Plan, Snapshot, Step, plan,
};
use tenure_planner::{Next, invariants};
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_tenancy::{NamespaceFacts, TenancyFacts};

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_snapshot(fields: &Value) -> Snapshot {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue" } }],
        "namespaces": [{ "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }],
    }))
    .unwrap();
    let mut spec = json!({ "url": "oci://registry.example/team/app", "interval": "10m" });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let repository = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": { "name": "repo", "namespace": "blue", "generation": 1, "uid": "u" },
        "spec": spec,
    }))
    .unwrap();
    Snapshot {
        placement: tenancy.find_placement("blue"),
        stored: None,
        attempt: Attempt::new(start(), &repository),
        beside: (),
        memory: Memory::default(),
        advertised: None,
        least_interval: Duration::ZERO,
        repository,
    }
}

fn plan_now(snapshot: &Snapshot) -> Plan {
    let plan = plan(snapshot, start());
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

fn make_stored() -> StoredArtifact {
    StoredArtifact {
        facts: ArtifactFacts {
            revision: "latest@sha256:1".to_owned(),
            digest: "sha256:2".to_owned(),
            origin_revision: Some("main@sha1:3".to_owned()),
        },
        size: 10,
        path: "x".to_owned(),
        stored_at: Some(start()),
        ignore: None,
        fingerprint: String::new(),
        verified: None,
        included: Vec::new(),
        metadata: BTreeMap::from([
            ("org.opencontainers.image.revision".to_owned(), "main@sha1:3".to_owned()),
            (
                "org.opencontainers.image.source".to_owned(),
                "https://git.example/app".to_owned(),
            ),
        ]),
        chart: None,
    }
}

#[test]
fn every_field_is_requested_as_namespace_account() {
    let snapshot = make_snapshot(&json!({
        "ref": { "semver": "1.x", "semverFilter": "x" }, "insecure": true, "ignore": "*.md", "timeout": "30s", "provider": "generic",
        "layerSelector": { "mediaType": "application/x", "operation": "copy" },
        "secretRef": { "name": "credentials" }, "serviceAccountName": "puller", "certSecretRef": { "name": "tls" },
        "proxySecretRef": { "name": "way" }, "verify": { "provider": "cosign", "secretRef": { "name": "keys" } },
    }));
    let plan = plan_now(&snapshot);
    let [Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    assert_eq!(
        plan.identity.as_ref().unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );
    assert_eq!(request.reference.semver.as_deref(), Some("1.x"));
    assert_eq!(
        (request.media_type.as_deref(), request.operation),
        (Some("application/x"), LayerOperation::Copy)
    );
    assert!(request.insecure && !request.platform);
    let read = [
        &request.secret,
        &request.service_account,
        &request.certificates,
        &request.proxy,
        &request.keys,
    ];
    assert_eq!(
        read.map(|name| name.as_deref().unwrap()),
        ["credentials", "puller", "tls", "way", "keys"]
    );
}

#[test]
fn stored_artifacts_are_reported_with_origin_and_signature() {
    let mut snapshot = make_snapshot(&json!({
        "layerSelector": { "operation": "extract" }, "verify": { "provider": "cosign", "secretRef": { "name": "keys" } },
    }));
    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: make_stored(),
        subject: None,
    }));
    snapshot.stored = Some(make_stored());
    let plan = plan_now(&snapshot);
    insta::assert_snapshot!("oci_repository_stored", plan.to_string());
    let status = plan.status.unwrap();
    assert_eq!(status.observed_layer_selector, snapshot.repository.spec.layer_selector);
    assert_eq!(
        status.artifact.as_ref().unwrap().metadata.as_ref().unwrap(),
        &make_stored().metadata
    );
    let verified = |status: &tenure_api::OciRepositoryStatus| {
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "SourceVerified");
        found.map(|condition| {
            format!(
                "{} {}: {}",
                condition.status.as_str(),
                condition.reason,
                condition.message
            )
        })
    };
    assert_eq!(
        verified(&status).as_deref(),
        Some("True Succeeded: verified signature of revision latest@sha256:1")
    );

    // An artifact without a trusted signature is not taken, and the existing one stays.
    snapshot.repository.status = Some(status);
    snapshot.attempt.fetched = Some(Err(FetchFailure {
        reason: FetchReason::VerificationError,
        message: "no matching signatures".to_owned(),
        terminal: false,
        retry_after: None,
    }));
    let failed = plan_now(&snapshot);
    let status = failed.status.clone().unwrap();
    assert_eq!(
        verified(&status).as_deref(),
        Some("False VerificationError: no matching signatures")
    );
    assert!(failed.to_string().contains("Ready=False VerificationError"), "{failed}");
    assert!(!failed.to_string().contains("FetchFailed=True"), "{failed}");
    assert!(status.artifact.is_some());
    assert!(matches!(failed.next, Next::Done(Some(_))));

    // Without verification, the status reports none.
    snapshot.repository.status = Some(status);
    snapshot.repository.spec.verify = None;
    snapshot.attempt.fetched = Some(Ok(Fetched::Unchanged {
        revision: "latest@sha256:1".to_owned(),
    }));
    assert_eq!(verified(&plan_now(&snapshot).status.unwrap()), None);
}

#[test]
fn unsupported_or_forbidden_field_stalls_source() {
    for (fields, message) in [
        (json!({ "provider": "aws" }), "spec.provider: aws is set"),
        (json!({ "provider": "azure" }), "spec.provider: azure is set"),
        (json!({ "provider": "gcp" }), "spec.provider: gcp is set"),
        (
            json!({ "proxySecretRef": { "name": "../x" } }),
            "spec.proxySecretRef.name",
        ),
        (
            json!({ "verify": { "provider": "notation", "secretRef": { "name": "x" } } }),
            "spec.verify.provider: notation is set",
        ),
        (
            json!({ "verify": { "provider": "cosign", "matchOIDCIdentity": [{ "issuer": "a", "subject": "b" }] } }),
            "spec.verify.matchOIDCIdentity is set",
        ),
        (
            json!({ "verify": { "provider": "cosign", "secretRef": { "name": "x" }, "trustedRootSecretRef": { "name": "x" } } }),
            "spec.verify.trustedRootSecretRef is set",
        ),
        (
            json!({ "verify": { "provider": "cosign" } }),
            "spec.verify.secretRef is missing",
        ),
        (
            json!({ "url": "https://registry.example/a" }),
            "spec.url must begin with oci://",
        ),
        (
            json!({ "layerSelector": { "operation": "move" } }),
            "must be extract or copy",
        ),
        (json!({ "timeout": "2h" }), "spec.timeout"),
        (
            json!({ "secretRef": { "name": "other/secret" } }),
            "spec.secretRef.name",
        ),
        (
            json!({ "serviceAccountName": "other:account" }),
            "spec.serviceAccountName",
        ),
        (
            json!({ "certSecretRef": { "name": "../x" } }),
            "spec.certSecretRef.name",
        ),
        (
            json!({ "verify": { "provider": "cosign", "secretRef": { "name": "../x" } } }),
            "spec.verify.secretRef.name",
        ),
    ] {
        let plan = plan_now(&make_snapshot(&fields));
        assert!(plan.to_string().contains(message), "{message}: {plan}");
        assert!(plan.to_string().contains("Stalled=True"), "{plan}");
        assert!(plan.steps.is_empty());
    }
    // The namespace has no owner: no identity reads anything, and a public fetch needs none.
    let torn = TenancyFacts {
        namespaces: vec![NamespaceFacts {
            name: "blue".to_owned(),
            tenant_label: Some("blue".to_owned()),
            ..NamespaceFacts::default()
        }],
        ..TenancyFacts::default()
    };
    for (fields, named) in [
        (json!({ "secretRef": { "name": "key" } }), "Secret blue/key"),
        (json!({ "serviceAccountName": "puller" }), "ServiceAccount blue/puller"),
        (
            json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys" } } }),
            "Secret blue/keys",
        ),
    ] {
        let mut snapshot = make_snapshot(&fields);
        snapshot.placement = torn.find_placement("blue");
        let plan = plan_now(&snapshot);
        let message = format!("{named} can't be read: no identity may act here");
        assert!(plan.to_string().contains(&message), "{plan}");
    }
    let mut public = make_snapshot(&json!({}));
    public.placement = torn.find_placement("blue");
    assert!(matches!(plan_now(&public).steps.as_slice(), [Step::Fetch(_)]));
}
