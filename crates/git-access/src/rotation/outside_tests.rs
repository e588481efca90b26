//! Actions of others on a credential: at its host, on its Secret, and on its sources.

use tenure_api::access::request::{CredentialLedger, CredentialPhase};

use super::conditions::About;
use super::handover::Successor;
use super::tests::{list_reasons, make_in_phase, make_secret, make_snapshot, now, parse_time, plan_answer};
use super::*;

/// If the host refuses a source, the plan requests the list at once, and only once.
#[test]
fn refused_source_causes_list_of_host() {
    let mut seen = make_snapshot();
    seen.sources[0].refused_at = Some(parse_time("2026-06-01T11:59:58Z"));
    let list = Some(Step::List(seen.target.clone()));
    assert_eq!(plan(&seen, now()).step, list);
    let listing = |asked_at: &str| {
        Some(Listing {
            asked_at: parse_time(asked_at),
            credentials: vec![],
        })
    };
    // A list after the refusal is conclusive. A list from a moment before is repeated a minute later.
    let mut alive = listing("2026-06-01T11:59:59Z").unwrap();
    alive.credentials.push(ListedCredential {
        id: 12,
        name: "fa/c0ffee00/0badcafe/2/1780300000/b".to_owned(),
        expires_at: None,
        is_revoked: false,
        is_expired: false,
        may_write: false,
        last_used_at: None,
    });
    seen.listing = Some(alive.clone());
    let planned = plan(&seen, now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T13:00:00Z"))
    );
    alive.asked_at = parse_time("2026-06-01T11:59:57Z");
    seen.listing = Some(alive);
    let planned = plan(&seen, now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T12:00:57Z"))
    );
    // The limit of lists is reached.
    seen.listing = None;
    seen.restraint.look_from = Some(parse_time("2026-06-01T12:00:30Z"));
    let planned = plan(&seen, now());
    assert_eq!(
        (planned.step, planned.again),
        (None, parse_time("2026-06-01T12:00:30Z"))
    );
    seen.restraint.look_from = None;
    // A credential that can't be listed, or a suspended source, causes no list.
    seen.sources[0].is_suspended = true;
    assert_eq!(plan(&seen, now()).step, None);
    seen.sources[0].is_suspended = false;
    seen.capabilities.listed = false;
    assert_eq!(plan(&seen, now()).step, None);
    seen.capabilities.listed = true;
    // A failed list is retried, and changes nothing.
    let failed = Answer::Listed(Err(HostError::Unreachable("timeout".to_owned())));
    let planned = plan_answer(seen.clone(), failed);
    assert_eq!((planned.step, &planned.ledger), (None, &seen.ledger));
    assert_eq!(planned.again, parse_time("2026-06-01T12:01:00Z"));
    // The credential is gone at the host: another one is made.
    seen.listing = listing("2026-06-01T12:00:00Z");
    assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
}

/// Tenure's mark is only a label: its removal doesn't make the Secret another writer's.
#[test]
fn a_secret_without_our_mark_is_still_ours() {
    let mut seen = make_snapshot();
    seen.secret = make_secret("two", false);
    assert!(matches!(plan(&seen, now()).step, Some(Step::Mark(_))));
    // After an additional edit of the value, another credential is delivered.
    seen.secret = make_secret("somebody's", false);
    assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
    // The control: another user created this Secret after deleting Tenure's.
    let SecretState::Present(other) = &mut seen.secret else {
        panic!()
    };
    other.uid = "s-2".to_owned();
    let planned = plan(&seen, now());
    assert_eq!(planned.step, None);
    assert_eq!(list_reasons(&planned, About::Failure), ["ForeignSecret"]);
}

/// The recorded uid proves whose Secret it is, unless the request in the label really delivers there.
#[test]
fn a_secret_with_forged_mark_is_still_ours() {
    let mut seen = make_snapshot();
    seen.is_mark_valid = false;
    let change = |seen: &mut Snapshot, fingerprint: &str| {
        seen.secret = make_secret(fingerprint, false);
        let SecretState::Present(secret) = &mut seen.secret else {
            panic!()
        };
        secret.marked_for = Some("request-2".to_owned());
    };
    change(&mut seen, "two");
    assert!(matches!(plan(&seen, now()).step, Some(Step::Mark(_))));
    change(&mut seen, "somebody's");
    assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
    // The controls: the label's request delivers there, or is to take over, or the Secret is another one, or this request ends.
    let is_foreign = |change: fn(&mut Snapshot)| {
        let mut seen = seen.clone();
        change(&mut seen);
        seen.find_own(&seen.ledger).is_none()
    };
    assert!(is_foreign(|seen| seen.is_mark_valid = true));
    assert!(is_foreign(|seen| {
        seen.successor = Some(Successor {
            request_name: "request-2".to_owned(),
            is_proven: false,
        });
    }));
    assert!(is_foreign(|seen| seen.ledger.secret_uid = Some("s-9".to_owned())));
    assert!(is_foreign(
        |seen| seen.wanted = WantedState::Revoked("it is over".to_owned())
    ));
}

/// The controller died after it wrote the Secret, and before it recorded that. The value proves whose Secret it is, so the proof is recorded before it can be lost.
#[test]
fn unrecorded_secret_of_a_crash_is_recognised() {
    let mut seen = make_in_phase(CredentialPhase::Staged);
    (seen.ledger.current, seen.ledger.retiring, seen.ledger.secret_uid) = (None, Vec::new(), None);
    seen.secret = make_secret("three", false);
    let planned = plan(&seen, now());
    assert_eq!(planned.step, Some(Step::Record));
    assert_eq!(planned.ledger.secret_uid.as_deref(), Some("s-1"));
    let recorded = planned.ledger;
    // The staged value is lost, the credential is discarded, and another user edits the Secret: it is still ours.
    for (fingerprint, staging) in [("three", StagingState::Absent), ("somebody's", StagingState::Absent)] {
        let mut later = seen.clone();
        later.ledger = CredentialLedger {
            next: None,
            ..recorded.clone()
        };
        (later.secret, later.staging) = (make_secret(fingerprint, false), staging);
        let planned = plan(&later, now());
        assert_eq!(list_reasons(&planned, About::Failure), [""; 0], "{fingerprint}");
        assert_eq!(planned.step, Some(Step::Preflight), "{fingerprint}");
    }
    // The controls: another value, or another request's mark, proves nothing.
    for (fingerprint, marked_for) in [("somebody's", None), ("three", Some("request-2"))] {
        let mut other = seen.clone();
        let SecretState::Present(secret) = &mut other.secret else {
            panic!()
        };
        secret.fingerprint = Some(fingerprint.to_owned());
        secret.marked_for = marked_for.map(str::to_owned);
        let planned = plan(&other, now());
        assert_eq!(planned.ledger.secret_uid, None, "{fingerprint} {marked_for:?}");
    }
}

#[test]
fn a_leaked_credential_ends_though_a_source_never_fetches() {
    let mut seen = make_in_phase(CredentialPhase::Distributed);
    let next = seen.ledger.next.as_mut().unwrap();
    next.cause = "Leak".to_owned();
    let token = format!("{}-n3", parse_time("2026-06-01T11:59:30Z"));
    seen.sources[0].asked = Some(token);
    assert_eq!(plan(&seen, now()).step, None);
    let late = parse_time("2026-06-01T12:14:30Z");
    assert_eq!(plan(&seen, late).step, Some(Step::ProbeDelivered));
    seen.ledger.next.as_mut().unwrap().cause = "Due".to_owned();
    assert_eq!(plan(&seen, late).step, None);
    // A missing branch is no statement about the credential. Only a refusal is.
    seen.ledger.next.as_mut().unwrap().cause = "Leak".to_owned();
    seen.sources[0].last_handled = seen.sources[0].asked.clone();
    assert_eq!(plan(&seen, now()).step, Some(Step::ProbeDelivered));
}
