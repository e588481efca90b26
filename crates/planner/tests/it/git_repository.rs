//! Plans for a GitRepository: the time of a fetch, its identity, and the status of every outcome.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_planner::git_repository::{
    Attempt, FetchFailure, FetchReason, Fetched, IncludedRepositories, IncludedRepository, Memory, Plan, Provider,
    Snapshot, Step, find_included, plan,
};
use tenure_planner::{Next, invariants};
use tenure_remote_requests::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};
use tenure_tenancy::{NamespaceFacts, TenancyFacts};

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn make_snapshot(spec: Value) -> Snapshot {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue", "torn": "n-torn" } }],
        "namespaces": [
            { "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] },
            { "name": "torn", "uid": "n-torn", "tenantLabel": "blue" },
        ],
    }))
    .unwrap();
    let repository = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "repo", "namespace": "blue", "generation": 1, "uid": "u" },
        "spec": spec,
    }))
    .unwrap();
    Snapshot {
        placement: tenancy.find_placement("blue"),
        stored: None,
        attempt: Attempt::new(start(), &repository),
        beside: IncludedRepositories::default(),
        memory: Memory::default(),
        advertised: None,
        least_interval: Duration::ZERO,
        repository,
    }
}

pub(crate) fn plan_at(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let plan = plan(snapshot, now);
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

/// Carries a plan's memory and status on, as a shell does, into a new attempt.
pub(crate) fn carry_over(snapshot: &mut Snapshot, plan: &Plan, now: Timestamp) {
    snapshot.memory = plan.memory.clone();
    if let Some(status) = &plan.status {
        snapshot.repository.status = Some(status.clone());
    }
    if !matches!(plan.next, Next::Again) {
        snapshot.attempt = Attempt::new(now, &snapshot.repository);
    }
}

fn make_stored(revision: &str) -> StoredArtifact {
    StoredArtifact {
        facts: ArtifactFacts {
            revision: revision.to_owned(),
            digest: "sha256:1".to_owned(),
            origin_revision: None,
        },
        size: 10,
        path: "x".to_owned(),
        stored_at: Some(start()),
        ignore: None,
        ..StoredArtifact::default()
    }
}

#[test]
fn status_url_follows_advertised_artifact_address() {
    let mut snapshot = make_snapshot(json!({ "url": "https://example.com/r.git", "interval": "10m" }));
    let digest = format!("sha256:{}", "0a".repeat(32));
    let mut artifact = make_stored("master@sha1:1");
    artifact.facts.digest.clone_from(&digest);
    snapshot.stored = Some(artifact);
    let mut at = start();
    let mut plan_url = |snapshot: &mut Snapshot, base: Option<&str>| {
        snapshot.advertised = base.map(|base| base.parse().unwrap());
        snapshot.attempt = Attempt::new(at, &snapshot.repository);
        snapshot.attempt.fetched = Some(Ok(Fetched::Unchanged {
            revision: "master@sha1:1".to_owned(),
        }));
        let plan = plan_at(snapshot, at);
        let written = plan.status.as_ref().and_then(|status| status.artifact.clone());
        carry_over(snapshot, &plan, at);
        at = at.checked_add(SignedDuration::from_secs(3600)).unwrap();
        written.map(|artifact| artifact.url)
    };
    assert_eq!(plan_url(&mut snapshot, None).as_deref(), Some(""));
    let path = format!("/gitrepository/blue/repo/{}.tar.gz", "0a".repeat(32));
    let first = plan_url(&mut snapshot, Some("http://artifacts.example"));
    assert_eq!(first, Some(format!("http://artifacts.example{path}")));
    assert_eq!(
        plan_url(&mut snapshot, Some("http://artifacts.example/")),
        None,
        "nothing changed"
    );
    let other = plan_url(&mut snapshot, Some("https://artifacts.example:8443/of"));
    assert_eq!(other, Some(format!("https://artifacts.example:8443/of{path}")));
    assert_eq!(plan_url(&mut snapshot, None).as_deref(), Some(""));
}

#[test]
fn an_interval_shorter_than_the_least_counts_as_that() {
    let least = Duration::from_secs(600);
    for (interval, counts) in [("2s", 600), ("10m", 600), ("1h", 3600)] {
        let mut snapshot = make_snapshot(json!({ "url": "https://example.com/r.git", "interval": interval }));
        snapshot.least_interval = least;
        snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
            artifact: make_stored("master@sha1:1"),
            subject: None,
        }));
        snapshot.stored = Some(make_stored("master@sha1:1"));
        let done = plan_at(&snapshot, start());
        let Next::Done(Some(due)) = done.next else {
            panic!("{done}")
        };
        // Each object has its own share of a twentieth more or less, so that not all are due at once.
        let waits = due.duration_since(start()).as_secs();
        assert!(
            (counts * 9 / 10..=counts * 11 / 10).contains(&waits),
            "{interval}: {waits} s"
        );
    }
}

#[test]
fn repository_is_polled_and_unchanged_upstream_writes_nothing() {
    let mut snapshot = make_snapshot(
        json!({ "url": "https://example.com/r.git", "interval": "10m", "secretRef": { "name": "key" },
            "proxySecretRef": { "name": "way" }, "provider": "github" }),
    );
    let first = plan_at(&snapshot, start());
    let [Step::Fetch(request)] = first.steps.as_slice() else {
        panic!("{first}")
    };
    assert_eq!(request.secret.as_deref(), Some("key"));
    assert_eq!(request.proxy.as_deref(), Some("way"));
    assert_eq!(request.provider, Provider::GitHub);
    assert_eq!(request.reference.branch.as_deref(), Some("master"));
    assert!(!request.platform);
    assert_eq!(
        first.identity.as_ref().unwrap().to_string(),
        "system:serviceaccount:blue:blue-gitops"
    );
    carry_over(&mut snapshot, &first, start());

    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: make_stored("master@sha1:1"),
        subject: Some("first".to_owned()),
    }));
    snapshot.stored = Some(make_stored("master@sha1:1"));
    let done = plan_at(&snapshot, start());
    insta::assert_snapshot!("git_repository_stored", done.to_string());
    carry_over(&mut snapshot, &done, start());

    let Next::Done(Some(due)) = done.next else {
        panic!("{done}")
    };
    let early = plan_at(&snapshot, start().checked_add(SignedDuration::from_secs(60)).unwrap());
    assert_eq!(
        (early.steps.len(), early.status.as_ref(), &early.next),
        (0, None, &Next::Done(Some(due)))
    );

    let asked = plan_at(&snapshot, due);
    let [Step::Fetch(request)] = asked.steps.as_slice() else {
        panic!("{asked}")
    };
    assert_eq!(request.known, snapshot.stored);
    assert_eq!(asked.status, None);
    carry_over(&mut snapshot, &asked, due);
    snapshot.attempt.fetched = Some(Ok(Fetched::Unchanged {
        revision: "master@sha1:1".to_owned(),
    }));
    let unchanged = plan_at(&snapshot, due);
    assert_eq!(
        (unchanged.status.as_ref(), unchanged.events.len()),
        (None, 0),
        "{unchanged}"
    );

    // An artifact that the store has lost is fetched again, at once and in full.
    snapshot.stored = None;
    let lost = plan_at(&snapshot, due);
    assert_eq!(lost.next, Next::Restart);
}

/// Each retry comes later than the one before.
#[test]
fn failed_fetch_is_reported_once_and_keeps_artifact() {
    let mut snapshot =
        make_snapshot(json!({ "url": "https://example.com/r.git", "interval": "1m", "ref": { "branch": "gone" } }));
    let mut now = start();
    let mut pauses = Vec::new();
    let mut events = 0;
    for _ in 0..8 {
        let fetch = plan_at(&snapshot, now);
        assert!(matches!(fetch.steps.as_slice(), [Step::Fetch(_)]), "{fetch}");
        carry_over(&mut snapshot, &fetch, now);
        snapshot.attempt.fetched = Some(Err(FetchFailure {
            reason: FetchReason::GitOperationFailed,
            message: "branch gone does not exist".to_owned(),
            ..FetchFailure::default()
        }));
        let failed = plan_at(&snapshot, now);
        events += failed.events.len();
        let Next::Done(Some(at)) = failed.next else {
            panic!("{failed}")
        };
        pauses.push(at.duration_since(now).as_secs());
        carry_over(&mut snapshot, &failed, now);
        now = at;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(events, 1);
    let status = snapshot.repository.status.clone().unwrap();
    let reasons: Vec<String> = status
        .conditions
        .iter()
        .map(|condition| format!("{}={}", condition.type_, condition.status.as_str()))
        .collect();
    assert_eq!(reasons, ["Ready=False", "Reconciling=True", "FetchFailed=True"]);

    // A request is handled at once, whatever the pause.
    let metadata = &mut snapshot.repository.metadata;
    metadata.annotations = Some(
        [("reconcile.fluxcd.io/requestedAt".to_owned(), "now".to_owned())]
            .into_iter()
            .collect(),
    );
    let early = start();
    snapshot.attempt = Attempt::new(early, &snapshot.repository);
    assert!(matches!(plan_at(&snapshot, early).steps.as_slice(), [Step::Fetch(_)]));
}

#[test]
fn unsupported_or_forbidden_field_stalls_source() {
    let cases = [
        (
            json!({ "provider": "azure", "serviceAccountName": "x" }),
            "spec.provider: azure, spec.serviceAccountName is set",
        ),
        (json!({ "provider": "aws" }), "spec.provider: aws is set"),
        (json!({ "provider": "gitlab" }), "spec.provider must be"),
        (
            json!({ "provider": "github" }),
            "InvalidProviderConfiguration: secretRef with github app data must be specified",
        ),
        (
            json!({ "provider": "github", "secretRef": { "name": "app" }, "url": "ssh://git@github.com/me/r" }),
            "InvalidProviderConfiguration: spec.provider github needs an https URL",
        ),
        (
            json!({ "proxySecretRef": { "name": "../x" } }),
            "spec.proxySecretRef.name",
        ),
        (json!({ "serviceAccountName": "x" }), "spec.serviceAccountName is set"),
        (json!({ "timeout": "1d" }), "spec.timeout"),
        (json!({ "timeout": "1h1s" }), "spec.timeout: it is longer than an hour"),
        (json!({ "interval": "-1s" }), "spec.interval"),
        (json!({ "url": "file:///etc" }), "must begin with http://"),
        (json!({ "secretRef": { "name": "../x" } }), "spec.secretRef.name"),
        (
            json!({ "verify": { "secretRef": { "name": "../x" } } }),
            "spec.verify.secretRef.name",
        ),
        (
            json!({ "verify": { "mode": "all", "secretRef": { "name": "x" } } }),
            "spec.verify.mode",
        ),
    ];
    for (fields, message) in cases {
        let mut spec = json!({ "url": "https://example.com/r.git", "interval": "1m" });
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let plan = plan_at(&make_snapshot(spec), start());
        assert!(plan.to_string().contains(message), "{message}: {plan}");
        assert!(plan.to_string().contains("Stalled=True"), "{plan}");
        assert!(plan.steps.is_empty());
    }
    // The namespace has no owner: no identity reads a Secret, and a public fetch needs none.
    let mut torn =
        make_snapshot(json!({ "url": "https://example.com/r.git", "interval": "1m", "secretRef": { "name": "key" } }));
    let tenancy = TenancyFacts {
        namespaces: vec![NamespaceFacts {
            name: "blue".to_owned(),
            tenant_label: Some("blue".to_owned()),
            ..NamespaceFacts::default()
        }],
        ..TenancyFacts::default()
    };
    torn.placement = tenancy.find_placement("blue");
    let plan = plan_at(&torn, start());
    assert!(
        plan.to_string()
            .contains("Secret blue/key can't be read: no identity may act here"),
        "{plan}"
    );
    torn.repository.spec.secret_ref = None;
    assert!(matches!(plan_at(&torn, start()).steps.as_slice(), [Step::Fetch(_)]));
}

#[test]
fn a_password_in_the_url_is_in_no_plan() {
    let url = "https://user:sesame@example.com/r.git";
    let snapshot = make_snapshot(json!({ "url": url, "interval": "10m" }));
    let plan = plan_at(&snapshot, start());
    let [Step::Fetch(request)] = plan.steps.as_slice() else {
        panic!("{plan}");
    };
    assert_eq!(request.url.reveal(), url, "the fetch gets the whole address");
    let printed = [
        plan.to_string(),
        format!("{plan:?}"),
        json!(plan).to_string(),
        format!("{:?}", snapshot.repository.spec),
    ];
    for printed in printed {
        assert!(
            printed.contains("https://example.com/r.git") && !printed.contains("sesame"),
            "{printed}"
        );
    }
}

/// Makes the facts about an included repository with a stored artifact.
fn make_included(digest: &str) -> IncludedRepository {
    let mut artifact = make_stored("main@sha1:2");
    artifact.facts.digest = digest.to_owned();
    IncludedRepository {
        uid: "v".to_owned(),
        artifact: Some(IncludedArtifact::from(&artifact)),
    }
}

#[test]
fn missing_include_is_reported_and_change_causes_fetch() {
    let mut snapshot = make_snapshot(json!({
        "url": "https://example.com/r.git", "interval": "10m", "sparseCheckout": ["./app/", "deploy"],
        "include": [{ "repository": { "name": "base" }, "fromPath": "./kit/" }, { "repository": { "name": "base" }, "toPath": "deep/er" }],
    }));
    let absent = plan_at(&snapshot, start());
    insta::assert_snapshot!("git_repository_include_not_found", absent.to_string());
    assert!(absent.steps.is_empty());
    carry_over(&mut snapshot, &absent, start());

    let mut nothing = make_included("sha256:9");
    nothing.artifact = None;
    snapshot.beside.repositories.insert("base".to_owned(), nothing);
    let empty = plan_at(&snapshot, start());
    let condition = |plan: &Plan, type_: &str| {
        let status = plan.status.as_ref().unwrap();
        let found = status.conditions.iter().find(|condition| condition.type_ == type_);
        found.map(|found| (found.reason.clone(), found.message.clone()))
    };
    let (reason, message) = condition(&empty, "IncludeUnavailable").unwrap();
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("NoArtifact", "no artifact available for include 'base'")
    );
    carry_over(&mut snapshot, &empty, start());

    snapshot
        .beside
        .repositories
        .insert("base".to_owned(), make_included("sha256:2"));
    let fetch = plan_at(&snapshot, start());
    let [Step::Fetch(request)] = fetch.steps.as_slice() else {
        panic!("{fetch}")
    };
    assert_eq!(request.sparse, ["app", "deploy"]);
    let ways: Vec<_> = request
        .include
        .iter()
        .map(|include| (include.from.as_str(), include.to.as_str()))
        .collect();
    assert_eq!(ways, [("kit", "base"), ("", "deep/er")]);
    carry_over(&mut snapshot, &fetch, start());

    let mut artifact = make_stored("master@sha1:1");
    artifact.included = request.include.iter().map(|include| include.artifact.clone()).collect();
    snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
        artifact: artifact.clone(),
        subject: None,
    }));
    snapshot.stored = Some(artifact);
    let done = plan_at(&snapshot, start());
    assert_eq!(condition(&done, "IncludeUnavailable"), None);
    let status = done.status.as_ref().unwrap();
    assert_eq!(status.included_artifacts.len(), 2);
    assert_eq!(status.included_artifacts[0].digest.as_deref(), Some("sha256:2"));
    assert_eq!(status.observed_include, snapshot.repository.spec.include);
    assert_eq!(
        status.observed_sparse_checkout,
        snapshot.repository.spec.sparse_checkout
    );
    carry_over(&mut snapshot, &done, start());
    assert!(plan_at(&snapshot, start()).steps.is_empty());

    // Another digest is due at once, also while the last attempt failed; the same one is not.
    let beside = snapshot.beside.clone();
    let is_overtaken = |snapshot: &Snapshot, beside: &IncludedRepositories| {
        snapshot.is_overtaken(&snapshot.repository, &snapshot.placement, beside)
    };
    assert!(!is_overtaken(&snapshot, &beside));
    snapshot.memory.failures = 5;
    snapshot.memory.failed_generation = Some(1);
    assert!(plan_at(&snapshot, start()).steps.is_empty());
    let mut newer = beside;
    newer.repositories.insert("base".to_owned(), make_included("sha256:3"));
    assert!(is_overtaken(&snapshot, &newer));
    snapshot.beside = newer;
    let again = plan_at(&snapshot, start());
    assert_eq!(again.steps.len(), 1);
    carry_over(&mut snapshot, &again, start());

    // A repository that disappears during the fetch doesn't invalidate the answer.
    snapshot.beside = IncludedRepositories::default();
    snapshot.attempt.fetched = Some(Ok(Fetched::Unchanged {
        revision: "master@sha1:1".to_owned(),
    }));
    assert_eq!(plan_at(&snapshot, start()).status, None);
    assert!(is_overtaken(&snapshot, &IncludedRepositories::default()));
}

#[test]
fn repositories_that_include_each_other_are_named() {
    let repository = |name: &str, includes: &str| -> tenure_api::GitRepository {
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name, "namespace": "blue", "uid": name },
            "spec": { "url": "https://example.com/r.git", "interval": "10m", "include": [{ "repository": { "name": includes } }] },
        }))
        .unwrap()
    };
    let all = [
        repository("repo", "one"),
        repository("one", "two"),
        repository("two", "repo"),
    ];
    let get = |name: &str| {
        let found = all
            .iter()
            .find(|repository| repository.metadata.name.as_deref() == Some(name));
        found.cloned().map(std::sync::Arc::new)
    };
    let mut snapshot = make_snapshot(
        json!({ "url": "https://example.com/r.git", "interval": "10m", "include": [{ "repository": { "name": "one" } }] }),
    );
    snapshot.beside = find_included(&all[0], get, |_| Some(make_stored("main@sha1:1")));
    let refused = plan_at(&snapshot, start());
    insta::assert_snapshot!("git_repository_include_cycle", refused.to_string());
    assert!(refused.steps.is_empty());
    // A repository that includes one in a cycle is not itself in the cycle.
    let beside = find_included(&repository("outside", "one"), get, |_| None);
    assert_eq!((beside.cycle, beside.repositories.len()), (None, 1));
    // A repository that includes itself.
    let alone = repository("self", "self");
    let own = |_: &str| Some(std::sync::Arc::new(alone.clone()));
    assert_eq!(find_included(&alone, own, |_| None).cycle.unwrap(), ["self", "self"]);
}

#[test]
fn paths_that_lead_anywhere_else_are_refused() {
    for (field, path, expected) in [
        (
            "sparseCheckout",
            "../up",
            "spec.sparseCheckout[0]: \"../up\" leads out of a folder",
        ),
        ("sparseCheckout", "/etc", "is absolute"),
        ("sparseCheckout", "a//b", "empty or \".\" part"),
        (
            "fromPath",
            "a/../../b",
            "spec.include[0].fromPath: \"a/../../b\" leads out",
        ),
        ("fromPath", "/", "is absolute"),
        ("toPath", "../up", "spec.include[0].toPath: \"../up\" leads out"),
        ("toPath", "/etc/passwd", "is absolute"),
        ("toPath", "a/.GIT/hooks", "leads into .git"),
        ("toPath", "a\u{0}b", "holds a control character"),
        ("name", "../other/secret", "spec.include[0].repository.name"),
    ] {
        let mut include = json!({ "repository": { "name": "base" } });
        let mut spec = json!({ "url": "https://example.com/r.git", "interval": "10m" });
        match field {
            "sparseCheckout" => spec["sparseCheckout"] = json!([path]),
            "name" => include["repository"]["name"] = json!(path),
            _ => include[field] = json!(path),
        }
        if field != "sparseCheckout" {
            spec["include"] = json!([include]);
        }
        let refused = plan_at(&make_snapshot(spec), start());
        assert!(refused.steps.is_empty());
        let conditions = refused.status.unwrap().conditions;
        let stalled = conditions
            .iter()
            .find(|condition| condition.type_ == "Stalled")
            .unwrap();
        assert_eq!(stalled.reason, "InvalidSpec");
        assert!(stalled.message.contains(expected), "{}", stalled.message);
    }
    let all =
        make_snapshot(json!({ "url": "https://example.com/r.git", "interval": "10m", "sparseCheckout": ["app", "."] }));
    let fetch = plan_at(&all, start());
    let [Step::Fetch(request)] = fetch.steps.as_slice() else {
        panic!("{fetch}")
    };
    assert_eq!(request.sparse, Vec::<String>::new());
}

#[test]
fn required_signatures_are_requested_and_reported() {
    let verified = |mode: Value, reference: Value| {
        let mut spec = json!({ "url": "https://example.com/r.git", "interval": "10m", "verify": { "secretRef": { "name": "keys" } } });
        if !mode.is_null() {
            spec["verify"]["mode"] = mode;
        }
        if !reference.is_null() {
            spec["ref"] = reference;
        }
        make_snapshot(spec)
    };
    for (mode, reference, expected) in [
        (Value::Null, Value::Null, "HEAD"),
        (json!("head"), json!({ "commit": "0".repeat(40) }), "HEAD"),
        (json!("Tag"), json!({ "tag": "v1", "branch": "main" }), "Tag"),
        (json!("Tag"), json!({ "semver": "1.x" }), "Tag"),
        (json!("TagAndHEAD"), json!({ "name": "refs/tags/v1" }), "TagAndHEAD"),
    ] {
        let mut snapshot = verified(mode, reference);
        let fetch = plan_at(&snapshot, start());
        let [Step::Fetch(request)] = fetch.steps.as_slice() else {
            panic!("{fetch}")
        };
        let verify = request.verify.as_ref().unwrap();
        assert_eq!((verify.mode.as_str(), verify.secret.as_str()), (expected, "keys"));
        let identity = fetch.identity.as_ref().unwrap().to_string();
        assert_eq!(identity, "system:serviceaccount:blue:blue-gitops");
        carry_over(&mut snapshot, &fetch, start());
        let mut artifact = make_stored("master@sha1:1");
        artifact.verified = Some("verified signature of it".to_owned());
        snapshot.stored = Some(artifact.clone());
        snapshot.attempt.fetched = Some(Ok(Fetched::Stored {
            artifact,
            subject: None,
        }));
        let done = plan_at(&snapshot, start());
        let status = done.status.as_ref().unwrap();
        assert_eq!(status.source_verification_mode.as_deref(), Some(expected));
        assert!(
            done.to_string()
                .contains("SourceVerified=True Succeeded: verified signature of it"),
            "{done}"
        );
        carry_over(&mut snapshot, &done, start());

        // An unsigned commit gives no artifact, and the previous artifact stays.
        snapshot.attempt.fetched = Some(Err(FetchFailure {
            reason: FetchReason::InvalidCommitSignature,
            message: "signature verification of commit '2' failed".to_owned(),
            terminal: false,
            retry_after: None,
        }));
        let failed = plan_at(&snapshot, start());
        let text = failed.to_string();
        assert!(text.contains("SourceVerified=False InvalidCommitSignature"), "{text}");
        assert!(text.contains("Ready=False InvalidCommitSignature"), "{text}");
        assert_eq!(failed.status.unwrap().artifact.unwrap().revision, "master@sha1:1");
    }
    for reference in [
        Value::Null,
        json!({ "branch": "main" }),
        json!({ "name": "refs/heads/main", "tag": "v1" }),
        json!({ "commit": "0".repeat(40), "tag": "v1" }),
    ] {
        let refused = plan_at(&verified(json!("Tag"), reference), start());
        assert!(refused.steps.is_empty());
        assert!(
            refused
                .to_string()
                .contains("Stalled=True InvalidVerificationMode: cannot verify tag object's"),
            "{refused}"
        );
    }
}
