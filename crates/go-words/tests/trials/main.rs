//! Answers of Go's own libraries for many texts (`tests/data`, recorded by `e2e/go-words`), one trial for each text.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod ranges;
mod substitutions;

use std::process::ExitCode;
use std::sync::Arc;

use go_words::quantity::Quantity;
use go_words::{duration, pattern, quantity, quote, version};
use serde_json::Value;
use tenure_trials::{Suite, name_of_line};

/// A comparison: its name, Go's answer and the answer of this crate. `None` means no answer.
type Answers = Vec<(&'static str, Option<String>, Option<String>)>;

fn compare(answers: Answers) -> Result<(), String> {
    match answers.into_iter().find(|(_, real, ours)| real != ours) {
        None => Ok(()),
        Some((what, real, ours)) => Err(format!("{what}\n  real: {real:?}\n  ours: {ours:?}")),
    }
}

/// Returns a recorded answer of any JSON type as a text.
fn read_recorded(case: &Value, field: &str) -> Option<String> {
    case.get(field).map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

fn check_quote(case: &Value) -> Result<(), String> {
    let ours = quote::quote(case["text"].as_str().unwrap());
    compare(vec![("quoted", read_recorded(case, "quoted"), Some(ours))])
}

fn check_duration(case: &Value) -> Result<(), String> {
    let text = case["text"].as_str().unwrap();
    let parsed = duration::parse(text);
    let loose = duration::parse_loose(text).map(|found| found.to_string());
    compare(vec![
        (
            "error",
            read_recorded(case, "error"),
            parsed.clone().err().map(|error| error.to_string()),
        ),
        (
            "nanoseconds",
            read_recorded(case, "nanoseconds"),
            parsed.clone().ok().map(|found| found.to_string()),
        ),
        (
            "printed",
            read_recorded(case, "printed"),
            parsed.ok().map(duration::print),
        ),
        ("loose", read_recorded(case, "loose"), loose),
    ])
}

fn check_quantity(case: &Value) -> Result<(), String> {
    let text = case["text"].as_str().unwrap();
    let parsed = match Quantity::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return compare(vec![("error", read_recorded(case, "error"), Some(error.to_string()))]),
    };
    let float = case["float"].as_f64().unwrap_or(f64::NAN);
    // Larger amounts have no suffix: Go prints 1000E as 1. Also, this crate does not distinguish amounts beyond 10²⁹.
    if float.abs() >= 1e21 {
        return Ok(());
    }
    let other = |text| Quantity::parse(text).unwrap();
    let close = (parsed.approximate() - float).abs() <= float.abs() * 1e-15;
    let integer = parsed.as_integer().map(|integer| integer.to_string());
    let above = parsed.compare(&other("1Ki")) as i8;
    compare(vec![
        ("error", read_recorded(case, "error"), None),
        (
            "canonical",
            read_recorded(case, "canonical"),
            quantity::canonical(text).ok(),
        ),
        ("sign", read_recorded(case, "sign"), Some(parsed.sign().to_string())),
        ("integer", read_recorded(case, "integer"), integer),
        ("float", Some("close".to_owned()), close.then(|| "close".to_owned())),
        ("above", read_recorded(case, "above"), Some(above.to_string())),
        (
            "plus",
            read_recorded(case, "plus"),
            Some(parsed.plus(other("1500m")).canonical()),
        ),
        (
            "minus",
            read_recorded(case, "minus"),
            Some(parsed.minus(other("1Ki")).canonical()),
        ),
    ])
    // Go may return a text that it has cached unchanged.
    .and_then(|()| match read_recorded(case, "milli") {
        kept if kept.as_deref() == Some(text) => Ok(()),
        real => compare(vec![("milli", real, Some(parsed.round_up_to_milli().canonical()))]),
    })
}

fn check_version(case: &Value) -> Result<(), String> {
    let parsed = version::parse(case["text"].as_str().unwrap());
    let above = parsed.as_ref().ok().map(|parsed| {
        let others = ["1.2.3", "1.2.3-a", "1.2.3-0", "1.0.0-18446744073709551615"];
        let below = others.map(|other| {
            parsed
                .cmp_precedence(&version::parse(other).unwrap())
                .is_gt()
                .then_some(other)
        });
        let below: Vec<&str> = below.into_iter().flatten().collect();
        serde_json::to_string(&(!below.is_empty()).then_some(below)).unwrap()
    });
    compare(vec![
        (
            "error",
            read_recorded(case, "error"),
            parsed.clone().err().map(|error| error.to_string()),
        ),
        (
            "printed",
            read_recorded(case, "printed"),
            parsed.ok().map(|parsed| parsed.to_string()),
        ),
        ("above", read_recorded(case, "above"), above),
    ])
}

/// Names of classes that only one of Go 1.26 and the `regex` crate knows; older releases of Go know neither.
const ODD_CLASSES: [&str; 2] = ["\\p{lu}", "\\p{Alphabetic}"];

/// Compiles a pattern and looks for it in every text.
fn check_pattern(case: &Value, texts: &[String]) -> Result<(), String> {
    let given = case["pattern"].as_str().unwrap();
    if ODD_CLASSES.contains(&given) {
        return Ok(());
    }
    let error = read_recorded(case, "error").map(|error| error.trim_start_matches("error parsing regexp: ").to_owned());
    let translated = match pattern::translate(given) {
        Ok(translated) => translated,
        Err(ours) => return compare(vec![("error", error, Some(ours.to_string()))]),
    };
    let compiled = regex::Regex::new(&translated);
    // The `regex` engine decides which Unicode classes exist.
    if let (Some(error), Err(_)) = (&error, &compiled)
        && error.contains("\\p")
    {
        return Ok(());
    }
    let compiled = compiled.map_err(|problem| format!("{translated}: {problem}"))?;
    let found = texts.iter().filter_map(|text| {
        let found = compiled.find(text)?;
        let (before, after) = (&text[..found.start()], &text[found.end()..]);
        Some(format!("{before}«{}»{after}", found.as_str()))
    });
    let found: Vec<String> = found.collect();
    let found = serde_json::to_string(&(!found.is_empty()).then_some(found)).unwrap();
    compare(vec![
        ("error", error, None),
        ("matches", read_recorded(case, "matches"), Some(found)),
    ])
}

/// Returns the cases of a file, each with the name that `field` gives it.
fn read_cases(text: &str, field: &str) -> Vec<(String, Value)> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    let numbered = cases.into_iter().enumerate();
    numbered
        .filter_map(|(index, case)| Some((name_of_line(index + 2, case.get(field)?.as_str()?), case)))
        .collect()
}

fn main() -> ExitCode {
    let mut suite = Suite::default();
    let mut add = |group: &str, least: usize, text: &str, check: fn(&Value) -> Result<(), String>| {
        let cases = read_cases(text, "text").into_iter();
        suite.add(group, least, cases.map(|(name, case)| (name, move || check(&case))));
    };
    add("quote", 500, include_str!("../data/quote.json"), check_quote);
    add("duration", 370, include_str!("../data/duration.json"), check_duration);
    add("quantity", 780, include_str!("../data/quantity.json"), check_quantity);
    add("version", 46, include_str!("../data/version.json"), check_version);
    let patterns = include_str!("../data/pattern.json");
    let texts: Vec<Value> = serde_json::from_str(patterns).unwrap();
    let texts = texts[0]["texts"].as_array().unwrap().iter();
    let texts: Arc<[String]> = texts.map(|text| text.as_str().unwrap().to_owned()).collect();
    let cases = read_cases(patterns, "pattern").into_iter().map(|(name, case)| {
        let texts = texts.clone();
        (name, move || check_pattern(&case, &texts))
    });
    suite.add("pattern", 630, cases);
    ranges::add(&mut suite);
    substitutions::add(&mut suite);
    suite.run()
}
