//! Go's type names and printed forms of decoded JSON values, which Kubernetes' messages contain. Maps are printed in their stored order;
//! `serde_json` sorts maps by name, as Go does.

use serde_json::{Number, Value};

use crate::quote::quote;

/// Returns the Go type that a decoded JSON value has.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        // A number that does not fit in an integer is also a float.
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns a value as Go's `%v` prints it.
#[must_use]
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(print).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", print(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Number(number) if !number.is_i64() => {
            let shortest = number.as_f64().and_then(Number::from_f64);
            print_float(&shortest.unwrap_or_else(|| number.clone()).to_string())
        }
        other => other.to_string(),
    }
}

/// Returns a float's shortest form as Go writes it: whole ones without a fraction, exponents with a sign and two digits.
fn print_float(shortest: &str) -> String {
    let Some((digits, exponent)) = shortest.split_once('e') else {
        return shortest.trim_end_matches(".0").to_owned();
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent.trim_start_matches('+')),
    };
    format!("{}e{sign}{exponent:0>2}", digits.trim_end_matches(".0"))
}

/// Returns a value as Go's `%#v` prints it.
#[must_use]
pub fn print_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(print_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", quote(name), print_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{print, type_name};

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"b": [1, 2.5, 3.0, 1e21, 1e-7, "x y"], "a": null, "c": {"d": true}});
        assert_eq!(print(&value), "map[a:<nil> b:[1 2.5 3 1e+21 1e-07 x y] c:map[d:true]]");
        let large = json!(u64::MAX);
        assert_eq!(
            (type_name(&large), print(&large).as_str()),
            ("float64", "1.8446744073709552e+19")
        );
    }
}
