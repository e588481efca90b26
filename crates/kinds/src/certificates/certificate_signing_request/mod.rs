//! CertificateSigningRequests. The server writes the requester's identity into the object, and the request itself is immutable.

mod admission;
mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_auth::identity::UserInfo;

use crate::kind::Kind;
use crate::object::format_timestamp;
use crate::schema::validation::names::NameRule;
use crate::table::{cells, duration};

/// CertificateSigningRequests.
pub(super) static CERTIFICATE_SIGNING_REQUEST: Kind = Kind {
    names: NameRule::PathSegment,
    selectable_fields: &["spec.signerName"],
    prepare_create: |request, object| note_requester(object, request.user),
    prepare_update: |request, live, new| {
        keep_decisions(live, new, request.subresource, &format_timestamp(request.now));
    },
    reset: |subresource, live, new| {
        let mut new = new.clone();
        reset_parts(live, &mut new, subresource);
        Some(new)
    },
    validate_create: validation::create,
    validate_part: |new, live, subresource| Some(validation::update(new, live, subresource)),
    admission: admission::RULES,
    cells: show,
    ..Kind::new(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
    )
};

/// The conditions by which a request is decided.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

/// Writes the requester into a new request, and empties its status.
fn note_requester(object: &mut Value, user: &UserInfo) {
    let Some(map) = object.as_object_mut() else { return };
    map.insert("status".to_owned(), json!({}));
    let Some(spec) = map.entry("spec").or_insert_with(|| json!({})).as_object_mut() else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            spec.insert(field.to_owned(), Value::from(text.as_str()));
        }
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}

/// Restores the fields that this endpoint does not write. The request itself always stays. The main endpoint restores the whole status,
/// `approval` all but the conditions, and `status` restores nothing of the status.
fn reset_parts(live: &Value, new: &mut Value, subresource: Option<&str>) {
    let Some(map) = new.as_object_mut() else { return };
    let sent = map.get("status").and_then(Value::as_object).cloned();
    let status = match (subresource, live.get("status").cloned()) {
        (Some("status"), _) => Some(Value::Object(sent.unwrap_or_default())),
        (Some(_), kept) => {
            let mut kept = kept.unwrap_or_else(|| json!({}));
            if let Some(kept) = kept.as_object_mut() {
                match sent.and_then(|sent| sent.get("conditions").cloned()) {
                    Some(conditions) => kept.insert("conditions".to_owned(), conditions),
                    None => kept.remove("conditions"),
                };
            }
            Some(kept)
        }
        (None, kept) => kept,
    };
    for (field, value) in [("spec", live.get("spec").cloned()), ("status", status)] {
        match value {
            Some(value) => map.insert(field.to_owned(), value),
            None => map.remove(field),
        };
    }
}

/// Keeps the approval conditions on a write by a signer, and sets the times of new conditions.
fn keep_decisions(live: &Value, new: &mut Value, subresource: Option<&str>, now: &str) {
    let before = list_conditions(live);
    let Some(after) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    if subresource == Some("status") {
        for kind in DECISIONS {
            let of_kind = |condition: &&Value| kind_of(condition) == kind;
            let kept: Vec<&Value> = before.iter().filter(of_kind).collect();
            if kept.len() != after.iter().filter(of_kind).count() {
                continue;
            }
            let sent = after.iter_mut().filter(|condition| kind_of(condition) == kind);
            for (sent, kept) in sent.zip(kept) {
                *sent = kept.clone();
            }
        }
    }
    if subresource.is_none() {
        return;
    }
    for condition in after.iter_mut().filter_map(Value::as_object_mut) {
        if is_unset(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime".to_owned(), Value::from(now));
        }
        if is_unset(condition, "lastTransitionTime") {
            let same = before.iter().filter_map(Value::as_object).find(|other| {
                ["type", "status"]
                    .iter()
                    .all(|field| other.get(*field) == condition.get(*field))
                    && !is_unset(other, "lastTransitionTime")
            });
            let since = same.and_then(|same| same.get("lastTransitionTime").cloned());
            condition.insert(
                "lastTransitionTime".to_owned(),
                since.unwrap_or_else(|| Value::from(now)),
            );
        }
    }
}

fn list_conditions(object: &Value) -> &[Value] {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn kind_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn is_unset(condition: &Map<String, Value>, field: &str) -> bool {
    condition.get(field).is_none_or(Value::is_null)
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| {
        cells::list_items(object, "/status/conditions")
            .iter()
            .any(|condition| cells::get_text(condition, "/type") == kind)
    };
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !cells::get_text(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .map(duration::human_duration);
    vec![
        cells::get_text(object, "/metadata/name").into(),
        cells::format_age(object, now),
        cells::non_empty_or(cells::get_text(object, "/spec/signerName"), cells::NONE).into(),
        cells::get_text(object, "/spec/username").into(),
        duration.unwrap_or_else(|| cells::NONE.to_owned()).into(),
        status.into(),
    ]
}
