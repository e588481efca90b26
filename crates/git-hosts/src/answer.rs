//! The meaning of an answer before its content is read: success, missing, or a [`HostError`].
//!
//! The rules come from the hosts' documents: GitLab's `doc/security/rate_limits.md` and `doc/api/rest/troubleshooting.md`, GitHub's "Rate limits for the REST API". A
//! limit becomes a waiting time, and the caller waits. Texts of a host are untrusted. They are cut to one short line, and dropped if they repeat a part of a secret
//! that was sent.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenure_remote_requests::git_host::HostError;
use tenure_sources::{HostFailure, SecretBytes};

use crate::call::{Reply, read_http_date};

/// The waiting time if a host wants fewer requests and names no time.
const LIMITED: SignedDuration = SignedDuration::from_mins(1);
/// The time for which GitLab blocks an address after too many failed logins.
const BANNED: SignedDuration = SignedDuration::from_hours(1);
/// The longest time that a host can make a caller wait.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// The largest number of characters of a host's text in a message.
const SHOWN: usize = 200;
/// A text that repeats this many characters of a secret in a row is dropped.
const TELLTALE: usize = 8;

/// The outcome of a request without an error: success, or a missing object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// 404, with the host's message.
    Missing(String),
}

/// Checks the status and the headers of an answer. Returns a [`HostError`] for everything except a success and a 404 of the API itself.
pub(crate) fn check_answer(
    reply: &Reply,
    is_order: bool,
    now: Timestamp,
    secrets: &[&SecretBytes],
) -> Result<Outcome, HostError> {
    let status = reply.status;
    let code = status.as_u16();
    let is_json = reply.header("content-type").is_some_and(|kind| kind.contains("json"));
    let message = || read_message(reply, is_json, secrets);
    match status {
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => Ok(Outcome::Success),
        // HTML pages, above all a login page, also come with a status of success.
        status if status.is_success() => match is_json {
            true => Ok(Outcome::Success),
            false => Err(not_understood(
                is_order,
                "its answer is not JSON: a proxy or a login page answers in its place",
            )),
        },
        StatusCode::NOT_FOUND if is_json => Ok(Outcome::Missing(message())),
        StatusCode::NOT_FOUND => {
            let message = "HTTP 404 with an answer that is not this API's: check the URL of the host".to_owned();
            Err(match is_order {
                true => HostError::Refused { status: code, message },
                false => HostError::NotUnderstood(message),
            })
        }
        StatusCode::UNAUTHORIZED => Err(HostError::Unauthenticated),
        StatusCode::TOO_MANY_REQUESTS => Err(HostError::Limited {
            until: read_limit(reply, now).unwrap_or_else(|| add_wait(now, LIMITED)),
        }),
        StatusCode::FORBIDDEN => {
            let is_used_up =
                reply.header("x-ratelimit-remaining") == Some("0") || reply.header("retry-after").is_some();
            if is_used_up && is_json {
                // GitHub reports too many requests this way.
                return Err(HostError::Limited {
                    until: read_limit(reply, now).unwrap_or_else(|| add_wait(now, LIMITED)),
                });
            }
            if is_json {
                return Err(HostError::Forbidden(message()));
            }
            Err(HostError::Banned {
                until: read_limit(reply, now).unwrap_or_else(|| add_wait(now, BANNED)),
            })
        }
        StatusCode::MOVED_PERMANENTLY | StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
            Err(HostError::Moved)
        }
        // Some redirects change the method, so the host may have executed the order.
        status if status.is_redirection() => Err(not_understood(
            is_order,
            &format!("HTTP {code} leads elsewhere, as to a login page; it is not followed"),
        )),
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            let why = format!("HTTP {code}");
            Err(if is_order {
                HostError::Unknown(why)
            } else {
                HostError::Unreachable(why)
            })
        }
        status if status.is_client_error() => Err(HostError::Refused {
            status: code,
            message: message(),
        }),
        _ => Err(not_understood(is_order, &format!("HTTP {code}"))),
    }
}

/// Converts a failure without an answer into a [`HostError`]. After an order that the host may have received, the effect is unknown.
pub(crate) fn explain_failure(failure: HostFailure, is_order: bool) -> HostError {
    match failure {
        HostFailure::NotSent(why) => HostError::Unreachable(why),
        HostFailure::Broken(why) if is_order => HostError::Unknown(why),
        HostFailure::Broken(why) => HostError::Unreachable(why),
        HostFailure::Unreadable(why) => not_understood(is_order, why),
    }
}

/// Describes an answer that can't be read. After an order, the effect is unknown.
pub(crate) fn not_understood(is_order: bool, why: &str) -> HostError {
    if is_order {
        HostError::Unknown(format!("its answer can't be read: {why}"))
    } else {
        HostError::NotUnderstood(why.to_owned())
    }
}

/// Returns the time until which the host takes no requests, by the caller's clock, because a host's clock can be wrong.
fn read_limit(reply: &Reply, now: Timestamp) -> Option<Timestamp> {
    let seconds = |text: &str| text.trim().parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    let theirs = reply.date().unwrap_or(now);
    let wait = match reply.header("retry-after") {
        Some(text) => match seconds(text) {
            Some(seconds) => SignedDuration::from_secs(seconds),
            None => read_http_date(text)?.duration_since(theirs),
        },
        None => {
            let reset = reply
                .header("ratelimit-reset")
                .or_else(|| reply.header("x-ratelimit-reset"));
            let end = Timestamp::from_second(reset.and_then(seconds)?).ok()?;
            end.duration_since(theirs)
        }
    };
    Some(add_wait(now, wait.clamp(SignedDuration::from_secs(1), LONGEST)))
}

/// Returns the time after a wait, or the latest possible time on overflow.
pub(crate) fn add_wait(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Reads a host's message: `message` or `error`, which GitLab and GitHub write as a text, as lists by field, or with details beside it.
fn read_message(reply: &Reply, is_json: bool, secrets: &[&SecretBytes]) -> String {
    let value: Value = match is_json {
        true => reply.read().unwrap_or_default(),
        false => Value::Null,
    };
    let mut words = Vec::new();
    for name in ["message", "error", "error_description", "errors"] {
        match value.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => words.push(text.clone()),
            Some(other) => words.push(other.to_string()),
        }
    }
    make_harmless(&words.join(": "), secrets)
}

/// Makes a host's text safe for a message: one short line, without a secret that was sent.
pub(crate) fn make_harmless(text: &str, secrets: &[&SecretBytes]) -> String {
    let is_repeated = |secret: &&SecretBytes| {
        let secret = secret.reveal().as_bytes();
        let mut pieces = secret.windows(TELLTALE.min(secret.len()).max(1));
        pieces.any(|piece| text.as_bytes().windows(piece.len()).any(|window| window == piece))
    };
    if secrets.iter().any(is_repeated) {
        return "(not shown: it repeats what was sent)".to_owned();
    }
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = line.filter(|c| !is_invisible(*c)).take(SHOWN + 1).collect();
    if line.chars().count() > SHOWN {
        line.pop();
        line.push('…');
    }
    line.trim().to_owned()
}

/// Checks for characters that reverse a line or are invisible.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use zeroize::Zeroizing;

    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &str)], body: &str) -> Reply {
        let headers = headers.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        });
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::from_iter(headers),
            body: Zeroizing::new(body.as_bytes().to_vec()),
        }
    }

    fn parse_time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const JSON: (&str, &str) = ("content-type", "application/json");
    const TEXT: (&str, &str) = ("content-type", "text/plain");

    #[test]
    fn limits_are_converted_to_the_callers_clock() {
        let now = parse_time("2030-01-01T12:00:00Z");
        // The host's clock is ten minutes ahead of the caller's clock.
        let date = ("date", "Tue, 01 Jan 2030 12:10:00 GMT");
        for (status, headers, expected) in [
            (429, vec![TEXT], "2030-01-01T12:01:00Z"),
            (429, vec![TEXT, ("retry-after", "30"), date], "2030-01-01T12:00:30Z"),
            (
                429,
                vec![TEXT, ("retry-after", "Tue, 01 Jan 2030 12:12:00 GMT"), date],
                "2030-01-01T12:02:00Z",
            ),
            (
                429,
                vec![TEXT, ("ratelimit-reset", "1893500100"), date],
                "2030-01-01T12:05:00Z",
            ),
            (429, vec![JSON, ("retry-after", "999999999999")], "2030-01-02T12:00:00Z"),
            (429, vec![JSON, ("retry-after", "-5")], "2030-01-01T12:01:00Z"),
            (429, vec![JSON, ("retry-after", "soon")], "2030-01-01T12:01:00Z"),
            (429, vec![JSON, ("retry-after", "0")], "2030-01-01T12:00:01Z"),
            (
                403,
                vec![
                    JSON,
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1893500100"),
                    date,
                ],
                "2030-01-01T12:05:00Z",
            ),
            (403, vec![JSON, ("retry-after", "60")], "2030-01-01T12:01:00Z"),
        ] {
            let trouble = check_answer(&reply(status, &headers, "Retry later"), true, now, &[]);
            assert_eq!(
                trouble,
                Err(HostError::Limited {
                    until: parse_time(expected)
                }),
                "{status} {headers:?}"
            );
        }
        let banned = check_answer(&reply(403, &[TEXT], "Forbidden"), false, now, &[]);
        let until = parse_time("2030-01-01T13:00:00Z");
        assert_eq!(banned, Err(HostError::Banned { until }));
    }

    #[test]
    fn an_order_without_an_answer_may_have_been_done() {
        let now = parse_time("2030-01-01T12:00:00Z");
        let judge =
            |status, kind, is_order| check_answer(&reply(status, &[kind], "{\"message\":\"no\"}"), is_order, now, &[]);
        for status in [500, 502, 503, 408] {
            assert!(
                matches!(judge(status, JSON, true), Err(HostError::Unknown(_))),
                "{status}"
            );
            assert!(
                matches!(judge(status, JSON, false), Err(HostError::Unreachable(_))),
                "{status}"
            );
        }
        for (status, kind) in [(200, TEXT), (201, TEXT), (302, TEXT), (303, JSON)] {
            assert!(
                matches!(judge(status, kind, true), Err(HostError::Unknown(_))),
                "{status}"
            );
            assert!(
                matches!(judge(status, kind, false), Err(HostError::NotUnderstood(_))),
                "{status}"
            );
        }
        for status in [301, 307, 308] {
            assert_eq!(judge(status, JSON, true), Err(HostError::Moved));
        }
        for (status, trouble) in [
            (
                400,
                HostError::Refused {
                    status: 400,
                    message: "no".to_owned(),
                },
            ),
            (401, HostError::Unauthenticated),
            (403, HostError::Forbidden("no".to_owned())),
            (
                422,
                HostError::Refused {
                    status: 422,
                    message: "no".to_owned(),
                },
            ),
        ] {
            assert_eq!(judge(status, JSON, true), Err(trouble));
        }
        assert_eq!(judge(404, JSON, true), Ok(Outcome::Missing("no".to_owned())));
        assert!(matches!(
            judge(404, TEXT, true),
            Err(HostError::Refused { status: 404, .. })
        ));
        assert!(matches!(judge(404, TEXT, false), Err(HostError::NotUnderstood(_))));
        let failed = |failure: HostFailure, is_order| explain_failure(failure, is_order).leaves_effect_unknown();
        assert!(failed(HostFailure::Broken(String::new()), true));
        assert!(failed(HostFailure::Unreadable(""), true));
        assert!(!failed(HostFailure::NotSent(String::new()), true));
        assert!(!failed(HostFailure::Broken(String::new()), false));
    }

    #[test]
    fn messages_of_a_host_are_shortened_and_hide_secrets() {
        let secret = SecretBytes::new("glpat-0123456789abcdef");
        let harmless = |text: &str| make_harmless(text, &[&secret]);
        assert_eq!(harmless("a\nb\u{202e}c"), "a bc");
        assert_eq!(harmless(&"é".repeat(500)).chars().count(), SHOWN + 1);
        assert!(harmless("you sent glpat-0123456789abcdef").contains("not shown"));
        assert!(harmless("you sent 3456789a, in part").contains("not shown"));
        for (body, expected) in [
            (
                "{\"message\":{\"name\":[\"is too long\"]}}",
                "{\"name\":[\"is too long\"]}",
            ),
            (
                "{\"error\":\"insufficient_scope\",\"error_description\":\"more\"}",
                "insufficient_scope: more",
            ),
            ("[1]", ""),
            ("{", ""),
        ] {
            assert_eq!(read_message(&reply(400, &[JSON], body), true, &[]), expected);
        }
    }
}
