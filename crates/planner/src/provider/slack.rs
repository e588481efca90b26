//! Messages for Slack, and for Discord, which accepts them, too: one attachment, whose fields are the metadata of an event. The module also reads the answers of
//! Slack's own API.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_api::ProviderSpec;

use tenure_remote_requests::notification::Answer;

use super::verdict::Verdict;
use crate::alert_event::{AlertEvent, Severity};

/// Slack's API, which answers 200 also to failed requests.
pub(super) const POST_MESSAGE: &str = "https://slack.com/api/chat.postMessage";

/// The error words of Slack. No other word of an answer is repeated, since another server could answer anything.
const COMPLAINTS: [&str; 18] = [
    "access_denied",
    "account_inactive",
    "channel_not_found",
    "ekm_access_denied",
    "invalid_auth",
    "invalid_blocks",
    "is_archived",
    "missing_scope",
    "msg_too_long",
    "no_permission",
    "no_text",
    "not_authed",
    "not_in_channel",
    "org_login_required",
    "restricted_action",
    "token_expired",
    "token_revoked",
    "too_many_attachments",
];

/// Writes a message about an event. Slack shows only its first line where space is short; Discord has no such place.
pub(super) fn write_message(
    spec: &ProviderSpec,
    username: Option<&str>,
    news: &AlertEvent,
    metadata: &BTreeMap<String, String>,
    has_fallback: bool,
) -> Value {
    let author = news.object.describe_for_chats();
    let color = match news.severity {
        Severity::Info => "good",
        Severity::Error => "danger",
    };
    let fallback = if has_fallback {
        format!("{author}: {}", news.message.split('\n').next().unwrap_or_default())
    } else {
        String::new()
    };
    let fields: Vec<Value> = metadata
        .iter()
        .map(|(title, value)| json!({ "title": title, "value": value, "short": false }))
        .collect();
    // Discord gets no channel, as in Flux, because a Discord webhook belongs to a channel.
    let channel = spec.channel.as_deref().filter(|_| has_fallback).unwrap_or_default();
    json!({
        "channel": channel,
        "username": username.unwrap_or(&news.reporter),
        "icon_url": "",
        "icon_emoji": "",
        "attachments": [{
            "fallback": fallback, "color": color, "author_name": author, "text": news.message, "mrkdwn_in": ["text"], "fields": fields,
        }],
    })
}

/// The used fields of an answer of Slack's API.
#[derive(Deserialize)]
struct ApiAnswer {
    ok: bool,
    #[serde(default)]
    error: String,
}

/// Judges an answer of Slack's API.
pub(super) fn interpret_answer(answer: &Answer) -> Verdict {
    let Ok(reply) = serde_json::from_slice::<ApiAnswer>(&answer.body) else {
        return Verdict::Failed("its answer is not one of Slack's API".to_owned());
    };
    if reply.ok {
        return Verdict::Done;
    }
    if ["ratelimited", "rate_limited"].contains(&reply.error.as_str()) {
        return Verdict::Again {
            after: answer.retry_after,
            why: "Slack responded with error: ratelimited".to_owned(),
        };
    }
    match COMPLAINTS.iter().find(|known| **known == reply.error) {
        Some(known) => Verdict::Failed(format!("Slack responded with error: {known}")),
        None => Verdict::Failed("Slack responded with an error".to_owned()),
    }
}
