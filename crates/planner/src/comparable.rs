//! The part of a live object that counts in a comparison. Flux compares the same part: labels, annotations and everything outside metadata and status.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The part of an object that counts in a comparison with another state of it. The data is borrowed, as objects may be large.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparable<'a>(BTreeMap<&'a str, Part<'a>>);

#[derive(Clone, Debug, PartialEq)]
enum Part<'a> {
    Whole(&'a Value),
    /// The existing labels and annotations.
    Metadata(BTreeMap<&'a str, &'a Value>),
}

/// Selects the part of an object that counts; a value that is no object counts as a whole.
pub(crate) fn select_comparable(object: &Value) -> Comparable<'_> {
    let Some(fields) = object.as_object() else {
        return Comparable([("", Part::Whole(object))].into());
    };
    let part = |key: &str, value| match key {
        "metadata" => Part::Metadata(labels_and_annotations(value)),
        _ => Part::Whole(value),
    };
    let counting = fields.iter().filter(|(key, _)| *key != "status");
    Comparable(counting.map(|(key, value)| (key.as_str(), part(key, value))).collect())
}

fn labels_and_annotations(metadata: &Value) -> BTreeMap<&str, &Value> {
    let there = |key| {
        let entries = metadata.get(key)?;
        entries
            .as_object()
            .is_some_and(|map| !map.is_empty())
            .then_some((key, entries))
    };
    ["labels", "annotations"].into_iter().filter_map(there).collect()
}

impl Comparable<'_> {
    /// Returns the digest, `sha256:<hex>`, which is equal for equal parts.
    pub(crate) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (key, part) in &self.0 {
            // JSON texts have an end of their own, so no separator is needed.
            hash.update(Value::from(*key).to_string());
            match part {
                Part::Whole(value) => hash.update(value.to_string()),
                Part::Metadata(parts) => {
                    for (key, entries) in parts {
                        hash.update(Value::from(*key).to_string());
                        hash.update(entries.to_string());
                    }
                }
            }
        }
        format!("sha256:{}", hex::encode(hash.finalize()))
    }

    /// Returns the part as a value, for a search for differences.
    pub(crate) fn to_value(&self) -> Value {
        let fields = self.0.iter().map(|(key, part)| ((*key).to_owned(), part.to_value()));
        Value::Object(fields.collect())
    }
}

impl Part<'_> {
    fn to_value(&self) -> Value {
        match self {
            Self::Whole(value) => (*value).clone(),
            Self::Metadata(parts) => {
                let parts = parts
                    .iter()
                    .map(|(key, entries)| ((*key).to_owned(), (*entries).clone()));
                Value::Object(parts.collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_annotations_and_all_outside_metadata_and_status_count() {
        let object = |labels: Value, version: &str, data: &str, status: &str| json!({ "metadata": { "labels": labels, "resourceVersion": version }, "data": { "a": data }, "status": status });
        let same = [object(json!({}), "1", "x", "new"), object(json!(null), "2", "x", "old")];
        let other = [
            object(json!({ "a": "x" }), "1", "x", "new"),
            object(json!({}), "1", "y", "new"),
            json!({ "data": { "a": "x" } }),
            json!("text"),
        ];
        let is_same = |one: &Value, two: &Value| {
            let (one, two) = (select_comparable(one), select_comparable(two));
            assert_eq!(one == two, one.digest() == two.digest());
            assert_eq!(one == two, one.to_value() == two.to_value());
            one == two
        };
        let [one, two] = &same;
        assert!(is_same(one, two));
        for other in &other {
            assert!(!is_same(one, other), "{other}");
        }
        assert_eq!(
            select_comparable(one).to_value(),
            json!({ "metadata": {}, "data": { "a": "x" } })
        );
    }
}
