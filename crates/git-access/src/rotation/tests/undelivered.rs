//! Credentials that can't be delivered, or whose Secret is taken away.

use super::*;

#[test]
fn held_back_credential_is_neither_made_nor_distributed() {
    let held = |seen: Snapshot| Snapshot {
        wanted: WantedState::HeldBack("mallory reads it (RoleBinding edit)".to_owned()),
        ..seen
    };
    for seen in [make_fresh(), make_in_phase(CredentialPhase::Staged)] {
        let planned = plan(&held(seen), now());
        assert_eq!(planned.step, None);
        assert_eq!(list_reasons(&planned, About::Failure), ["HeldBack"]);
    }
    // A delivered credential stays, and a retiring one is revoked at its time.
    let planned = plan(&held(make_snapshot()), parse_time("2026-06-01T13:00:00Z"));
    assert!(matches!(planned.step, Some(Step::Revoke { id: 11, .. })));
}

#[test]
fn retiring_credentials_are_bounded_when_secret_is_deleted() {
    for (host_ends, most) in [(false, 4), (true, 32)] {
        let with = |count: u64| {
            let mut seen = make_snapshot();
            seen.capabilities.expiry = host_ends;
            let held = seen.ledger.retiring[0].clone();
            seen.ledger.retiring = (0..count)
                .map(|number| tenure_api::access::request::HeldCredential {
                    id: Some(20 + number),
                    retire_at: None,
                    ..held.clone()
                })
                .collect();
            seen.secret = SecretState::Absent;
            plan(&seen, now())
        };
        assert_eq!(with(most - 1).step, Some(Step::Preflight));
        let planned = with(most);
        assert_eq!(planned.step, None);
        assert_eq!(list_reasons(&planned, About::Failure), ["NotVerified"]);
    }
}
