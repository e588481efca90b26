//! Finds the namespaces that an object names. One walk over all fields beside `metadata` and `status` serves all kinds: a new field of a kind
//! is found by its name, without a list of paths.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tenure_api::names::is_dns_label;

use super::kinds::MentioningKind;

/// The label by which selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The prefixes of users and groups that are a namespace's accounts.
const ACCOUNTS: [&str; 2] = ["system:serviceaccount:", "system:serviceaccounts:"];
/// The greatest depth that is read. The API server accepts no deeper object.
const DEEPEST: usize = 128;

/// Lists the namespaces that an object names:
///
/// - in a field whose name ends with `namespace`, or a list whose name ends with `namespaces`,
/// - in a selector for `kubernetes.io/metadata.name`,
/// - as an object of kind Namespace,
/// - in the name of a ServiceAccount, or of a namespace's group of accounts, in any text.
///
/// `metadata` and `status` are not read.
#[must_use]
pub fn list_named_namespaces<'a>(kind: &MentioningKind, object: &'a Value) -> BTreeSet<&'a str> {
    let mut named = BTreeSet::new();
    let fields = object.as_object().into_iter().flatten();
    for (key, value) in fields {
        if !matches!(key.as_str(), "metadata" | "status") {
            collect_field(kind, key, value, DEEPEST, &mut named);
        }
    }
    named
}

/// Collects the namespaces that a value and everything in it name.
fn collect<'a>(kind: &MentioningKind, value: &'a Value, depth: usize, named: &mut BTreeSet<&'a str>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::String(text) => collect_accounts(text, named),
        Value::Array(items) => {
            for item in items {
                collect(kind, item, depth, named);
            }
        }
        Value::Object(fields) => {
            collect_selector(fields, named);
            for (key, value) in fields {
                collect_field(kind, key, value, depth, named);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn collect_field<'a>(
    kind: &MentioningKind,
    key: &'a str,
    value: &'a Value,
    depth: usize,
    named: &mut BTreeSet<&'a str>,
) {
    // A volume that was bound once is bound to the claim's uid: a later claim with the same name doesn't
    // get it.
    let is_bound = || {
        value
            .get("uid")
            .and_then(Value::as_str)
            .is_some_and(|uid| !uid.is_empty())
    };
    if kind.kind == "PersistentVolume" && key == "claimRef" && is_bound() {
        return;
    }
    collect_accounts(key, named);
    match value {
        Value::String(text) if ends_with(key, "namespace") || key == NAME_LABEL => add(text, named),
        Value::Array(items) if ends_with(key, "namespaces") => {
            items.iter().filter_map(Value::as_str).for_each(|text| add(text, named));
        }
        _ => {}
    }
    collect(kind, value, depth, named);
}

/// Collects `{key: kubernetes.io/metadata.name, values: […]}` whatever the operator, and `{kind: Namespace,
/// name: …}`.
fn collect_selector<'a>(fields: &'a Map<String, Value>, named: &mut BTreeSet<&'a str>) {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if text("key") == Some(NAME_LABEL) {
        let values = fields.get("values").and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).for_each(|text| add(text, named));
    }
    if text("kind") == Some("Namespace")
        && let Some(name) = text("name")
    {
        add(name, named);
    }
}

/// Checks whether a key ends with a word, in small or capital letters.
fn ends_with(key: &str, word: &str) -> bool {
    let start = key.len().checked_sub(word.len());
    let ending = start.and_then(|start| key.get(start..));
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(word))
}

fn add<'a>(text: &'a str, named: &mut BTreeSet<&'a str>) {
    if is_dns_label(text) {
        named.insert(text);
    }
}

/// Collects `system:serviceaccount:NAMESPACE:NAME` and `system:serviceaccounts:NAMESPACE` anywhere in a text, such as in an
/// expression.
fn collect_accounts<'a>(text: &'a str, named: &mut BTreeSet<&'a str>) {
    for prefix in ACCOUNTS {
        for (start, _) in text.match_indices(prefix) {
            let rest = text.get(start + prefix.len()..).unwrap_or_default();
            let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let end = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
            add(rest.get(..end).unwrap_or_default(), named);
        }
    }
}
