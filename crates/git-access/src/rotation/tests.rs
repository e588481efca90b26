//! Single decisions, each for one observed state.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure_api::access::request::{CredentialLedger, CredentialPhase};
use tenure_api::condition::ConditionStatus;

use super::conditions::{About, assess_manual_secret, make_conditions};
use super::*;
use tenure_remote_requests::git_host::Scope;

mod undelivered;

pub(super) fn parse_time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn now() -> Timestamp {
    parse_time("2026-06-01T12:00:00Z")
}

pub(super) fn make_secret(fingerprint: &str, marked: bool) -> SecretState {
    SecretState::Present(SecretFacts {
        uid: "s-1".to_owned(),
        resource_version: "7".to_owned(),
        marked_for: marked.then(|| "request-1".to_owned()),
        fingerprint: Some(fingerprint.to_owned()),
        authority: None,
    })
}

/// Returns a credential that is in use and verified, with a predecessor that retires in an hour.
pub(super) fn make_snapshot() -> Snapshot {
    let ledger: CredentialLedger = serde_json::from_value(json!({
        "namespace": "team-a", "generation": 2, "secretUid": "s-1",
        "current": { "generation": 2, "id": 12, "name": "fa/c0ffee00/0badcafe/2/1780300000/b", "fingerprint": "two",
            "begunAt": "2026-06-01T08:00:00Z", "expiresAt": "2026-09-15T00:00:00Z", "verifiedAt": "2026-06-01T08:10:00Z" },
        "retiring": [{ "generation": 1, "id": 11, "name": "fa/c0ffee00/0badcafe/1/1770300000/a", "fingerprint": "one",
            "begunAt": "2026-03-01T08:00:00Z", "expiresAt": "2026-06-15T00:00:00Z", "retireAt": "2026-06-01T13:00:00Z" }]
    }))
    .unwrap();
    Snapshot {
        request_uid: "0badcafe-0000".to_owned(),
        request_name: "request-1".to_owned(),
        secret_name: "gitlab-flux-token".to_owned(),
        cluster_uid: "c0ffee00-0000".to_owned(),
        target: Target {
            scope: Scope::Project,
            id: 42,
            path: "group-1/a".to_owned(),
        },
        kind: CredentialKind::DeployToken,
        capabilities: Capabilities {
            overlap: true,
            expiry: true,
            last_used: false,
            idempotent_create: false,
            group_scope: true,
            listed: true,
        },
        role: Role::ReadRepository,
        username: None,
        rotate: "90d".parse().unwrap(),
        wanted: WantedState::Delivered,
        predecessors: Vec::new(),
        successor: None,
        order: None,
        ledger,
        namespace: NamespaceState::Present,
        secret: make_secret("two", true),
        is_mark_valid: true,
        staging: StagingState::Absent,
        accounts: ObservedAccounts::NotAsked,
        sources: vec![SourceState {
            name: "GitRepository/apps".to_owned(),
            is_suspended: false,
            interval: Duration::from_secs(600),
            asked: None,
            last_handled: None,
            refused_at: None,
        }],
        authority: None,
        listing: None,
        restraint: rate_limits::RateLimitState::default(),
        host_ahead: SignedDuration::ZERO,
        nonce: "n0nce".to_owned(),
        answer: None,
    }
}

/// Returns the state before any credential was made.
fn make_fresh() -> Snapshot {
    Snapshot {
        ledger: CredentialLedger {
            namespace: "team-a".to_owned(),
            ..CredentialLedger::default()
        },
        secret: SecretState::Absent,
        ..make_snapshot()
    }
}

/// Returns the state with a third credential in this phase.
pub(super) fn make_in_phase(phase: CredentialPhase) -> Snapshot {
    let mut seen = make_snapshot();
    seen.ledger.next = serde_json::from_value(json!({
        "phase": phase, "generation": 3, "nonce": "n3", "name": "fa/c0ffee00/0badcafe/3/1780315140/n3", "cause": "Due",
        "begunAt": "2026-06-01T11:59:00Z", "id": 13, "fingerprint": "three", "expiresAt": "2026-09-15T00:00:00Z",
        "distributedAt": (phase == CredentialPhase::Distributed).then_some("2026-06-01T11:59:30Z")
    }))
    .unwrap();
    if phase == CredentialPhase::Distributed {
        seen.secret = make_secret("three", true);
    }
    if phase != CredentialPhase::Intent {
        seen.staging = StagingState::Present(StagedFacts {
            nonce: "n3".to_owned(),
            is_minted: true,
            id: Some(13),
            fingerprint: "three".to_owned(),
            expires_at: None,
        });
    }
    seen
}

pub(super) fn list_reasons(plan: &Plan, about: About) -> Vec<&str> {
    let found = plan.findings.iter().filter(|finding| finding.about == about);
    found.map(|finding| finding.reason.as_str()).collect()
}

pub(super) fn plan_answer(seen: Snapshot, answer: Answer) -> Plan {
    let seen = Snapshot {
        answer: Some(answer),
        ..seen
    };
    plan(&seen, now())
}

#[test]
fn settled_request_needs_no_step() {
    let planned = plan(&make_snapshot(), now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T13:00:00Z"))
    );
    assert_eq!((planned.findings, planned.ledger), (Vec::new(), make_snapshot().ledger));
}

/// A credential is ordered only after the preflight has tried all writes, and after the order is recorded.
#[test]
fn order_follows_preflight_and_its_record() {
    assert_eq!(plan(&make_fresh(), now()).step, Some(Step::Preflight));
    let refused = plan_answer(
        make_fresh(),
        Answer::Preflight(Err("tenure-access-writer may not create secrets in team-a".to_owned())),
    );
    assert_eq!(
        (refused.step.clone(), refused.ledger.next.clone()),
        (Some(Step::Record), None)
    );
    assert_eq!(list_reasons(&refused, About::Failure), ["MissingRights"]);
    let begun = plan_answer(make_fresh(), Answer::Preflight(Ok(())));
    let next = begun.ledger.next.clone().unwrap();
    assert_eq!((begun.step, next.phase), (Some(Step::Begin), CredentialPhase::Intent));
    assert_eq!(next.name, "fa/c0ffee00/0badcafe/1/1780315200/n0nce");
    // 90 days, the overlap of an hour, and two weeks.
    assert_eq!(next.expires_at.unwrap().0, parse_time("2026-09-13T13:00:01Z"));
    let mut seen = make_fresh();
    seen.ledger = begun.ledger;
    let ordered = plan_answer(seen.clone(), Answer::Begun);
    assert!(
        matches!(&ordered.step, Some(Step::MintAndStage(request)) if request.name == next.name && request.target.id == 42)
    );
    // A plan sends the order only right after its record.
    for answer in [None, Some(Answer::Recorded), Some(Answer::Preflight(Ok(())))] {
        let seen = Snapshot { answer, ..seen.clone() };
        assert_eq!(plan(&seen, now()).step, None);
        let later = plan(&seen, parse_time("2026-06-01T12:01:00Z")).step;
        assert!(matches!(later, Some(Step::List(_))), "{later:?}");
    }
    // A withdrawn credential isn't ordered either.
    seen.wanted = WantedState::HeldBack("strict".to_owned());
    let held = plan_answer(seen, Answer::Begun);
    assert_eq!((held.step, held.ledger.next), (Some(Step::Record), None));
}

#[test]
fn lost_order_is_looked_up_and_not_repeated() {
    let seen = {
        let mut seen = make_in_phase(CredentialPhase::Intent);
        let next = seen.ledger.next.as_mut().unwrap();
        (next.id, next.fingerprint) = (None, String::new());
        seen
    };
    let lost = plan_answer(
        seen.clone(),
        Answer::MintFailed(HostError::Unknown("cut off".to_owned())),
    );
    assert_eq!(
        (lost.step, lost.ledger.next.map(|next| next.phase)),
        (Some(Step::Record), Some(CredentialPhase::Intent))
    );
    let listed = |name: &str, is_revoked: bool| ListedCredential {
        id: 13,
        name: name.to_owned(),
        expires_at: None,
        is_revoked,
        is_expired: false,
        may_write: false,
        last_used_at: None,
    };
    let name = "fa/c0ffee00/0badcafe/3/1780315140/n3";
    let found = plan_answer(seen.clone(), Answer::Listed(Ok(vec![listed(name, false)])));
    let next = found.ledger.next.clone().unwrap();
    assert_eq!((next.phase, next.id), (CredentialPhase::Minted, Some(13)));
    let mut minted = seen.clone();
    minted.ledger = found.ledger;
    let revoked = plan(&minted, now()).step;
    assert!(matches!(revoked, Some(Step::Revoke { id: 13, .. })), "{revoked:?}");
    for list in [vec![], vec![listed("somebody's own", false)], vec![listed(name, true)]] {
        let absent = plan_answer(seen.clone(), Answer::Listed(Ok(list)));
        assert_eq!(absent.ledger.next, None);
    }
    // The controller staged the value and died: the value exists.
    let staged = Snapshot {
        staging: make_in_phase(CredentialPhase::Staged).staging,
        ..seen
    };
    let adopted = plan(&staged, now()).ledger.next.unwrap();
    assert_eq!((adopted.phase, adopted.id), (CredentialPhase::Staged, Some(13)));
}

#[test]
fn host_failure_is_reported_and_waited_for() {
    let until = parse_time("2026-06-01T13:00:00Z");
    for (trouble, reason, again) in [
        (
            HostError::Limited { until },
            "LimitedByHost",
            Some(parse_time("2026-06-01T13:00:01Z")),
        ),
        (
            HostError::Banned { until },
            "BannedByHost",
            Some(parse_time("2026-06-01T13:00:01Z")),
        ),
        (
            HostError::Banned { until: Timestamp::MAX },
            "BannedByHost",
            Some(parse_time("2026-06-02T12:00:01Z")),
        ),
        (
            HostError::Limited { until: Timestamp::MIN },
            "LimitedByHost",
            Some(parse_time("2026-06-01T12:00:02Z")),
        ),
        (HostError::Unauthenticated, "AuthoriserRefused", None),
        (HostError::Forbidden("no".to_owned()), "TargetUnavailable", None),
        (
            HostError::Refused {
                status: 422,
                message: "no".to_owned(),
            },
            "RefusedByHost",
            None,
        ),
    ] {
        let planned = plan_answer(make_in_phase(CredentialPhase::Intent), Answer::MintFailed(trouble));
        assert_eq!(planned.ledger.next, None, "{reason}");
        assert_eq!(list_reasons(&planned, About::Failure), [reason]);
        let retry = planned.ledger.retry_at.clone().unwrap().0;
        assert!(again.is_none_or(|again| again == retry), "{reason}: {retry}");
        // Until then the plan sends no request, and the credential in use stays.
        let mut waiting = make_snapshot();
        waiting.ledger = planned.ledger;
        waiting.secret = SecretState::Absent;
        assert_eq!(plan(&waiting, now()).step, None, "{reason}");
        assert_eq!(plan(&waiting, now()).ledger.current, make_snapshot().ledger.current);
    }
}

#[test]
fn new_credential_is_probed_before_distribution() {
    let seen = make_in_phase(CredentialPhase::Staged);
    assert_eq!(plan(&seen, now()).step, Some(Step::ProbeStaged));
    let works = plan_answer(seen.clone(), Answer::Probed(Probe::Works));
    assert!(matches!(works.step, Some(Step::Spread(Some(_)))));
    for probe in [
        Probe::Refused("401".to_owned()),
        Probe::Banned(parse_time("2026-06-01T13:00:00Z")),
        Probe::Unreachable("timeout".to_owned()),
    ] {
        let planned = plan_answer(seen.clone(), Answer::Probed(probe));
        assert_eq!(planned.step, Some(Step::Record));
        assert_eq!(
            planned.ledger.next.map(|next| next.phase),
            Some(CredentialPhase::Staged)
        );
    }
    // A credential that is refused for too long is given up. A ban doesn't count as a refusal.
    let late = parse_time("2026-06-01T12:30:00Z");
    for (probe, phase) in [
        (Probe::Refused("401".to_owned()), CredentialPhase::Minted),
        (
            Probe::Banned(parse_time("2026-06-01T13:00:00Z")),
            CredentialPhase::Staged,
        ),
    ] {
        let seen = Snapshot {
            answer: Some(Answer::Probed(probe)),
            ..seen.clone()
        };
        assert_eq!(plan(&seen, late).ledger.next.map(|next| next.phase), Some(phase));
    }
}

#[test]
fn a_foreign_secret_is_never_touched() {
    for (foreign, marked) in [("theirs", false), ("theirs", true)] {
        let SecretState::Present(mut facts) = make_secret(foreign, marked) else {
            unreachable!()
        };
        facts.uid = "s-theirs".to_owned();
        for phase in [None, Some(CredentialPhase::Staged), Some(CredentialPhase::Distributed)] {
            let mut seen = phase.map_or_else(make_fresh, make_in_phase);
            seen.secret = SecretState::Present(facts.clone());
            for answer in [
                None,
                Some(Answer::Probed(Probe::Works)),
                Some(Answer::Preflight(Ok(()))),
            ] {
                let planned = plan(&Snapshot { answer, ..seen.clone() }, now());
                let is_harmless = matches!(planned.step, None | Some(Step::ProbeStaged | Step::Record));
                assert!(is_harmless, "{phase:?}: {planned:?}");
            }
            // The same holds while the credential ends.
            let ending = Snapshot {
                wanted: WantedState::Revoked("it is over".to_owned()),
                ..seen
            };
            assert!(!matches!(plan(&ending, now()).step, Some(Step::DeleteSecret(_))));
        }
        let seen = Snapshot {
            secret: SecretState::Present(facts),
            ..make_fresh()
        };
        assert_eq!(list_reasons(&plan(&seen, now()), About::Failure), ["ForeignSecret"]);
    }
}

#[test]
fn changes_of_the_secret_are_distinguished() {
    let step = |secret: SecretState| {
        plan(
            &Snapshot {
                secret,
                ..make_snapshot()
            },
            now(),
        )
        .step
    };
    // Without Tenure's mark, the Secret still has the value. After an edit of the value, it still has the mark.
    assert!(matches!(step(make_secret("two", false)), Some(Step::Mark(_))));
    assert_eq!(step(make_secret("edited", true)), Some(Step::Preflight));
    assert_eq!(step(SecretState::Absent), Some(Step::Preflight));
    assert_eq!(step(SecretState::Unknown("no answer".to_owned())), None);
    // After the first deletion another credential is made at once. The next deletions wait.
    let mut seen = make_snapshot();
    seen.secret = SecretState::Absent;
    seen.ledger.current.as_mut().unwrap().begun_at = schedule::record_time(parse_time("2026-06-01T11:55:00Z"));
    let planned = plan_answer(seen.clone(), Answer::Preflight(Ok(())));
    assert_eq!(planned.ledger.unplanned_at.unwrap().0, now());
    seen.ledger.unplanned_at = Some(schedule::record_time(parse_time("2026-06-01T11:55:00Z")));
    let planned = plan(&seen, now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T12:05:00Z"))
    );
}

#[test]
fn credential_is_verified_by_sources_and_own_probe() {
    let mut seen = make_in_phase(CredentialPhase::Distributed);
    seen.sources.push(SourceState {
        name: "GitRepository/off".to_owned(),
        is_suspended: true,
        ..seen.sources[0].clone()
    });
    let asked = plan(&seen, now());
    let Some(Step::AskSources { sources, token }) = asked.step.clone() else {
        panic!("{asked:?}");
    };
    assert_eq!(sources, ["GitRepository/apps"]);
    assert_eq!(
        list_reasons(&asked, About::Unverified),
        ["WaitingForSources", "SourceSuspended"]
    );
    seen.sources[0].asked = Some(token.clone());
    assert_eq!(plan(&seen, now()).step, None);
    seen.sources[0].last_handled = Some(token);
    seen.sources[0].refused_at = Some(now());
    assert_eq!(plan(&seen, now()).step, None);
    seen.sources[0].refused_at = None;
    assert_eq!(plan(&seen, now()).step, Some(Step::ProbeDelivered));
    let verified = plan_answer(seen, Answer::Probed(Probe::Works)).ledger;
    assert_eq!(verified.current.unwrap().verified_at.unwrap().0, now());
    // The previous credential continues for the overlap. The one before it keeps its earlier end.
    let retire: Vec<Timestamp> = verified
        .retiring
        .iter()
        .filter_map(|held| held.retire_at.as_ref().map(|at| at.0))
        .collect();
    assert_eq!(
        retire,
        [parse_time("2026-06-01T13:00:00Z"), parse_time("2026-06-01T13:00:00Z")]
    );
}

#[test]
fn outage_near_expiry_keeps_old_credential_and_is_reported() {
    let mut seen = make_snapshot();
    let mut trouble = plan_answer(
        make_in_phase(CredentialPhase::Intent),
        Answer::MintFailed(HostError::Unauthenticated),
    )
    .ledger;
    trouble.next = None;
    seen.ledger = trouble;
    let late = parse_time("2026-09-10T00:00:00Z");
    let planned = plan(&seen, late);
    assert_eq!(planned.ledger.current, make_snapshot().ledger.current);
    assert_eq!(list_reasons(&planned, About::Expiry), ["NotReplaced"]);
    let conditions = make_conditions(&[("team-a", &planned)], late);
    let reported: Vec<(&str, ConditionStatus, &str)> = conditions
        .iter()
        .map(|condition| (condition.type_.as_str(), condition.status, condition.reason.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            ("Ready", ConditionStatus::False, "AuthoriserRefused"),
            ("Verified", ConditionStatus::True, "InUse"),
            ("Expiring", ConditionStatus::True, "NotReplaced")
        ]
    );
    assert_eq!(
        list_reasons(&plan(&seen, parse_time("2026-09-15T00:00:00Z")), About::Failure),
        ["AuthoriserRefused", "Expired"]
    );
    let fine = make_conditions(&[("team-a", &plan(&make_snapshot(), now()))], now());
    assert!(
        fine.iter().all(|condition| condition.status == ConditionStatus::True) && fine.len() == 2,
        "{fine:?}"
    );
}

/// The Secret is deleted although the host refuses the authoriser.
#[test]
fn revocation_with_dead_authoriser_reports_live_credentials() {
    let mut seen = Snapshot {
        wanted: WantedState::Revoked("the grant was deleted".to_owned()),
        ..make_snapshot()
    };
    let first = plan(&seen, now());
    assert!(matches!(first.step, Some(Step::DeleteSecret(_))));
    seen.secret = SecretState::Absent;
    assert!(matches!(plan(&seen, now()).step, Some(Step::Revoke { id: 12, .. })));
    let dead = plan_answer(seen.clone(), Answer::Revoked(12, Err(HostError::Unauthenticated)));
    assert_eq!(dead.step, Some(Step::Record));
    seen.ledger = dead.ledger;
    let waiting = plan(&seen, now());
    assert_eq!((waiting.step.clone(), waiting.is_over), (None, false));
    let message = &waiting
        .findings
        .iter()
        .find(|finding| finding.about == About::LivesOn)
        .unwrap()
        .message;
    assert!(
        message.contains("group-1/a still live at the host: 12, 11"),
        "{message}"
    );
    // The deletion of the whole provider doesn't wait for the host.
    seen.wanted = WantedState::Abandoned("the provider was deleted".to_owned());
    let forgotten = plan(&seen, now());
    assert_eq!(forgotten.step, Some(Step::Record));
    assert_eq!(list_reasons(&forgotten, About::LivesOn), ["NotRevokedYet"]);
    assert_eq!(
        forgotten
            .happened
            .iter()
            .filter_map(|event| event.id)
            .collect::<Vec<_>>(),
        [12, 11]
    );
    seen.ledger = forgotten.ledger;
    let over = plan(&seen, now());
    seen.ledger = over.ledger;
    assert!(plan(&seen, now()).is_over);
}

#[test]
fn terminating_namespace_is_not_held_and_credentials_end() {
    for namespace in [NamespaceState::Terminating, NamespaceState::Gone] {
        let seen = Snapshot {
            namespace,
            secret: SecretState::Unknown("it is going".to_owned()),
            ..make_snapshot()
        };
        assert!(matches!(plan(&seen, now()).step, Some(Step::Revoke { id: 12, .. })));
    }
    let unknown = Snapshot {
        namespace: NamespaceState::Unknown,
        ..make_snapshot()
    };
    assert_eq!(plan(&unknown, now()).step, None);
}

#[test]
fn credential_expired_at_birth_is_not_replaced_at_once() {
    let mut seen = make_snapshot();
    let current = seen.ledger.current.as_mut().unwrap();
    current.begun_at = schedule::record_time(parse_time("2026-06-01T11:55:00Z"));
    current.expires_at = Some(schedule::record_time(parse_time("2026-06-01T11:55:00Z")));
    let planned = plan(&seen, now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T12:05:00Z"))
    );
}

#[test]
fn a_target_that_moved_is_followed_by_its_number() {
    let moved = plan_answer(
        make_in_phase(CredentialPhase::Intent),
        Answer::MintFailed(HostError::Moved),
    );
    assert!(matches!(moved.step, Some(Step::Find(_))));
    let found = |id: u64, path: &str| TargetDescription {
        target: Target {
            scope: Scope::Project,
            id,
            path: path.to_owned(),
        },
        http_url: None,
        ssh_url: None,
        registry_prefix: None,
    };
    let there = plan_answer(
        make_in_phase(CredentialPhase::Intent),
        Answer::Found(Ok(Some(found(42, "group-1/b")))),
    );
    assert_eq!(there.ledger.path.as_deref(), Some("group-1/b"));
    // Another project that now has the path is another target.
    for found in [None, Some(found(43, "group-1/a"))] {
        let gone = plan_answer(make_in_phase(CredentialPhase::Intent), Answer::Found(Ok(found)));
        assert_eq!(
            (gone.ledger.path.clone(), list_reasons(&gone, About::Failure)),
            (None, vec!["TargetUnavailable"])
        );
    }
}

#[test]
fn old_or_missing_manual_secret_is_reported() {
    let rotate = "90d".parse().unwrap();
    assert_eq!(
        assess_manual_secret(Some(parse_time("2026-05-01T00:00:00Z")), rotate, now()),
        None
    );
    let old = assess_manual_secret(Some(parse_time("2026-01-01T00:00:00Z")), rotate, now()).unwrap();
    assert!(old.message.contains("replace it by hand") && old.reason == "TooOld");
    assert_eq!(
        assess_manual_secret(None, rotate, now()).unwrap().reason,
        "SecretMissing"
    );
}
