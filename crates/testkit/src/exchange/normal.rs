//! Normalisation: values that differ between runs are replaced by placeholders.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// A regular expression for all such values: UIDs, times, names generated from `gen-` or `gen1-` (also in refusals),
/// addresses that a server chose, resourceVersions in messages, hashes and ages.
static TEXT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?P<uid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})",
        r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)",
        r"|(?P<address>\b10\.96\.\d+\.\d+)",
        r"|\b(?P<volume>kube-api-access-[a-z0-9]{5})\b",
        r"|(?P<generated>\bgen[0-9]*-[a-z0-9]{5}\b)",
        r"|in (?P<place>record|the precondition) \((?P<record>\d+)\)",
        r"|ResourceVersion in object meta: (?P<stored>\d+)",
        r#"|"resourceVersion":"(?P<quoted>\d+)""#,
        r"|\b(?P<served>\d+):(?P<node>3[0-2]\d{3})/(?P<protocol>TCP|UDP|SCTP)\b",
        r"|current: (?P<current>\d+)",
        r"|X509SHA256=(?P<hash>[0-9a-f]+)",
        r"|^(?P<age>\d+s)$",
    ))
    .ok()
});
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"<(uid|rv|name|address|port):\d+>").ok());

/// Replaces the values that differ between runs by placeholders, for one server in one story. Equal values get the same
/// placeholder.
#[derive(Debug, Default)]
pub struct Normal {
    surroundings: Vec<(String, String)>,
    known: HashMap<(&'static str, String), usize>,
    count: HashMap<&'static str, usize>,
    /// Generated names.
    generated: Vec<(String, String)>,
}

impl Normal {
    /// Returns the placeholders for a story in this environment.
    #[must_use]
    pub fn new(names: super::Names<'_>) -> Self {
        let pair = |(stands, is): &(&str, &str)| ((*stands).to_owned(), (*is).to_owned());
        Self {
            surroundings: names.iter().map(pair).collect(),
            ..Self::default()
        }
    }

    /// Returns an answer with placeholders for the server's values.
    pub fn normal(&mut self, answer: &Value) -> Value {
        self.normalize_value(answer, "", false)
    }

    /// Returns the placeholder for a value, such as `<uid:1>`.
    fn number_name(&mut self, kind: &'static str, value: &str) -> String {
        let count = self.count.entry(kind).or_default();
        let number = self.known.entry((kind, value.to_owned())).or_insert_with(|| {
            *count += 1;
            *count
        });
        format!("<{kind}:{number}>")
    }

    fn normalize_value(&mut self, value: &Value, key: &str, in_list: bool) -> Value {
        match value {
            Value::Object(map) => {
                self.learn_generated(map);
                // A list's own version shows the server's revision, which other writers also change.
                let is_list = ["items", "rows"].iter().any(|key| map.contains_key(*key)) && map.contains_key("kind");
                let mut normal = Map::new();
                for (key, value) in map {
                    let of_list = match key.as_str() {
                        "metadata" => is_list,
                        "resourceVersion" => in_list,
                        _ => false,
                    };
                    let value = self.normalize_value(value, key, of_list);
                    normal.insert(self.normalize_text(key), value);
                }
                Value::Object(normal)
            }
            Value::Array(items) if key == "managedFields" => self.managed_fields(items),
            Value::Array(items) => items
                .iter()
                .map(|item| self.normalize_value(item, key, false))
                .collect(),
            Value::Number(port) if matches!(key, "nodePort" | "healthCheckNodePort") => {
                if port.as_i64().is_some_and(|port| (30_000..32_768).contains(&port)) {
                    json!(self.number_name("port", &port.to_string()))
                } else {
                    value.clone()
                }
            }
            Value::String(text) => {
                if key == "resourceVersion" && text != "0" && text.parse::<u64>().is_ok() {
                    return json!(if in_list {
                        "<rv>".to_owned()
                    } else {
                        self.number_name("rv", text)
                    });
                }
                if key == "continue" && !text.is_empty() {
                    return json!("<continue>");
                }
                json!(self.normalize_text(text))
            }
            other => other.clone(),
        }
    }

    /// Records a name that the server generated, so that texts with this name get the placeholder.
    fn learn_generated(&mut self, metadata: &Map<String, Value>) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, base) = (text("name"), text("generateName"));
        let suffix = name.strip_prefix(base).unwrap_or_default();
        if !base.is_empty() && suffix.len() == 5 && !self.generated.iter().any(|(known, _)| known == name) {
            let token = self.number_name("name", name);
            self.generated.push((name.to_owned(), token));
        }
    }

    fn normalize_text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (stands, is) in &self.surroundings {
            text = text.replace(is.as_str(), stands);
        }
        for (name, token) in &self.generated {
            text = text.replace(name.as_str(), token);
        }
        let Some(pattern) = TEXT.as_ref() else { return text };
        pattern
            .replace_all(&text, |captures: &Captures<'_>| {
                let named = |name: &str| captures.name(name).map(|found| found.as_str().to_owned());
                if let Some(uid) = named("uid") {
                    self.number_name("uid", &uid)
                } else if let Some(name) = named("generated") {
                    self.number_name("name", &name)
                } else if let Some(address) = named("address") {
                    self.number_name("address", &address)
                } else if let Some(version) = named("record") {
                    let place = named("place").unwrap_or_default();
                    format!("in {place} ({})", self.number_name("rv", &version))
                } else if let Some(version) = named("stored") {
                    format!("ResourceVersion in object meta: {}", self.number_name("rv", &version))
                } else if let Some(version) = named("quoted") {
                    format!("\"resourceVersion\":\"{}\"", self.number_name("rv", &version))
                } else if let Some(port) = named("node") {
                    let [served, protocol] = ["served", "protocol"].map(|name| named(name).unwrap_or_default());
                    format!("{served}:{}/{protocol}", self.number_name("port", &port))
                } else if named("volume").is_some() {
                    "kube-api-access-<suffix>".to_owned()
                } else if named("current").is_some() {
                    "current: <rv>".to_owned()
                } else if named("hash").is_some() {
                    "X509SHA256=<hash>".to_owned()
                } else if named("age").is_some() {
                    "<age>".to_owned()
                } else {
                    "<time>".to_owned()
                }
            })
            .into_owned()
    }

    /// Normalises managedFields. Entries are sorted by time, among others, and times differ in whole seconds by
    /// chance. So the order is checked separately, and then the entries are sorted without time.
    fn managed_fields(&mut self, entries: &[Value]) -> Value {
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let order = |entry: &Value| {
            (
                text(entry, "operation"),
                text(entry, "time"),
                text(entry, "manager"),
                text(entry, "apiVersion"),
                text(entry, "subresource"),
            )
        };
        let timeless = |entry: &Value| {
            (
                text(entry, "operation"),
                text(entry, "manager"),
                text(entry, "apiVersion"),
                text(entry, "subresource"),
            )
        };
        let times_are_known = !entries.iter().any(|entry| text(entry, "time").starts_with('<'));
        let in_order = !times_are_known || entries.is_sorted_by_key(order);
        let mut sorted = entries.to_vec();
        sorted.sort_by_key(timeless);
        let mut sorted: Vec<Value> = sorted
            .iter()
            .map(|entry| self.normalize_value(entry, "", false))
            .collect();
        if !in_order {
            sorted.push(json!("<not in order>"));
        }
        Value::from(sorted)
    }
}

/// Removes the numbers from a normal answer: the form of recordings that were made without them.
#[must_use]
pub fn strip_numbers(value: &Value) -> Value {
    let strip = |text: &str| {
        NUMBER.as_ref().map_or_else(
            || text.to_owned(),
            |number| number.replace_all(text, "<$1>").into_owned(),
        )
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (strip(key), strip_numbers(value)))
            .collect(),
        Value::Array(items) => items.iter().map(strip_numbers).collect(),
        Value::String(text) => json!(strip(text)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_has_the_same_name() {
        let mut normal = Normal::new(&[("@NS", "d1")]);
        let object = json!({"metadata": {"generateName": "a-", "name": "a-bcdfg", "namespace": "d1", "resourceVersion": "17",
            "uid": "01234567-89ab-cdef-0123-456789abcdef"}});
        let named = json!({"metadata": {"generateName": "a-", "name": "<name:1>", "namespace": "@NS", "resourceVersion": "<rv:1>",
            "uid": "<uid:1>"}});
        assert_eq!(normal.normal(&object), named);
        let message = json!({"message": "a-bcdfg: the version in record (17), not 18 at 2026-01-01T00:00:00Z"});
        assert_eq!(
            normal.normal(&message),
            json!({"message": "<name:1>: the version in record (<rv:1>), not 18 at <time>"})
        );
        assert_eq!(strip_numbers(&named)["metadata"]["uid"], "<uid>");
    }

    #[test]
    fn entries_out_of_order_are_seen() {
        let entry = |manager: &str, time: &str| json!({"operation": "Update", "manager": manager, "time": time});
        let in_order =
            json!({"managedFields": [entry("b", "2026-01-01T00:00:00Z"), entry("a", "2026-01-01T00:00:01Z")]});
        let not = json!({"managedFields": [entry("a", "2026-01-01T00:00:01Z"), entry("b", "2026-01-01T00:00:00Z")]});
        let (first, second) = (Normal::default().normal(&in_order), Normal::default().normal(&not));
        assert_eq!(first["managedFields"].as_array().map(Vec::len), Some(2));
        assert_eq!(second["managedFields"][2], "<not in order>");
    }
}
