//! Writes texts, values and sentences as expressions.

use serde_json::Value;

/// Returns a text as an expression.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("'");
    for letter in text.chars() {
        if matches!(letter, '\'' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('\'');
    quoted
}

/// Returns a sentence as an expression: `{}` stands for the next value, which is an expression,
/// too.
pub(super) fn phrase(template: &str, values: &[&str]) -> String {
    let mut values = values.iter();
    let mut parts = Vec::new();
    for (index, text) in template.split("{}").enumerate() {
        if index > 0 {
            parts.extend(values.next().map(|value| format!("string({value})")));
        }
        if !text.is_empty() {
            parts.push(quote(text));
        }
    }
    parts.join(" + ")
}

/// Returns a value as an expression. In lists and maps of other values than texts, each value is `dyn`: Kubernetes accepts no list or map
/// with values of several types.
pub(super) fn write_literal(value: &Value) -> String {
    let write_dyn = |value: &Value| format!("dyn({})", write_literal(value));
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            format!("[{}]", items.iter().map(write_literal).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(write_dyn).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(key, value)| format!("{}: {}", quote(key), write_dyn(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sentence_is_an_expression() {
        assert_eq!(
            phrase("a {} isn't {}", &["x", "y.z"]),
            r"'a ' + string(x) + ' isn\'t ' + string(y.z)"
        );
        assert_eq!(phrase("{}", &["x"]), "string(x)");
        assert_eq!(quote(r"\"), r"'\\'");
    }

    #[test]
    fn a_value_is_an_expression() {
        assert_eq!(write_literal(&json!(["a", "it's"])), r"['a', 'it\'s']");
        assert_eq!(
            write_literal(&json!({ "drop": ["ALL"], "run": true, "user": 7 })),
            "{'drop': dyn(['ALL']), 'run': dyn(true), 'user': dyn(7)}"
        );
        assert_eq!(write_literal(&json!([{ "a": "b" }])), "[dyn({'a': dyn('b')})]");
    }
}
