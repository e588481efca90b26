//! Lines of the controllers' log: which are about an object, and how a person reads them. The controllers of an installation log JSON; a process that was started by hand may
//! log text. Both name an object as `Kind/namespace/name`, or by the fields `namespace` and `name`.

use serde_json::{Map, Value};

/// The first fields of a shown line, and the hidden fields.
const LEADING: [&str; 3] = ["timestamp", "level", "message"];
const HIDDEN: [&str; 6] = ["target", "filename", "line_number", "threadId", "span", "spans"];

/// An object by which lines of the log are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSubject {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for an object without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl LogSubject {
    /// Returns the form of the object in the log.
    #[must_use]
    pub fn write(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{}", self.kind, self.name),
            namespace => format!("{}/{namespace}/{}", self.kind, self.name),
        }
    }

    /// Checks whether a line is about the object.
    #[must_use]
    pub fn is_in(&self, line: &str) -> bool {
        match serde_json::from_str::<Value>(line) {
            Ok(Value::Object(fields)) => self.is_in_fields(&fields),
            _ => self.is_in_text(line),
        }
    }

    fn is_in_fields(&self, fields: &Map<String, Value>) -> bool {
        let spans = fields.get("spans").and_then(Value::as_array).into_iter().flatten();
        let spans = spans.chain(fields.get("span")).filter_map(Value::as_object);
        std::iter::once(fields)
            .chain(spans)
            .any(|fields| self.is_named_by(fields))
    }

    /// Checks whether fields name the object: by its place, or in a text.
    fn is_named_by(&self, fields: &Map<String, Value>) -> bool {
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let is_placed = text("name") == Some(self.name.as_str())
            && text("namespace").unwrap_or_default() == self.namespace
            && text("kind").is_none_or(|kind| kind == self.kind);
        // Lines with a place and without a kind are about objects in namespaces.
        let is_certain = text("kind").is_some() || !self.namespace.is_empty();
        let mut texts = fields
            .iter()
            .filter(|(key, _)| key.as_str() != "target")
            .filter_map(|(_, value)| value.as_str());
        (is_placed && is_certain) || texts.any(|text| has_word(text, &self.write()))
    }

    fn is_in_text(&self, line: &str) -> bool {
        let has_field = |key: &str, value: &str| {
            has_word(line, &format!("{key}={value}")) || line.contains(&format!("{key}=\"{value}\""))
        };
        let is_placed = !self.namespace.is_empty()
            && has_field("namespace", &self.namespace)
            && has_field("name", &self.name)
            && (!line.contains(" kind=") || has_field("kind", &self.kind));
        is_placed || has_word(line, &self.write())
    }
}

/// Checks whether a text has a word that no longer name contains.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '/' | '_');
    text.match_indices(word).any(|(start, _)| {
        let before = text.get(..start).and_then(|before| before.chars().next_back());
        let mut after = text.get(start + word.len()..).unwrap_or_default().chars();
        let next = after.next();
        // A dot ends a sentence unless a name continues after it.
        let continues = match next {
            Some('.') => after.next().is_some_and(|following| following.is_ascii_alphanumeric()),
            Some(character) => is_part(character),
            None => false,
        };
        !before.is_some_and(is_part) && !continues
    })
}

/// Returns a line for a person: time, level, message and the other fields. Lines in another form than JSON stay unchanged.
#[must_use]
pub fn write_for_people(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line) else {
        return line.to_owned();
    };
    let mut parts: Vec<String> = LEADING
        .iter()
        .filter_map(|key| fields.get(*key))
        .map(write_value)
        .collect();
    let shown = fields
        .iter()
        .filter(|(key, _)| !LEADING.contains(&key.as_str()) && !HIDDEN.contains(&key.as_str()));
    parts.extend(shown.map(|(key, value)| format!("{key}={}", write_value(value))));
    parts.join(" ")
}

fn write_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the time of a line, by which lines of several Pods are sorted; empty for a line without one.
#[must_use]
pub fn read_time(line: &str) -> String {
    if let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line) {
        return fields
            .get("timestamp")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_time = first.starts_with(|character: char| character.is_ascii_digit()) && first.contains('T');
    if is_time { first.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> LogSubject {
        LogSubject {
            kind: "Kustomization".to_owned(),
            namespace: "team-a".to_owned(),
            name: "app".to_owned(),
        }
    }

    #[test]
    fn only_lines_about_the_object_are_found() {
        for (line, expected) in [
            (
                r#"{"level":"WARN","object":"Kustomization/team-a/app","message":"bookkeeping failed"}"#,
                true,
            ),
            (r#"{"object":"Kustomization/team-a/app-two"}"#, false),
            (r#"{"object":"Kustomization/team-a/app.two"}"#, false),
            (r#"{"object":"Kustomization/my-team-a/app"}"#, false),
            (r#"{"object":"GitRepository/team-a/app"}"#, false),
            (r#"{"namespace":"team-a","name":"app"}"#, true),
            (r#"{"namespace":"team-b","name":"app"}"#, false),
            (r#"{"kind":"Receiver","namespace":"team-a","name":"app"}"#, false),
            (
                r#"{"message":"waits","spans":[{"kind":"Kustomization","namespace":"team-a","name":"app"}]}"#,
                true,
            ),
            (r#"{"message":"it waits for Kustomization/team-a/app."}"#, true),
            (
                "2026-11-30T04:00:00Z  WARN x: failed object=Kustomization/team-a/app error=no",
                true,
            ),
            (
                "2026-11-30T04:00:00Z  WARN x: failed namespace=\"team-a\" name=\"app\"",
                true,
            ),
            (
                "2026-11-30T04:00:00Z  WARN x: failed namespace=team-a name=app-two",
                false,
            ),
            (
                "2026-11-30T04:00:00Z  WARN x: failed object=Kustomization/team-a/app-two",
                false,
            ),
            ("not a line of this program", false),
            ("", false),
        ] {
            assert_eq!(app().is_in(line), expected, "{line}");
        }
        let tenant = LogSubject {
            kind: "Tenant".to_owned(),
            namespace: String::new(),
            name: "team-a".to_owned(),
        };
        assert!(tenant.is_in(r#"{"object":"Tenant/team-a"}"#));
        assert!(!tenant.is_in(r#"{"name":"team-a"}"#));
    }

    #[test]
    fn a_person_reads_time_level_and_message_first() {
        let line = r#"{"target":"t","error":"no answer","level":"WARN","message":"failed","timestamp":"2026-11-30T04:00:00Z","times":2}"#;
        assert_eq!(
            write_for_people(line),
            "2026-11-30T04:00:00Z WARN failed error=no answer times=2"
        );
        assert_eq!(write_for_people("plain"), "plain");
        assert_eq!(read_time(line), "2026-11-30T04:00:00Z");
        assert_eq!(read_time("2026-11-30T04:00:00Z WARN x"), "2026-11-30T04:00:00Z");
        assert_eq!(read_time("panicked"), "");
    }
}
