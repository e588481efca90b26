//! Reports in Ready of a Provider before the first event: a denied address, and a Secret that can't be read.

use serde_json::{Value, json};
use tenure_api::{ConditionStatus, Provider};
use tenure_planner::invariants;
use tenure_planner::provider::{
    Destination, ObservedReceiver, RequiredObjects, Secrets, Snapshot, find_reported_problem, needs_check, plan,
};
use tenure_planner::receiver::TokenFailure;

use crate::provider::{make_provider, make_secret};
use crate::receiver::{make_tenancy, start};

/// Returns the text and the reason of Ready where the policy denies the address.
fn find_denial(fields: &Value, secrets: Secrets) -> (String, String) {
    let mut provider = make_provider(fields);
    let destination = Destination::find(&provider, secrets).unwrap();
    let denial = destination.describe_denial(
        "connection to http://10.0.0.7:9 denied: 10.0.0.7 is a private address; an administrator allows it by starting the controllers with --allow-source http://10.0.0.7:9",
        "connection denied: it is a private address",
    );
    report_status(&mut provider, ObservedReceiver::DeniedAddress(denial))
}

/// Plans with a problem of the receiver, which may end by itself, and returns the text and the reason of Ready.
fn report_status(provider: &mut Provider, receiver: ObservedReceiver) -> (String, String) {
    let snapshot = Snapshot {
        provider: provider.clone(),
        placement: make_tenancy().find_placement("blue"),
        receiver,
    };
    let made = plan(&snapshot, start());
    assert_eq!(invariants::check_plan(&made), Vec::<String>::new(), "{made}");
    // The name may get another address, and the Secret may be created.
    assert!(matches!(made.next, tenure_planner::Next::Done(Some(_))));
    let status = made.status.unwrap();
    assert!(
        status.conditions.iter().all(|condition| condition.type_ == "Ready"),
        "not Stalled"
    );
    let ready = status.conditions[0].clone();
    assert_eq!(ready.status, ConditionStatus::False);
    // An Alert repeats it, until the Provider changes.
    provider.status = Some(status);
    assert_eq!(find_reported_problem(provider), Some(ready.message.as_str()));
    let mut changed = provider.clone();
    changed.metadata.generation = Some(2);
    assert_eq!(find_reported_problem(&changed), None);
    (ready.reason, ready.message)
}

#[test]
fn unreadable_secret_is_reported_before_an_event() {
    let failure = |is_known| TokenFailure {
        message: "Secret blue/s can't be read as system:serviceaccount:blue:blue-gitops: secrets \"s\" not found"
            .to_owned(),
        is_known,
    };
    let unreadable = |is_known| ObservedReceiver::UnreadableSecret(failure(is_known));
    let mut provider = make_provider(&json!({ "secretRef": { "name": "s" } }));
    let ready = |provider: &Provider, receiver| {
        let snapshot = Snapshot {
            provider: provider.clone(),
            placement: make_tenancy().find_placement("blue"),
            receiver,
        };
        plan(&snapshot, start())
            .status
            .map(|status| status.conditions[0].status)
    };
    // Without an answer, Ready reports nothing that is unknown.
    assert_eq!(ready(&provider, unreadable(false)), Some(ConditionStatus::True));
    assert!(needs_check(&provider, Some(&failure(true))) && !needs_check(&provider, Some(&failure(false))));
    assert!(!needs_check(&provider, None));
    let (reason, message) = report_status(&mut provider, unreadable(true));
    assert_eq!(reason, "AuthenticationFailed");
    assert!(message.starts_with("Secret blue/s can't be read as "), "{message}");
    assert!(
        message.ends_with(": create the Secret, or let this account get it"),
        "{message}"
    );
    // The report stays until there is another answer.
    assert_eq!(ready(&provider, unreadable(false)), None);
    assert!(needs_check(&provider, None) && !needs_check(&provider, Some(&failure(true))));
    assert_eq!(
        ready(&provider, ObservedReceiver::NoProblem),
        Some(ConditionStatus::True)
    );
}

#[test]
fn a_denied_address_is_reported_before_an_event() {
    let (reason, message) = find_denial(&json!({ "address": "http://10.0.0.7:9/a" }), Secrets::default());
    assert_eq!(reason, "AddressDenied");
    assert!(
        message.starts_with("spec.address: connection to http://10.0.0.7:9 denied"),
        "{message}"
    );
    assert!(message.ends_with("--allow-source http://10.0.0.7:9"), "{message}");
    // An address from a Secret, or behind a proxy from one, is not shown.
    let of_secret = |entries: &[(&str, &str)]| Secrets {
        secret: Some(make_secret(entries)),
        ..Secrets::default()
    };
    let with_secret = json!({ "secretRef": { "name": "s" } });
    for (entries, part) in [
        (
            [("address", "http://10.0.0.7:9/a")],
            "the address in Secret blue/s: connection denied",
        ),
        (
            [("proxy", "http://10.0.0.7:9")],
            "spec.address, or the proxy in Secret blue/s: connection denied",
        ),
    ] {
        let (_, message) = find_denial(&with_secret, of_secret(&entries));
        assert!(message.starts_with(part) && !message.contains("10.0.0.7"), "{message}");
    }
    // The API of GitHub has another host than its repositories.
    let github = make_provider(&json!({ "type": "github", "address": "https://github.com/a/b" }));
    let found = Destination::find(&github, of_secret(&[("token", "t")])).unwrap();
    assert_eq!(found.address.host, "api.github.com");
}

#[test]
fn unused_provider_needs_no_check_of_its_address() {
    let of = |fields: &Value| RequiredObjects::of_check(&make_provider(fields), &make_tenancy().find_placement("blue"));
    let needed = of(&json!({ "secretRef": { "name": "s" } })).unwrap();
    assert_eq!(
        (needed.account.to_string().as_str(), needed.secret.as_deref()),
        ("system:serviceaccount:blue:blue-gitops", Some("s"))
    );
    assert_eq!(of(&json!({ "suspend": true })), None);
    assert_eq!(of(&json!({ "type": "pigeon" })), None);
    let mut leaving = make_provider(&json!({}));
    leaving.metadata.deletion_timestamp = Some(tenure_api::Time(start()));
    assert_eq!(
        RequiredObjects::of_check(&leaving, &make_tenancy().find_placement("blue")),
        None
    );
}
