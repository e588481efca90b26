//! GitLab's device flow (`doc/api/oauth2.md`): a device without a browser shows a code, and a user enters the code in a browser.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::asked::{Answer, ApiRequest, answer_json, ok};
use crate::world::{World, hash_value, make_value};

/// The lifetime of a code, and the least number of seconds between two polls for it.
const LIFE: SignedDuration = SignedDuration::from_mins(5);
const INTERVAL: i64 = 5;

/// An issued code of the device flow, with the user's decision.
pub(crate) struct DeviceCode {
    device_code: String,
    pub(crate) user_code: String,
    scope: String,
    expires_at: Timestamp,
    asked_at: Option<Timestamp>,
    pub(crate) decision: Option<Decision>,
}

/// The decision of a user who has entered a code in the web pages.
#[derive(Clone, Copy)]
pub(crate) enum Decision {
    Allowed(u64),
    Denied,
}

pub(crate) fn answer(world: &mut World, request: &ApiRequest) -> Answer {
    match request.parts().get(1..) {
        Some(["authorize_device"]) => start_device_flow(world, request),
        Some(["token"]) => poll_token(world, request),
        Some(["revoke"]) => {
            let shown = hash_value(request.field_text("token"));
            for known in &mut world.authorisers {
                known.is_revoked |= known.sha256 == shown;
            }
            ok(&json!({}))
        }
        _ => refuse("invalid_request", "The request is malformed."),
    }
}

fn start_device_flow(world: &mut World, request: &ApiRequest) -> Answer {
    if request.field_text("client_id").is_empty() {
        return refuse("invalid_client", "Client authentication failed due to unknown client.");
    }
    let letters = make_value("").to_uppercase();
    let user_code = letters.chars().filter(char::is_ascii_alphanumeric).take(8);
    let device = DeviceCode {
        device_code: make_value(""),
        user_code: user_code.collect(),
        scope: request.field_text("scope").to_owned(),
        expires_at: world.clock.now().saturating_add(LIFE).unwrap_or(Timestamp::MAX),
        asked_at: None,
        decision: None,
    };
    let at = format!("{}/oauth/device", request.base);
    let answer = ok(
        &json!({ "device_code": device.device_code, "user_code": device.user_code, "verification_uri": at,
        "verification_uri_complete": format!("{at}?user_code={}", device.user_code),
        "expires_in": LIFE.as_secs(), "interval": INTERVAL }),
    );
    world.devices.push(device);
    answer
}

fn poll_token(world: &mut World, request: &ApiRequest) -> Answer {
    if request.field_text("grant_type") != "urn:ietf:params:oauth:grant-type:device_code" {
        return refuse(
            "unsupported_grant_type",
            "The authorization grant type is not supported.",
        );
    }
    let now = world.clock.now();
    let code = request.field_text("device_code");
    let Some(at) = world.devices.iter().position(|device| device.device_code == code) else {
        return refuse("invalid_grant", "The provided authorization grant is invalid.");
    };
    let Some(device) = world.devices.get_mut(at) else {
        return refuse("invalid_grant", "The provided authorization grant is invalid.");
    };
    if device.expires_at <= now {
        return refuse("expired_token", "The device code has expired.");
    }
    let last = device.asked_at.replace(now);
    match device.decision {
        None if last.is_some_and(|last| now.duration_since(last).as_secs() < INTERVAL) => {
            refuse("slow_down", "The client is polling too often.")
        }
        None => refuse("authorization_pending", "The authorization is pending."),
        Some(Decision::Denied) => refuse("access_denied", "The resource owner denied the request."),
        Some(Decision::Allowed(person)) => {
            let scope = world.devices.remove(at).scope;
            let end = now
                .saturating_add(SignedDuration::from_hours(2))
                .unwrap_or(Timestamp::MAX);
            let scopes: Vec<&str> = scope.split_whitespace().collect();
            let token = world.authorise(person, &scopes, "", Some(end));
            ok(
                &json!({ "access_token": token, "token_type": "Bearer", "expires_in": 7200, "scope": scope,
                "refresh_token": make_value(""), "created_at": now.as_second() }),
            )
        }
    }
}

fn refuse(error: &str, description: &str) -> Answer {
    let body = json!({ "error": error, "error_description": description });
    answer_json(StatusCode::BAD_REQUEST, &body)
}
