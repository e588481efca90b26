//! Comparison of two answers.

use serde_json::{Map, Value};

/// Returns the paths at which two answers differ, with both values, except those at or below a known path.
#[must_use]
pub fn list_differences(want: &Value, got: &Value, known: &Map<String, Value>) -> Vec<(String, Value, Value)> {
    let mut found = Vec::new();
    collect_differences("", want, got, known, &mut found);
    found
}

fn collect_differences(
    path: &str,
    want: &Value,
    got: &Value,
    known: &Map<String, Value>,
    found: &mut Vec<(String, Value, Value)>,
) {
    let is_known = known.iter().any(|(pointer, _)| {
        path.strip_prefix(pointer.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if is_known || want == got {
        return;
    }
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let missing = Value::from("<missing>");
            let mut keys: Vec<&String> = want.keys().chain(got.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let (want, got) = (want.get(key).unwrap_or(&missing), got.get(key).unwrap_or(&missing));
                collect_differences(&format!("{path}/{escaped}"), want, got, known, found);
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                collect_differences(&format!("{path}/{index}"), want, got, known, found);
            }
        }
        _ => found.push((path.to_owned(), want.clone(), got.clone())),
    }
}
