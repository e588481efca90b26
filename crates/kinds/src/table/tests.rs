//! Rows compared with those of the real server; ages with Go's own function.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Columns, CustomColumns, IncludeObject, JsonPath, columns, human_duration};

/// An age as `kubectl get` shows it: digits with units.
fn is_age(text: &str) -> bool {
    let units = text
        .chars()
        .all(|letter| letter.is_ascii_digit() || "smhdy".contains(letter));
    units && text.starts_with(|first: char| first.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'd', 'y'])
}

/// When the rows were made nobody wrote down; ages are checked by themselves.
fn masked(cell: &Value) -> Value {
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
        columns(group, text("version"), resource)
    };
    let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
    let object = case.get("object").unwrap();
    let row = columns.row(object, IncludeObject::None, now);
    let ours: Vec<Value> = row
        .get("cells")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(masked)
        .collect();
    let theirs: Vec<Value> = case
        .get("cells")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(masked)
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

#[test]
fn rows_are_the_real_servers() {
    let recorded = include_str!("../../tests/recorded/custom_resources.jsonl");
    let definition: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    let declared = definition.pointer("/definition/spec/versions/0/additionalPrinterColumns");
    let custom = Columns::Custom(CustomColumns::new(declared));
    let recorded = include_str!("../../tests/recorded/tables.jsonl");
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        // What a table shows of version 1 is made from version 2, which is what is stored.
        if case.get("resource") == Some(&json!("horizontalpodautoscalers")) && case.get("version") == Some(&json!("v1"))
        {
            continue;
        }
        if let Err(problem) = check(&case, &custom) {
            wrong.push(format!(
                "{} {}\n  {problem}",
                case.get("resource").unwrap(),
                case.pointer("/object/metadata/name").unwrap()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        recorded.lines().count(),
        wrong.join("\n")
    );
}

#[test]
fn ages_are_kubectls() {
    let recorded = include_str!("../../tests/recorded/durations.tsv");
    for line in recorded.lines() {
        let (seconds, want) = line.split_once('\t').unwrap();
        assert_eq!(human_duration(seconds.parse().unwrap()), want, "{seconds}");
    }
}

#[test]
fn paths_outside_the_language_are_refused() {
    for path in ["..a", ".a[", ".a[?(@.b", ".a{b}", ".a[x]"] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    let object = json!({"a": {"b.c": [1, 2, 3]}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]});
    let check = |path: &str, want: Value| {
        let found: Vec<Value> = JsonPath::parse(path)
            .unwrap()
            .find(&object)
            .into_iter()
            .cloned()
            .collect();
        assert_eq!(Value::Array(found), want, "{path}");
    };
    check(".a['b.c'][0]", json!([1]));
    check(".a.b\\.c[-1]", json!([3]));
    check("{.a.b\\.c[1:]}", json!([2, 3]));
    check(".l[?(@.v>1)].n", json!(["y"]));
    check(".l[?(@.n=='x')].v", json!([1]));
    check(".l[*].v", json!([1, 2]));
    check(".missing.x", json!([]));
}
