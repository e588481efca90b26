//! The device flow: the proof of a user's identity, and that the flow yields nothing else.

use git_hosts::DeviceFlow;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use tenure_forge_server::{Fault, Misbehaviour, Owner};
use tenure_remote_requests::git_host::{AccessLevel, DevicePollResult, HostError, HostKind, Membership, Target};
use tenure_sources::TlsOptions;

use crate::bed::{Bed, allow_addresses};

fn make_flow(bed: &Bed) -> DeviceFlow {
    DeviceFlow::new(
        bed.forge.url(),
        "an-application",
        TlsOptions::default(),
        allow_addresses(&[bed.forge.url()]),
    )
    .unwrap()
}

/// Runs the flow with a person who enters the code.
async fn enter_code(bed: &Bed, person: u64, is_allowed: bool, target: &Target) -> Result<DevicePollResult, HostError> {
    let (flow, now) = (make_flow(bed), Timestamp::now());
    let (code, secret) = flow.start(now).await?;
    assert!(bed.forge.enter_code(&code.user_code, person, is_allowed));
    flow.poll(&secret, target, now).await
}

#[tokio::test]
async fn device_flow_shows_membership_and_revokes_its_token() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let maintainer = bed.forge.add_person("maintainer");
    bed.forge.set_level(maintainer, Owner::Project(bed.project), 40);
    let result = enter_code(&bed, maintainer, true, &bed.target()).await.unwrap();
    let level = Some(AccessLevel::MAINTAINER);
    assert_eq!(
        result,
        DevicePollResult::Shown(Membership {
            user_id: maintainer,
            level
        })
    );
    // The level comes from the group, by inheritance or directly.
    for target in [bed.target(), bed.group_target()] {
        let result = enter_code(&bed, bed.owner, true, &target).await.unwrap();
        let level = Some(AccessLevel::OWNER);
        assert_eq!(
            result,
            DevicePollResult::Shown(Membership {
                user_id: bed.owner,
                level
            })
        );
    }
    let stranger = bed.forge.add_person("stranger");
    let result = enter_code(&bed, stranger, true, &bed.target()).await.unwrap();
    assert_eq!(
        result,
        DevicePollResult::Shown(Membership {
            user_id: stranger,
            level: None
        })
    );
    assert_eq!(bed.forge.count(&Method::POST, "/oauth/revoke"), 4);
    // The flow requests the smallest scope, and no secret is in a URL.
    let requests = bed.forge.requests();
    assert!(
        requests
            .iter()
            .filter(|request| request.target.contains("authorize_device"))
            .all(|request| request.body.ends_with("scope=read_api"))
    );
    assert!(requests.iter().all(|request| !request.target.contains('?')));
}

#[tokio::test]
async fn a_code_waits_is_denied_and_ends() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let (flow, now) = (make_flow(&bed), Timestamp::now());
    let (code, secret) = flow.start(now).await.unwrap();
    assert!(code.verification_url.starts_with(bed.forge.url()) && code.interval_seconds == 5);
    assert!(code.expires_at <= now + SignedDuration::from_mins(5));
    assert!(!format!("{secret:?}").contains(secret.value().reveal()));
    let poll = async || flow.poll(&secret, &bed.target(), now).await.unwrap();
    assert_eq!(poll().await, DevicePollResult::Pending);
    assert_eq!(poll().await, DevicePollResult::SlowDown);
    bed.forge.advance(SignedDuration::from_secs(5));
    assert_eq!(poll().await, DevicePollResult::Pending);
    bed.forge.advance(SignedDuration::from_mins(5));
    assert_eq!(poll().await, DevicePollResult::Expired);
    let denied = enter_code(&bed, bed.owner, false, &bed.target()).await.unwrap();
    assert_eq!(denied, DevicePollResult::Denied);
}

#[tokio::test]
async fn failed_device_flow_shows_nobody_and_revokes_its_token() {
    let bed = Bed::new(HostKind::Gitlab).await;
    for (path, what) in [
        ("/members/", Misbehaviour::server_error()),
        ("/members/", Misbehaviour::html()),
        ("/members/", Misbehaviour::ban()),
        ("/user", Misbehaviour::huge(10 << 20)),
        ("/user", Misbehaviour::Cut),
    ] {
        let before = bed.forge.count(&Method::POST, "/oauth/revoke");
        bed.forge.misbehave(Fault::once(Method::GET, path, what));
        enter_code(&bed, bed.owner, true, &bed.target()).await.unwrap_err();
        assert_eq!(bed.forge.count(&Method::POST, "/oauth/revoke"), before + 1, "{path}");
    }
    // The membership of another user doesn't count.
    let body = "{\"id\":1,\"access_level\":50,\"state\":\"active\"}";
    let answer = http::Response::builder().header("content-type", "application/json");
    let forged = Misbehaviour::Answer(answer.body(body.into()).unwrap());
    bed.forge.misbehave(Fault::once(Method::GET, "/members/", forged));
    assert!(enter_code(&bed, bed.owner, true, &bed.target()).await.is_err());
    bed.forge
        .misbehave(Fault::always("/oauth/token", Misbehaviour::rate_limit(30)));
    let trouble = enter_code(&bed, bed.owner, true, &bed.target()).await.unwrap_err();
    assert!(matches!(trouble, HostError::Limited { .. }), "{trouble}");
}
