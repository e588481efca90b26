//! What Go calls the values of decoded JSON, and how it prints them: Kubernetes' messages contain both.

use serde_json::Value;

/// The Go type that a decoded JSON value has.
#[must_use]
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it.
#[must_use]
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_value(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Number(number) if number.is_f64() => float(&number.to_string()),
        other => other.to_string(),
    }
}

/// A float's shortest form as Go writes it: whole ones without a fraction, exponents with a sign and two digits.
fn float(shortest: &str) -> String {
    let Some((digits, exponent)) = shortest.split_once('e') else {
        return shortest.trim_end_matches(".0").to_owned();
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent.trim_start_matches('+')),
    };
    format!("{}e{sign}{exponent:0>2}", digits.trim_end_matches(".0"))
}

/// A value as Go's `%#v` prints it.
pub(crate) fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::json::quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", crate::json::quoted(name), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::go_value;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"b": [1, 2.5, 3.0, 1e21, 1e-7, "x y"], "a": null, "c": {"d": true}});
        assert_eq!(
            go_value(&value),
            "map[a:<nil> b:[1 2.5 3 1e+21 1e-07 x y] c:map[d:true]]"
        );
    }
}
