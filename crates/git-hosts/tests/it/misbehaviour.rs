//! Hosts that misbehave: an order is executed at most once, unknown effects are reported as unknown, and nothing is sent again.

use git_hosts::Host as _;
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use tenure_forge_server::{Fault, Misbehaviour};
use tenure_remote_requests::git_host::{CredentialKind, HostError, HostKind, HostQuery, HostReply, Scope};

use crate::bed::{Bed, ask, connect, list, make_order, revoke};

const TOKEN: CredentialKind = CredentialKind::DeployToken;

fn is_unknown(trouble: &HostError) -> bool {
    trouble.leaves_effect_unknown()
}

#[tokio::test]
async fn order_with_lost_answer_is_not_repeated() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    for (at, (what, is_done)) in [
        (Misbehaviour::EffectThenCut, true),
        (Misbehaviour::effect_then_server_error(), true),
        (Misbehaviour::Cut, false),
        (Misbehaviour::server_error(), false),
        (Misbehaviour::html(), false),
        (Misbehaviour::huge(10 << 20), false),
    ]
    .into_iter()
    .enumerate()
    {
        let (posts, live) = (bed.forge.count(&Method::POST, "/deploy_tokens"), bed.forge.live().len());
        bed.forge.misbehave(Fault::once(Method::POST, "/deploy_tokens", what));
        let trouble = ask(&bed.host, HostQuery::Mint(request.clone())).await.unwrap_err();
        assert!(is_unknown(&trouble), "{at}: {trouble}");
        assert_eq!(bed.forge.count(&Method::POST, "/deploy_tokens"), posts + 1, "{at}");
        assert_eq!(bed.forge.live().len(), live + usize::from(is_done), "{at}");
    }
    // The caller finds the new credential by its name, and revokes it.
    for known in list(&bed.host, &bed.target(), TOKEN).await {
        assert_eq!(known.name, "fa/1");
        let fault = Fault::once(Method::DELETE, "/deploy_tokens", Misbehaviour::EffectThenCut);
        bed.forge.misbehave(fault);
        assert!(is_unknown(
            &revoke(&bed.host, &bed.target(), TOKEN, known.id).await.unwrap_err()
        ));
        assert!(revoke(&bed.host, &bed.target(), TOKEN, known.id).await.is_ok());
    }
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn malformed_answers_to_questions_are_errors() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let question = || HostQuery::List {
        target: bed.target(),
        kind: TOKEN,
    };
    let json = |body: &'static str| {
        let answer = http::Response::builder().header("content-type", "application/json");
        Misbehaviour::Answer(answer.body(body.into()).unwrap())
    };
    for (at, (what, is_unreachable)) in [
        (Misbehaviour::Cut, true),
        (Misbehaviour::server_error(), true),
        (Misbehaviour::html(), false),
        (Misbehaviour::huge(10 << 20), false),
        (json("{}"), false),
        (json("[{\"id\":\"7\"}]"), false),
        (json("[1"), false),
        (json(""), false),
        (Misbehaviour::redirect(StatusCode::FOUND, "/users/sign_in"), false),
    ]
    .into_iter()
    .enumerate()
    {
        bed.forge.misbehave(Fault::once(Method::GET, "/deploy_tokens", what));
        let trouble = ask(&bed.host, question()).await.unwrap_err();
        let expected = match &trouble {
            HostError::Unreachable(_) => is_unreachable,
            HostError::NotUnderstood(_) => !is_unreachable,
            _ => false,
        };
        assert!(expected, "{at}: {trouble}");
    }
    assert!(ask(&bed.host, question()).await.is_ok());
    let gone = connect(HostKind::Gitlab, "http://127.0.0.1:1", "x");
    assert!(matches!(ask(&gone, question()).await, Err(HostError::Unreachable(_))));
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    assert!(matches!(
        ask(&gone, HostQuery::Mint(request)).await,
        Err(HostError::Unreachable(_))
    ));
}

#[tokio::test]
async fn limits_and_bans_are_reported_as_times() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    for (what, expected) in [
        (
            Misbehaviour::rate_limit(90),
            HostError::Limited {
                until: now + SignedDuration::from_secs(90),
            },
        ),
        (
            Misbehaviour::rate_limit_without_headers(),
            HostError::Limited {
                until: now + SignedDuration::from_secs(60),
            },
        ),
        (
            Misbehaviour::ban(),
            HostError::Banned {
                until: now + SignedDuration::from_hours(1),
            },
        ),
    ] {
        for what_is_asked in [HostQuery::Mint(request.clone()), HostQuery::ReadOwnCredential] {
            bed.forge.misbehave(Fault::always("/api/v4/", what.clone()));
            let before = bed.forge.requests().len();
            assert_eq!(bed.host.ask(&what_is_asked, now).await.unwrap_err(), expected);
            assert_eq!(bed.forge.requests().len(), before + 1, "it is not tried again");
            bed.forge.behave();
        }
    }
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn rate_limit_is_converted_from_the_hosts_clock() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let theirs: Timestamp = "2030-01-01T00:10:00Z".parse().unwrap();
    bed.forge.set_time(theirs);
    bed.forge.set_rate_limit(2, SignedDuration::from_secs(60));
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    for _ in 0..2 {
        assert!(bed.host.ask(&HostQuery::ReadOwnCredential, now).await.is_ok());
    }
    let until = now + SignedDuration::from_secs(60);
    assert_eq!(
        bed.host.ask(&HostQuery::ReadOwnCredential, now).await.unwrap_err(),
        HostError::Limited { until }
    );
    bed.forge.advance(SignedDuration::from_secs(60));
    assert!(bed.host.ask(&HostQuery::ReadOwnCredential, until).await.is_ok());
}

/// The client follows no redirect of an API, and sends no credential to the target.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let other = Bed::new(HostKind::Gitlab).await;
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    let to = format!("{}/api/v4/projects/1/deploy_tokens", other.forge.url());
    for status in [301, 307, 308] {
        let status = StatusCode::from_u16(status).unwrap();
        bed.forge
            .misbehave(Fault::always("/api/v4/", Misbehaviour::redirect(status, &to)));
        assert_eq!(
            ask(&bed.host, HostQuery::Mint(request.clone())).await.unwrap_err(),
            HostError::Moved
        );
        assert_eq!(
            ask(&bed.host, HostQuery::ReadOwnCredential).await.unwrap_err(),
            HostError::Moved
        );
        bed.forge.behave();
    }
    for status in [302, 303] {
        let status = StatusCode::from_u16(status).unwrap();
        bed.forge
            .misbehave(Fault::always("/api/v4/", Misbehaviour::redirect(status, &to)));
        assert!(is_unknown(
            &ask(&bed.host, HostQuery::Mint(request.clone())).await.unwrap_err()
        ));
        bed.forge.behave();
    }
    assert!(other.forge.requests().is_empty());
}

#[tokio::test]
async fn list_with_foreign_or_endless_pages_is_refused() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let other = Bed::new(HostKind::Gitlab).await;
    let path = format!("/api/v4/projects/{}/deploy_tokens", bed.project);
    let page = |next: String| {
        let answer = http::Response::builder()
            .header("content-type", "application/json")
            .header("link", format!("<{next}>; rel=\"next\""));
        Misbehaviour::Answer(answer.body("[]".into()).unwrap())
    };
    let question = || HostQuery::List {
        target: bed.target(),
        kind: TOKEN,
    };
    for next in [
        format!("{}{path}?page=2", other.forge.url()),
        format!("{}/api/v4/user?page=2", bed.forge.url()),
    ] {
        bed.forge.misbehave(Fault::always("/deploy_tokens", page(next)));
        assert!(matches!(
            ask(&bed.host, question()).await,
            Err(HostError::NotUnderstood(_))
        ));
        bed.forge.behave();
    }
    assert!(other.forge.requests().is_empty());
    // Each page has new entries and a link to a next page.
    for number in 0..300 {
        let next = page(format!("{}{path}?page={number}", bed.forge.url()));
        bed.forge.misbehave(Fault::once(Method::GET, "/deploy_tokens", next));
    }
    let before = bed.forge.requests().len();
    assert!(matches!(
        ask(&bed.host, question()).await,
        Err(HostError::NotUnderstood(_))
    ));
    assert!(bed.forge.requests().len() - before <= 210);
}

#[tokio::test]
async fn credentials_repeated_by_a_host_appear_in_no_message() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let body = format!("{{\"message\":\"\\u202eyou sent {}\\nand more\"}}", bed.token);
    let answer = http::Response::builder()
        .status(400)
        .header("content-type", "application/json");
    let what = Misbehaviour::Answer(answer.body(body.into()).unwrap());
    bed.forge.misbehave(Fault::always("/api/v4/", what));
    let by_path = HostQuery::FindByPath {
        scope: Scope::Project,
        path: "group-1/project-a".to_owned(),
    };
    let trouble = ask(&bed.host, by_path).await.unwrap_err();
    for text in [trouble.to_string(), format!("{trouble:?}")] {
        assert!(!text.contains(&bed.token) && text.contains("not shown"), "{text}");
    }
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    bed.forge.behave();
    let answered = ask(&bed.host, HostQuery::Mint(request)).await.unwrap();
    assert!(matches!(answered.reply, HostReply::Minted(_)));
    let value = answered.value.clone().unwrap();
    assert!(!format!("{answered:?}").contains(value.reveal()));
}
