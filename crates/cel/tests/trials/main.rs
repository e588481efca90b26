//! Replays recorded answers of Kubernetes' own environment, one trial for each expression: errors, types, estimates, values, failures and
//! costs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic, and the cases are in files"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use kubernetes_cel::{EXPRESSION_BUDGET, Environment, Extension, Shape, Type, Value};
use serde_json::Value as Json;
use tenure_trials::{Suite, name_of_line};

fn show_value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) if value.is_nan() => "NaN".to_owned(),
        Value::Double(value) if value.is_infinite() => if *value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Value::Double(value) if value.fract() == 0.0 => format!("{value}.0"),
        Value::Double(value) => format!("{value}"),
        Value::String(text) => serde_json::to_string(&**text).unwrap(),
        Value::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes({digits})")
        }
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| show_value(&item.unwrap())).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(_) => {
            // Through JSON keys would lose their types: the corpus has a text for each entry.
            let mut entries: Vec<String> = value
                .entries()
                .into_iter()
                .map(|(key, value)| format!("{}: {}", show_value(&key), show_value(&value)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Timestamp(at) => format!("timestamp({at})"),
        Value::Duration(nanoseconds) => format!("duration({nanoseconds})"),
        Value::Type(named) => format!("type({})", named.name()),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(inner)) => format!("optional({})", show_value(inner)),
        Value::Extension(Extension::Ip(address)) => format!("net.IP({address})"),
        Value::Extension(Extension::Cidr(address, bits)) => format!("net.CIDR({address}/{bits})"),
        Value::Extension(_) => value.type_of().name().to_owned(),
        Value::Preserved(value) => value.to_string(),
    }
}

/// Returns the comparable part of a text. Go's internal values are printed there, and an equal type is enough here.
fn comparable_part(text: &str) -> &str {
    for name in [
        "kubernetes.Quantity",
        "kubernetes.URL",
        "kubernetes.Semver",
        "kubernetes.NamedFormat",
    ] {
        if text.starts_with(name) {
            return name;
        }
    }
    text
}

#[derive(Default)]
struct Answer(BTreeMap<&'static str, String>);

fn evaluate_case(case: &Json) -> Answer {
    let expression = case["expression"].as_str().unwrap();
    let mut answer = Answer::default();
    let shape = case.get("schema").map(|schema| Shape::of_resource(schema, "selfType"));
    let mut environment = Environment::new();
    let mut variables: BTreeMap<String, Value<'_>> = BTreeMap::new();
    let optional = case.get("optionalOldSelf") == Some(&Json::Bool(true));
    if let Some(shape) = &shape {
        let own = shape.declared_type().unwrap().clone();
        let old = if optional {
            Type::optional(own.clone())
        } else {
            own.clone()
        };
        environment = shape
            .declare(environment)
            .with_variable("self", own)
            .with_variable("oldSelf", old);
        if let Some(value) = case.get("self") {
            variables.insert("self".into(), Value::with_shape(value, shape).unwrap());
        }
        let old = case
            .get("oldSelf")
            .map(|value| Value::with_shape(value, shape).unwrap());
        if optional {
            variables.insert("oldSelf".into(), Value::optional(old));
        } else if let Some(old) = old {
            variables.insert("oldSelf".into(), old);
        }
    }
    for (name, value) in case.get("vars").and_then(Json::as_object).into_iter().flatten() {
        environment = environment.with_variable(name, Type::Dyn);
        variables.insert(name.clone(), Value::json(value));
    }
    let program = match environment.compile(expression) {
        Ok(program) => program,
        Err(problem) => {
            answer.0.insert("error", problem.to_string());
            return answer;
        }
    };
    answer.0.insert("type", program.output_type().to_string());
    let estimate = program.estimate(shape.as_ref());
    answer.0.insert("min", estimate.min.to_string());
    answer.0.insert("max", estimate.max.to_string());
    if let Some(problem) = program.instantiation_failure() {
        answer.0.insert("error", format!("program: {problem}"));
        return answer;
    }
    let evaluation = program.evaluate(&variables, EXPRESSION_BUDGET);
    answer.0.insert("cost", evaluation.cost.to_string());
    match evaluation.result {
        Ok(value) => answer
            .0
            .insert("value", comparable_part(&show_value(&value)).to_owned()),
        Err(failure) => answer.0.insert("failure", failure.to_string()),
    };
    answer
}

/// Returns the differences between this crate's answer and the recorded answer.
fn find_differences(case: &Json) -> Vec<String> {
    let ours = evaluate_case(case);
    let kept: Vec<&str> = case
        .get("except")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let mut found = Vec::new();
    for key in ["error", "type", "min", "max", "value", "failure", "cost"] {
        let recorded = case["answer"].get(key).map(|value| match value {
            // The environment of Kubernetes writes types in a form that its messages don't use.
            Json::String(text) if key == "type" => text
                .replace("google.protobuf.Timestamp", "timestamp")
                .replace("google.protobuf.Duration", "duration")
                .replace("null_type", "null"),
            Json::String(text) => comparable_part(text).to_owned(),
            other => other.to_string(),
        });
        let ours = ours.0.get(key).cloned();
        if recorded != ours && !kept.contains(&key) {
            found.push(format!("  {key}: said {ours:?}, recorded {recorded:?}"));
        }
    }
    found
}

/// Reads the cases of a file. Each case contains the fields that the cases share.
fn read_cases(text: &str) -> Vec<(String, Json)> {
    let mut cases = Vec::new();
    let mut common = serde_json::json!({});
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let mut case: Json = serde_json::from_str(line).unwrap();
        // A line without an expression holds the shared fields of the following lines.
        let Some(expression) = case["expression"].as_str() else {
            common = case;
            continue;
        };
        let name = name_of_line(index + 1, expression);
        for (name, value) in common.as_object().unwrap() {
            case[name] = value.clone();
        }
        cases.push((name, case));
    }
    cases
}

fn check(case: &Json) -> Result<(), String> {
    let found = find_differences(case);
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("{}\n{}", case["expression"], found.join("\n")))
    }
}

fn main() -> ExitCode {
    let mut suite = Suite::default();
    for (group, least, text) in [
        ("language", 495, include_str!("../corpus/language.jsonl")),
        ("libraries", 352, include_str!("../corpus/libraries.jsonl")),
        ("rules", 170, include_str!("../corpus/rules.jsonl")),
    ] {
        let cases = read_cases(text).into_iter();
        suite.add(group, least, cases.map(|(name, case)| (name, move || check(&case))));
    }
    suite.run()
}
