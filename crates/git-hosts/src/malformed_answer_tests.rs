//! Tests with random answers: no answer causes a panic, and no secret of a request is printed.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use proptest::prelude::*;
use tenure_remote_requests::git_host::{CredentialKind, HostQuery, MintRequest, Role, Scope, Target};
use tenure_sources::SecretBytes;
use zeroize::Zeroizing;

use crate::api::{Api, ApiStep, Progress, find_next_step};
use crate::call::Reply;
use crate::gitea::Gitea;
use crate::github::Github;
use crate::gitlab::Gitlab;

const SECRET: &str = "glpat-Qx7ZkP2mW9vT4nR8";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000000";

fn list_queries() -> Vec<HostQuery> {
    let target = Target {
        scope: Scope::Project,
        id: 7,
        path: "a/b".to_owned(),
    };
    let group = Target {
        scope: Scope::Group,
        ..target.clone()
    };
    let mut asks = vec![HostQuery::ReadOwnCredential];
    for scope in [Scope::Project, Scope::Group] {
        let path = "a/b".to_owned();
        asks.push(HostQuery::FindByPath { scope, path });
        asks.push(HostQuery::FindById { scope, id: 7 });
    }
    for role in [Role::ReadRepository, Role::ReadRegistry] {
        asks.push(HostQuery::FindMember {
            group: group.clone(),
            role,
        });
    }
    for kind in [
        CredentialKind::DeployToken,
        CredentialKind::DeployKey,
        CredentialKind::InstallationToken,
    ] {
        for target in [&target, &group] {
            let target = target.clone();
            asks.push(HostQuery::List {
                target: target.clone(),
                kind,
            });
            asks.push(HostQuery::Revoke {
                target: target.clone(),
                kind,
                id: 9,
            });
            asks.push(HostQuery::Mint(MintRequest {
                target,
                kind,
                role: Role::ReadRepository,
                name: "fa/1".to_owned(),
                username: None,
                expires_at: None,
                public_key: Some(KEY.to_owned()),
            }));
        }
    }
    let title = "title".to_owned();
    asks.push(HostQuery::FindIssue {
        target: target.clone(),
        title: title.clone(),
        body: String::new(),
    });
    asks.push(HostQuery::OpenIssue {
        target: target.clone(),
        title,
        body: String::new(),
    });
    asks.push(HostQuery::CloseIssue { target, number: 3 });
    asks
}

/// Generates values that resemble an answer.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("7".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        Just("1e999".to_owned()),
        Just(format!("\"{KEY} x\"")),
        Just(format!("\"you sent {SECRET}\"")),
        Just("\"a/b\"".to_owned()),
        Just("\"https://git.example/x\"".to_owned()),
        Just("\"2030-01-02T03:04:05.000Z\"".to_owned()),
        Just("\"2030-99-99\"".to_owned()),
        Just("\"\\u202e\\u0000\"".to_owned()),
        Just("[\"read_repository\"]".to_owned()),
    ];
    let names = [
        "id",
        "name",
        "path_with_namespace",
        "full_path",
        "full_name",
        "login",
        "username",
        "expires_at",
        "revoked",
        "expired",
        "scopes",
        "token",
        "title",
        "key",
        "can_push",
        "read_only",
        "last_used_at",
        "last_used",
        "active",
        "iid",
        "web_url",
        "confidential",
        "message",
        "error",
        "clone_url",
        "http_url_to_repo",
    ];
    let field = (proptest::sample::select(names.to_vec()), leaf);
    let object = proptest::collection::vec(field, 0..26).prop_map(|fields| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        format!("{{{}}}", fields.join(","))
    });
    (proptest::collection::vec(object, 0..3), any::<bool>()).prop_map(|(objects, is_list)| match is_list {
        true => format!("[{}]", objects.join(",")),
        false => objects.into_iter().next().unwrap_or_default(),
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => ".{0,100}".prop_map(|text| format!("{text}{SECRET}").into_bytes()),
        1 => proptest::sample::select(vec!["message", "error", "errors", "error_description"])
            .prop_map(|name| format!("{{\"{name}\":[{{\"field\":\"\\u0067{}\"}}]}}", &SECRET[1..]).into_bytes()),
        4 => value().prop_map(String::into_bytes),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let names = [
        "content-type",
        "date",
        "retry-after",
        "ratelimit-reset",
        "x-ratelimit-reset",
        "x-ratelimit-remaining",
        "link",
        "location",
    ];
    let value = prop_oneof![
        Just(b"application/json".to_vec()),
        Just(b"0".to_vec()),
        Just(b"9223372036854775807".to_vec()),
        Just(b"<https://git.example/api/v4/x?page=2>; rel=\"next\"".to_vec()),
        Just(b"Wed, 21 Oct 2015 07:28:00 GMT".to_vec()),
        Just(SECRET.as_bytes().to_vec()),
        proptest::collection::vec(32_u8..127, 0..40),
        proptest::collection::vec(128_u8..255, 0..10),
    ];
    let header = (proptest::sample::select(names.to_vec()), value);
    (proptest::collection::vec(header, 0..6), any::<bool>()).prop_map(|(headers, is_json)| {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                map.append(HeaderName::from_static(name), value);
            }
        }
        if is_json {
            map.insert("content-type", HeaderValue::from_static("application/json"));
        }
        map
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_panics_or_has_what_was_shown_printed(
        status in prop_oneof![4 => Just(200_u16), 1 => Just(201), 1 => Just(404), 2 => proptest::sample::select(vec![400, 403, 409, 422]), 2 => 100_u16..600],
        headers in headers(),
        body in body(),
        calls in 1_usize..4,
    ) {
        let secret = SecretBytes::new(SECRET);
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let apis: [&dyn Api; 4] =
            [&Gitlab, &Gitea, &Github { installation: None }, &Github { installation: Some(3) }];
        for api in apis {
            for query in list_queries() {
                let Ok(call) = api.first_call(&query) else { continue };
                prop_assert!(!call.below.contains(SECRET));
                let mut progress = Progress { call, calls, listed: Vec::new() };
                let reply = Reply {
                    status: StatusCode::from_u16(status).unwrap(),
                    headers: headers.clone(),
                    body: Zeroizing::new(body.clone()),
                };
                let result = find_next_step(api, &query, &mut progress, &reply, (now, &[&secret]));
                if let Err(trouble) = &result {
                    let printed = format!("{trouble} {trouble:?}");
                    prop_assert!(!printed.contains(SECRET), "{}", printed);
                    prop_assert!(printed.len() < 4096);
                    // After an order, an unreadable answer must leave open whether the host executed the order.
                    let is_open = progress.call.is_order() && (status / 100 == 2 || status / 100 == 5);
                    let is_reported = trouble.leaves_effect_unknown()
                        || matches!(trouble, tenure_remote_requests::git_host::HostError::Refused { status: 201, .. });
                    prop_assert!(!is_open || is_reported, "{} {}", status, printed);
                }
                if let Ok(ApiStep::Next(next)) = &result {
                    prop_assert!(next.below.starts_with('/') && !next.below.contains("://"));
                }
            }
        }
    }
}
