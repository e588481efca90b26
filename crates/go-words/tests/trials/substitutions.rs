//! Recorded answers of Flux's `pkg/envsubst` for texts (`tests/data/substitution.json`), one trial for each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use go_words::substitution::{Problem, Scope, substitute};
use serde_json::Value;
use tenure_trials::{Suite, name_of_line};

struct Variables<'value> {
    values: &'value BTreeMap<String, String>,
    is_strict: bool,
}

impl<'value> Scope<'value> for Variables<'value> {
    fn find(&mut self, name: &str) -> Option<&'value [u8]> {
        match self.values.get(name) {
            Some(value) => Some(value.as_bytes()),
            None => (!self.is_strict).then_some(b""),
        }
    }

    fn spend(&mut self, _bytes: usize, _steps: usize) -> bool {
        true
    }
}

/// Substitutes in a text and returns the result in the recorder's notation.
fn record_answer(text: &str, values: &BTreeMap<String, String>, is_strict: bool) -> Result<String, Problem> {
    let made = substitute(text, &mut Variables { values, is_strict }).map_err(|error| error.problem())?;
    Ok(String::from_utf8(made).unwrap_or_else(|error| {
        let mut digits = String::from("bytes ");
        for byte in error.as_bytes() {
            write!(digits, "{byte:02x}").unwrap();
        }
        digits
    }))
}

fn read_recorded(case: &Value, field: &str) -> Option<String> {
    let bytes = case.get(format!("{field}Bytes")).and_then(Value::as_str);
    let text = case.get(field).and_then(Value::as_str).map(str::to_owned);
    text.or_else(|| bytes.map(|digits| format!("bytes {digits}")))
}

fn check(case: &Value, values: &BTreeMap<String, String>) -> Result<(), String> {
    let text = case["text"].as_str().unwrap();
    let ours = substitute(
        text,
        &mut Variables {
            values,
            is_strict: true,
        },
    );
    if ours
        .as_ref()
        .is_err_and(|error| error.problem() == Problem::Unsupported)
    {
        // On purpose: Flux documents them as unsupported, and reads them as defaults.
        let is_that = text.contains(":?") || text.contains(":+");
        return is_that.then_some(()).ok_or_else(|| format!("{text:?} is supported"));
    }
    if case.get("panics").is_some() {
        return Ok(());
    }
    let error = case.get("error").and_then(Value::as_str).map(str::to_owned);
    let message = ours.err().map(|error| error.to_string());
    if message != error {
        return Err(format!("{text:?}\n  real: {error:?}\n  ours: {message:?}"));
    }
    for (field, is_strict) in [("output", true), ("lenient", false)] {
        let real = read_recorded(case, field);
        let ours = record_answer(text, values, is_strict);
        if real.is_some() && ours != real.clone().ok_or(Problem::Spent) {
            return Err(format!("{text:?} {field}\n  real: {real:?}\n  ours: {ours:?}"));
        }
    }
    Ok(())
}

pub(crate) fn add(suite: &mut Suite) {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/substitution.json")).unwrap();
    let values: Arc<BTreeMap<String, String>> =
        Arc::new(serde_json::from_value(cases[0]["variables"].clone()).unwrap());
    let numbered = cases.into_iter().enumerate();
    let cases = numbered.filter_map(|(index, case)| {
        let name = name_of_line(index + 2, case.get("text")?.as_str()?);
        let values = Arc::clone(&values);
        Some((name, move || check(&case, &values)))
    });
    suite.add("substitution", 1400, cases);
}
