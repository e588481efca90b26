//! Ranges of versions that the real implementation was asked about (`tests/data/semver.json`), a trial for each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use tenure_sources::{Range, tag_version};
use tenure_trials::{Suite, name_of_line};

/// Asks a range for each of the recorded versions.
fn check(case: &Value, versions: &[String]) -> Result<(), String> {
    let range = case["range"].as_str().unwrap();
    let expected = if case["error"] == true {
        None
    } else {
        Some(case["matches"].as_str().unwrap_or("").to_owned())
    };
    let actual = range.parse::<Range>().ok().map(|range| {
        let matching = versions
            .iter()
            .filter(|version| range.matches(&tag_version(version).unwrap()));
        matching.map(String::as_str).collect::<Vec<_>>().join(" ")
    });
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{range:?}\n  real: {expected:?}\n  ours: {actual:?}"))
    }
}

/// A name in which signs are words, as most ranges have the same digits.
fn name_range(index: usize, range: &str) -> String {
    let mut text = range.to_owned();
    for (sign, word) in [
        (">=", " at_least "),
        ("<=", " at_most "),
        ("!=", " not "),
        (">", " above "),
        ("<", " below "),
        ("^", " caret "),
        ("~", " tilde "),
        ("||", " or "),
        ("*", " any "),
        (" - ", " to "),
    ] {
        text = text.replace(sign, word);
    }
    name_of_line(index + 1, &text)
}

fn main() -> ExitCode {
    let recorded: Value = serde_json::from_str(include_str!("../data/semver.json")).unwrap();
    let versions = recorded["versions"].as_array().unwrap().iter();
    let versions: Arc<[String]> = versions.map(|version| version.as_str().unwrap().to_owned()).collect();
    let cases = recorded["cases"].as_array().unwrap().clone().into_iter().enumerate();
    let cases = cases.map(|(index, case)| {
        let versions = versions.clone();
        let name = name_range(index, case["range"].as_str().unwrap());
        (name, move || check(&case, &versions))
    });
    let mut suite = Suite::default();
    suite.add("semver", 587, cases);
    suite.run()
}
