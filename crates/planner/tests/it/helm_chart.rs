//! Plans for HelmRepositories and HelmCharts: the fetches, the refused fields, and the statuses in Flux's words.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::helm::{HelmChart, HelmRepository};
use tenure_planner::helm_chart::{ChartOrigin, ChartRequest, ChartSource, find_chart_source};
use tenure_planner::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, Plan, Snapshot, Source, Step, plan};
use tenure_planner::{Next, invariants};
use tenure_remote_requests::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};
use tenure_remote_requests::chart::ChartFacts;
use tenure_remote_requests::composition::SourceState;
use tenure_tenancy::TenancyFacts;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_snapshot<S: Source>(kind: &str, spec: Value, beside: S::RelatedObjects) -> Snapshot<S> {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue" } }],
        "namespaces": [{ "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }],
    }))
    .unwrap();
    let repository: S = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
        "metadata": { "name": "app", "namespace": "blue", "generation": 3, "uid": "u" },
        "spec": spec, "status": { "observedGeneration": -1 },
    }))
    .unwrap();
    Snapshot {
        placement: tenancy.find_placement("blue"),
        stored: None,
        attempt: Attempt::new(start(), &repository),
        beside,
        memory: Memory::default(),
        advertised: Some("http://127.0.0.1:9790".parse().unwrap()),
        least_interval: Duration::ZERO,
        repository,
    }
}

fn plan_now<S: Source>(snapshot: &Snapshot<S>) -> Plan<S> {
    let plan = plan(snapshot, start());
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

fn make_repository(spec: Value) -> HelmRepository {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": { "name": "repo", "namespace": "blue", "uid": "r" }, "spec": spec,
    }))
    .unwrap()
}

fn stored_state(revision: &str) -> SourceState {
    SourceState::Stored {
        uid: "r".to_owned(),
        artifact: IncludedArtifact {
            facts: ArtifactFacts {
                revision: revision.to_owned(),
                digest: format!("sha256:{}", "1".repeat(64)),
                origin_revision: None,
            },
            ..IncludedArtifact::default()
        },
    }
}

/// Makes the snapshot of a chart, with the repository of these fields, or with another source.
fn make_chart(spec: &Value, repository: Option<Value>, state: &SourceState) -> Snapshot<HelmChart> {
    let mut all =
        json!({ "chart": "app", "interval": "10m", "sourceRef": { "kind": "HelmRepository", "name": "repo" } });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    let mut snapshot = make_snapshot::<HelmChart>("HelmChart", all, ChartSource::default());
    let repository = repository.map(make_repository);
    let find = |_: &str| repository.as_ref();
    snapshot.beside = find_chart_source(&snapshot.repository, find, |_, _| state.clone());
    snapshot
}

fn index() -> Option<Value> {
    Some(json!({ "url": "https://charts.example/stable", "secretRef": { "name": "credentials" }, "timeout": "30s" }))
}

fn registry() -> Option<Value> {
    Some(
        json!({ "type": "oci", "url": "oci://registry.example/charts", "certSecretRef": { "name": "tls" }, "insecure": true }),
    )
}

fn find_request(plan: &Plan<HelmChart>) -> &ChartRequest {
    match plan.steps.as_slice() {
        [Step::Fetch(request)] => request,
        _ => panic!("{plan}"),
    }
}

fn make_stored(chart: ChartFacts) -> StoredArtifact {
    StoredArtifact {
        facts: ArtifactFacts {
            revision: "1.2.0".to_owned(),
            digest: format!("sha256:{}", "2".repeat(64)),
            origin_revision: None,
        },
        size: 34_567,
        path: "helmchart/blue/app/x.tar.gz".to_owned(),
        stored_at: Some(start()),
        chart: Some(chart),
        ..StoredArtifact::default()
    }
}

#[test]
fn index_is_fetched_as_namespace_account() {
    let spec = json!({ "url": "https://charts.example/stable", "secretRef": { "name": "credentials" }, "passCredentials": true });
    let mut snapshot = make_snapshot::<HelmRepository>("HelmRepository", spec, ());
    let plan = plan_now(&snapshot);
    let [Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}")
    };
    assert_eq!(
        plan.identity.as_ref().unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );
    assert_eq!(request.repository.secret.as_deref(), Some("credentials"));
    assert!(request.repository.passes_credentials && !request.platform);

    let artifact = StoredArtifact {
        chart: None,
        facts: ArtifactFacts {
            revision: "sha256:2".to_owned(),
            ..make_stored(ChartFacts::default()).facts
        },
        ..make_stored(ChartFacts::default())
    };
    snapshot.stored = Some(artifact.clone());
    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact,
        subject: None,
    }));
    insta::assert_snapshot!("helm_repository_stored", plan_now(&snapshot).to_string());
}

#[test]
fn registry_has_no_status_and_no_artifact() {
    let snapshot = make_snapshot::<HelmRepository>("HelmRepository", registry().unwrap(), ());
    let plan = plan_now(&snapshot);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.status, Some(tenure_api::helm::HelmRepositoryStatus::default()));
    assert_eq!(plan.next, Next::Done(None));
    let mut written = snapshot;
    written.repository.status = plan.status;
    assert_eq!(plan_now(&written).status, None);
}

#[test]
fn unusable_repository_address_stalls() {
    for (url, message) in [
        (
            "oci://registry.example/charts",
            "'oci' URL scheme cannot be used with 'default' HelmRepository type",
        ),
        ("ftp://charts.example", "must begin with http://"),
    ] {
        let plan = plan_now(&make_snapshot::<HelmRepository>(
            "HelmRepository",
            json!({ "url": url }),
            (),
        ));
        assert!(plan.to_string().contains(message), "{plan}");
        assert!(plan.to_string().contains("Stalled=True URLInvalid"), "{plan}");
    }
}

#[test]
fn chart_is_requested_from_its_source() {
    let plan = plan_now(&make_chart(
        &json!({ "version": "1.x" }),
        index(),
        &stored_state("sha256:1"),
    ));
    let request = find_request(&plan);
    assert!(
        matches!(&request.origin, ChartOrigin::Index { version, repository, .. } if version == "1.x" && repository.secret.is_some())
    );
    assert_eq!(
        (request.timeout, request.generation),
        (Duration::from_secs(30), Some(3))
    );
    assert_eq!(
        plan.identity.as_ref().unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );

    let verify = json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys" } } });
    let plan = plan_now(&make_chart(&verify, registry(), &SourceState::Empty));
    assert!(matches!(&find_request(&plan).origin, ChartOrigin::Registry { keys: Some(keys), .. } if keys == "keys"));

    let files = json!({ "chart": "./charts/app", "sourceRef": { "kind": "GitRepository", "name": "repo" } });
    let plan = plan_now(&make_chart(&files, None, &stored_state("main@sha1:0123456789abcdef")));
    let request = find_request(&plan);
    assert!(matches!(&request.origin, ChartOrigin::Files(found) if found.describe() == "GitRepository/blue/repo"));
    assert_eq!(request.version_metadata, None);
}

#[test]
fn version_gets_metadata_for_a_revision_and_for_values() {
    let files = |more: Value| {
        let mut spec = json!({ "sourceRef": { "kind": "GitRepository", "name": "repo" } });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    for (spec, revision, expected) in [
        (
            files(json!({ "reconcileStrategy": "Revision" })),
            "main@sha1:0123456789abcdef",
            Some("0123456789ab"),
        ),
        (
            files(json!({ "reconcileStrategy": "Revision" })),
            "sha256:fedcba9876543210",
            Some("fedcba987654"),
        ),
        (
            files(json!({ "reconcileStrategy": "Revision", "valuesFiles": ["a.yaml"] })),
            "main@sha1:0123456789abcdef",
            Some("0123456789ab.3"),
        ),
        (
            files(json!({ "valuesFiles": ["a.yaml"] })),
            "main@sha1:0123456789abcdef",
            Some("3"),
        ),
        (
            files(json!({ "valuesFiles": ["./values.yaml"] })),
            "main@sha1:0123456789abcdef",
            None,
        ),
        (
            json!({ "valuesFiles": ["values.yaml", "a.yaml"] }),
            "sha256:1",
            Some("3"),
        ),
        (json!({ "reconcileStrategy": "Revision" }), "sha256:1", None),
    ] {
        let plan = plan_now(&make_chart(&spec, index(), &stored_state(revision)));
        assert_eq!(
            find_request(&plan).version_metadata.as_deref(),
            expected,
            "{spec} {revision}"
        );
    }
}

#[test]
fn missing_sources_are_waited_for() {
    for (repository, state, message) in [
        (
            None,
            SourceState::NotFound,
            "SourceUnavailable: failed to get source: HelmRepository 'repo' not found",
        ),
        (
            index(),
            SourceState::Empty,
            "NoSourceArtifact: no artifact available for HelmRepository source 'repo'",
        ),
    ] {
        let mut snapshot = make_chart(&json!({}), repository, &state);
        let plan = plan_now(&snapshot);
        assert!(plan.steps.is_empty() && plan.to_string().contains(message), "{plan}");
        assert!(matches!(plan.next, Next::Done(Some(_))));
        // The source appears: nothing waits for the interval.
        snapshot.memory = plan.memory.clone();
        let beside = make_chart(&json!({}), index(), &stored_state("sha256:1")).beside;
        assert!(snapshot.is_overtaken(&snapshot.repository, &snapshot.placement, &beside));
    }
}

#[test]
fn changed_repository_causes_a_fetch() {
    let mut snapshot = make_chart(&json!({}), index(), &stored_state("sha256:1"));
    snapshot.memory = plan_now(&snapshot).memory;
    let is_overtaken = |beside: &ChartSource| snapshot.is_overtaken(&snapshot.repository, &snapshot.placement, beside);
    assert!(!is_overtaken(&snapshot.beside));
    let password = json!({ "url": "https://user:sesame@charts.example/stable", "secretRef": { "name": "credentials" }, "timeout": "30s" });
    for (repository, revision) in [(index(), "sha256:2"), (Some(password), "sha256:1")] {
        assert!(is_overtaken(
            &make_chart(&json!({}), repository, &stored_state(revision)).beside
        ));
    }
    assert!(!snapshot.memory.beside.contains("sesame"));
}

#[test]
fn unusable_charts_stall_with_a_reason() {
    let keys = json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys" } } });
    let cloud = json!({ "type": "oci", "url": "oci://registry.example/charts", "provider": "aws" });
    let web = json!({ "type": "oci", "url": "https://registry.example/charts" });
    for (spec, repository, message) in [
        (
            json!({ "sourceRef": { "kind": "OCIRepository", "name": "x" } }),
            index(),
            "UnsupportedSourceKind: spec.sourceRef.kind",
        ),
        (
            json!({ "chart": "" }),
            index(),
            "InvalidChartReference: invalid chart reference: spec.chart is empty",
        ),
        (json!({ "chart": "../app" }), index(), "InvalidChartReference"),
        (json!({ "chart": "App" }), index(), "InvalidChartReference"),
        (
            json!({ "verify": { "provider": "notation" } }),
            registry(),
            "spec.verify.provider: notation is set",
        ),
        (
            json!({ "verify": { "provider": "cosign" } }),
            registry(),
            "spec.verify.secretRef is missing",
        ),
        (
            keys,
            index(),
            "signatures are checked for a HelmRepository of type oci only",
        ),
        (
            json!({}),
            Some(cloud),
            "spec.provider: aws of the HelmRepository repo is set",
        ),
        (json!({}), Some(web), "URLInvalid: invalid OCI registry URL"),
    ] {
        let plan = plan_now(&make_chart(&spec, repository, &stored_state("sha256:1")));
        assert!(
            plan.steps.is_empty() && plan.to_string().contains(message),
            "{message}: {plan}"
        );
        assert!(plan.to_string().contains("Stalled=True"), "{plan}");
    }
}

#[test]
fn stored_chart_is_reported_in_words_of_flux() {
    let facts = ChartFacts {
        name: "app".to_owned(),
        is_packaged: true,
        values_files: vec!["a.yaml".to_owned()],
        pulled: None,
    };
    let mut snapshot = make_chart(
        &json!({ "ignoreMissingValuesFiles": true, "valuesFiles": ["a.yaml", "b.yaml"] }),
        index(),
        &stored_state("sha256:1"),
    );
    snapshot.stored = Some(make_stored(facts.clone()));
    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: make_stored(facts),
        subject: None,
    }));
    let plan = plan_now(&snapshot);
    insta::assert_snapshot!("helm_chart_stored", plan.to_string());
    let status = plan.status.unwrap();
    assert_eq!(status.observed_chart_name.as_deref(), Some("app"));
    assert_eq!(status.observed_source_artifact_revision.as_deref(), Some("sha256:1"));
    assert_eq!(status.observed_values_files, ["a.yaml"]);
}

#[test]
fn failures_have_the_conditions_of_flux() {
    let verify = json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys" } } });
    for (reason, expected) in [
        (
            FetchReason::InvalidChartReference,
            ["FetchFailed=True InvalidChartReference", "Ready=False"],
        ),
        (
            FetchReason::ChartPullError,
            ["FetchFailed=True ChartPullError", "Ready=False"],
        ),
        (
            FetchReason::ValuesFilesError,
            ["BuildFailed=True ValuesFilesError", "Ready=False"],
        ),
        (
            FetchReason::DependencyBuildError,
            ["BuildFailed=True DependencyBuildError", "Ready=False"],
        ),
        (
            FetchReason::ChartVerificationError,
            [
                "BuildFailed=True ChartVerificationError",
                "SourceVerified=False VerificationError",
            ],
        ),
        (
            FetchReason::AuthenticationFailed,
            ["FetchFailed=True AuthenticationFailed", "Ready=False"],
        ),
    ] {
        let mut snapshot = make_chart(&verify, registry(), &SourceState::Empty);
        snapshot.attempt.fetched = Some(Err(FetchFailure {
            reason,
            message: "a problem".to_owned(),
            terminal: false,
            retry_after: None,
        }));
        let text = plan_now(&snapshot).to_string();
        for part in expected {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
