//! Rows compared with those of the real server; ages compared with Go's own function.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_kinds::built_in::find_columns;
use tenure_kinds::table::{Columns, CustomColumns, IncludeObject, human_duration};
use tenure_trials::name_of_line;

use crate::{Case, read_lines};

/// Checks for an age as `kubectl get` shows it: digits with units.
fn is_age(text: &str) -> bool {
    let units = text
        .chars()
        .all(|letter| letter.is_ascii_digit() || "smhdy".contains(letter));
    units && text.starts_with(|first: char| first.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'd', 'y'])
}

/// Masks ages. The time of the recording is unknown, and other tests check ages.
fn mask_age(cell: &Value) -> Value {
    match cell.as_str() {
        Some(text) if is_age(text) => json!("AGE"),
        Some(text) => match text.split_once(" (") {
            Some((count, rest)) if rest.ends_with(" ago)") => json!(format!("{count} (AGE ago)")),
            _ => cell.clone(),
        },
        None => cell.clone(),
    }
}

fn check(case: &Value, custom: &Columns) -> Result<(), String> {
    let text = |field: &str| case.get(field).and_then(Value::as_str).unwrap();
    let (group, resource) = (text("group"), text("resource"));
    let columns = if resource == "widgets" {
        custom.clone()
    } else {
        find_columns(group, text("version"), resource)
    };
    let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
    let object = case.get("object").unwrap();
    let row = columns.row(object, IncludeObject::None, now);
    let ours: Vec<Value> = row
        .get("cells")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(mask_age)
        .collect();
    let theirs: Vec<Value> = case
        .get("cells")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(mask_age)
        .collect();
    if ours != theirs {
        return Err(format!("{ours:?}\n  want {theirs:?}"));
    }
    let conditions = row.get("conditions").unwrap_or(&Value::Null);
    if conditions != case.get("conditions").unwrap() {
        return Err(format!("conditions {conditions}"));
    }
    // Addresses have a cell more than columns.
    if resource != "ipaddresses" && ours.len() != columns.definitions().len() {
        return Err(format!(
            "{} cells for {} columns",
            ours.len(),
            columns.definitions().len()
        ));
    }
    match case.get("columns") {
        Some(want) if *want != Value::Array(columns.definitions()) => {
            Err(format!("columns {:#?}", columns.definitions()))
        }
        _ => Ok(()),
    }
}

/// Returns the recorded rows. The rows of a version 1 autoscaler are made from version 2, which is the stored version.
pub(crate) fn rows() -> Vec<Case> {
    let resources = read_lines(include_str!("../recorded/custom_resources.jsonl"));
    let (_, definition) = resources.first().unwrap();
    let declared = definition.pointer("/definition/spec/versions/0/additionalPrinterColumns");
    let custom = Columns::Custom(CustomColumns::new(declared));
    let recorded = read_lines(include_str!("../recorded/tables.jsonl")).into_iter();
    let cases = recorded.filter(|(_, case)| case["resource"] != "horizontalpodautoscalers" || case["version"] != "v1");
    cases
        .map(|(line, case)| {
            let custom = custom.clone();
            let object = case.pointer("/object/metadata/name").unwrap();
            let name = name_of_line(line, &format!("{} {object}", case["resource"]));
            Case::new(name, move || {
                check(&case, &custom).map_err(|problem| {
                    let object = case.pointer("/object/metadata/name").unwrap();
                    format!("{} {object}\n  {problem}", case["resource"])
                })
            })
        })
        .collect()
}

/// Ages are kubectl's.
pub(crate) fn ages() -> Vec<Case> {
    let recorded = include_str!("../recorded/durations.tsv").lines();
    recorded
        .map(|line| {
            let (seconds, want) = line.split_once('\t').unwrap();
            Case::new(format!("{seconds}_seconds"), move || {
                assert_eq!(human_duration(seconds.parse().unwrap()), want, "{seconds}");
                Ok(())
            })
        })
        .collect()
}
