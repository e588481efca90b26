//! Recorded answers of a real kube-apiserver (`tests/recorded`), one trial for each answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::process::ExitCode;

use serde_json::Value;
use tenure_trials::{Suite, name_of_line};

mod builtin;
mod custom;
mod protobuf;
mod strategic;
mod tables;

/// A case: its name, and its check.
struct Case {
    name: String,
    check: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

impl Case {
    fn new(name: String, check: impl FnOnce() -> Result<(), String> + Send + 'static) -> Self {
        let check = Box::new(check);
        Self { name, check }
    }
}

/// Reads each line with its number.
fn read_lines(recorded: &str) -> Vec<(usize, Value)> {
    let lines = recorded.lines().enumerate();
    lines
        .map(|(index, line)| (index + 1, serde_json::from_str(line).unwrap()))
        .collect()
}

/// Names a case by its kind and the first thing that the real server found wrong.
fn name_answer(line: usize, case: &Value) -> String {
    let (object, answer) = (&case["object"], &case["answer"]);
    if answer["kind"] != "Status" {
        return name_object(line, object);
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    let found = answer.pointer("/details/causes/0").map_or_else(
        || answer["message"].as_str().unwrap_or_default().to_owned(),
        |cause| format!("{} {}", cause["field"], cause["message"]),
    );
    name_of_line(line, &format!("{kind} {found}"))
}

/// Names a case by the object that was accepted unchanged.
fn name_object(line: usize, object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name_of_line(line, &format!("{kind} {} accepted", name.unwrap_or_default()))
}

fn main() -> ExitCode {
    let mut suite = Suite::default();
    for (group, least, cases) in [
        ("create", 204, builtin::creations()),
        ("update", 44, builtin::updates()),
        ("definitions", 78, custom::definitions()),
        ("custom_resources", 142, custom::resources()),
        ("custom_updates", 16, custom::updates()),
        ("strategic", 39, strategic::patches()),
        ("encoded_by_go", 95, protobuf::encoded_by_go()),
        ("sent_by_kubectl", 22, protobuf::sent_by_kubectl()),
        ("tables", 110, tables::rows()),
        ("ages", 36, tables::ages()),
    ] {
        suite.add(group, least, cases.into_iter().map(|case| (case.name, case.check)));
    }
    suite.run()
}
