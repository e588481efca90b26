//! Recorded answers of Masterminds/semver v3 for ranges of versions (`tests/data/range.json`), one trial for each.

use std::sync::Arc;

use go_words::version::{Range, Version};
use serde_json::Value;
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
            .filter(|version| range.matches(&Version::parse(version.trim_start_matches('v')).unwrap()));
        matching.map(String::as_str).collect::<Vec<_>>().join(" ")
    });
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{range:?}\n  real: {expected:?}\n  ours: {actual:?}"))
    }
}

/// Returns a name in which signs are words, because most ranges have the same digits.
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

/// Adds the trials.
pub(crate) fn add(suite: &mut Suite) {
    let recorded: Value = serde_json::from_str(include_str!("../data/range.json")).unwrap();
    let versions = recorded["versions"].as_array().unwrap().iter();
    let versions: Arc<[String]> = versions.map(|version| version.as_str().unwrap().to_owned()).collect();
    let cases = recorded["cases"].as_array().unwrap().clone().into_iter().enumerate();
    let cases = cases.map(|(index, case)| {
        let versions = versions.clone();
        let name = name_range(index, case["range"].as_str().unwrap());
        (name, move || check(&case, &versions))
    });
    suite.add("range", 587, cases);
}
