//! Cards for Microsoft Teams: adaptive ones, and the older ones for addresses of the connectors that took those.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::alert_event::{AlertEvent, Severity};
use tenure_remote_requests::address::Address;

/// The host of the older cards.
const CONNECTORS: &str = ".webhook.office.com";
const SUMMARY: &str = "summary";

/// Writes a card about an event.
pub(super) fn write_card(address: &Address, news: &AlertEvent, metadata: &BTreeMap<String, String>) -> Value {
    if address.host.ends_with(CONNECTORS) {
        write_old_card(news, metadata)
    } else {
        write_adaptive_card(news, metadata)
    }
}

fn write_old_card(news: &AlertEvent, metadata: &BTreeMap<String, String>) -> Value {
    let object = news.object.describe_for_chats();
    let facts: Vec<Value> = metadata
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    json!({
        "@type": "MessageCard",
        "@context": "http://schema.org/extensions",
        "themeColor": match news.severity { Severity::Info => "0076D7", Severity::Error => "FF0000" },
        "summary": object,
        "sections": [{ "activityTitle": news.message, "activitySubtitle": object, "facts": facts }],
    })
}

fn write_adaptive_card(news: &AlertEvent, metadata: &BTreeMap<String, String>) -> Value {
    let fact = |(title, value): (&String, &String)| json!({ "title": title, "value": value });
    let summary = metadata.get_key_value(SUMMARY).into_iter();
    let others = metadata.iter().filter(|(title, _)| *title != SUMMARY);
    let facts: Vec<Value> = summary.chain(others).map(fact).collect();
    let mut message = json!({ "type": "TextBlock", "wrap": true });
    let mut set = Map::new();
    set.insert("type".to_owned(), json!("FactSet"));
    // As in Flux's cards, empty parts are left out.
    if !facts.is_empty() {
        set.insert("facts".to_owned(), json!(facts));
    }
    if let Some(fields) = message.as_object_mut() {
        if !news.message.is_empty() {
            fields.insert("text".to_owned(), json!(news.message));
        }
        if news.severity == Severity::Error {
            fields.insert("color".to_owned(), json!("attention"));
        }
    }
    let head = json!({
        "type": "TextBlock", "text": news.object.describe_for_chats(), "size": "large", "weight": "bolder", "wrap": true,
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [{ "type": "Container", "items": [head, message, set] }],
                "msteams": { "width": "Full" },
            },
        }],
    })
}
