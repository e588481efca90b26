//! What others do to a credential: at its host, to its Secret, and to its sources.

use tenure_api::access::request::CredentialPhase;

use super::conditions::About;
use super::tests::{answered, at, moving, now, reasons, secret, snapshot};
use super::*;

/// A source that the host refuses says that something happened there: the list is asked for at once, and once.
#[test]
fn a_refused_source_has_the_host_looked_at() {
    let mut seen = snapshot();
    seen.sources[0].refused_at = Some(at("2026-06-01T11:59:58Z"));
    let list = Some(Step::List(seen.target.clone()));
    assert_eq!(plan(&seen, now()).step, list);
    let listing = |asked_at: &str| {
        Some(Listing {
            asked_at: at(asked_at),
            credentials: vec![],
        })
    };
    // What was listed after the refusal is known; what was listed a moment before is asked for a minute later.
    let mut alive = listing("2026-06-01T11:59:59Z").unwrap();
    alive.credentials.push(Listed {
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
    assert_eq!((planned.step, planned.again), (None, at("2026-06-01T13:00:00Z")));
    alive.asked_at = at("2026-06-01T11:59:57Z");
    seen.listing = Some(alive);
    let planned = plan(&seen, now());
    assert_eq!((planned.step, planned.again), (None, at("2026-06-01T12:00:57Z")));
    // The host has had enough looks.
    seen.listing = None;
    seen.restraint.look_from = Some(at("2026-06-01T12:00:30Z"));
    let planned = plan(&seen, now());
    assert_eq!((planned.step, planned.again), (None, at("2026-06-01T12:00:30Z")));
    seen.restraint.look_from = None;
    // What can't be listed, or is suspended, is no reason.
    seen.sources[0].is_suspended = true;
    assert_eq!(plan(&seen, now()).step, None);
    seen.sources[0].is_suspended = false;
    seen.capabilities.listed = false;
    assert_eq!(plan(&seen, now()).step, None);
    seen.capabilities.listed = true;
    // A list that fails is asked for again, and changes nothing.
    let failed = Answer::Listed(Err(Trouble::Unreachable("timeout".to_owned())));
    let planned = answered(seen.clone(), failed);
    assert_eq!((planned.step, &planned.ledger), (None, &seen.ledger));
    assert_eq!(planned.again, at("2026-06-01T12:01:00Z"));
    // It is gone at the host: another one is made.
    seen.listing = listing("2026-06-01T12:00:00Z");
    assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
}

/// Our mark is only a label: whoever takes it off doesn't make the Secret somebody else's.
#[test]
fn a_secret_without_our_mark_is_still_ours() {
    let mut seen = snapshot();
    seen.secret = secret("two", false);
    assert!(matches!(plan(&seen, now()).step, Some(Step::Mark(_))));
    // Edited besides: another one is delivered.
    seen.secret = secret("somebody's", false);
    assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
    // The control: one that somebody made after deleting ours.
    let SecretSeen::Present(other) = &mut seen.secret else {
        panic!()
    };
    other.uid = "s-2".to_owned();
    let planned = plan(&seen, now());
    assert_eq!(planned.step, None);
    assert_eq!(reasons(&planned, About::Failure), ["ForeignSecret"]);
}

#[test]
fn a_leaked_credential_ends_though_a_source_never_fetches() {
    let mut seen = moving(CredentialPhase::Distributed);
    let next = seen.ledger.next.as_mut().unwrap();
    next.cause = "Leak".to_owned();
    let token = format!("{}-n3", at("2026-06-01T11:59:30Z"));
    seen.sources[0].asked = Some(token);
    assert_eq!(plan(&seen, now()).step, None);
    let late = at("2026-06-01T12:14:30Z");
    assert_eq!(plan(&seen, late).step, Some(Step::ProbeDelivered));
    seen.ledger.next.as_mut().unwrap().cause = "Due".to_owned();
    assert_eq!(plan(&seen, late).step, None);
    // A branch that isn't there says nothing of the credential, only a refusal does.
    seen.ledger.next.as_mut().unwrap().cause = "Leak".to_owned();
    seen.sources[0].last_handled = seen.sources[0].asked.clone();
    assert_eq!(plan(&seen, now()).step, Some(Step::ProbeDelivered));
}
