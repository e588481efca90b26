//! Checks that a test exists if a document names it. A document names a test by a link whose text is one name in backticks and whose target is a Rust file, or a
//! scenario: a YAML file of that name with its recording. Every row of a table with a column for tests has to name one. Whether the test shows the promise is not
//! checked.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{Finding, list_tracked_files};

/// The title of a last column whose rows all have to name a test.
const SHOWN_BY: &str = "shown by";

/// Lists the named tests that don't exist.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in list_tracked_files(root)?
        .into_iter()
        .filter(|path| path.ends_with(".md"))
    {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for (name, target) in find_promises(&text) {
            let is_there = has_test(&root.join(folder).join(target), name);
            if !is_there {
                let what = format!("{target} has no `{name}`: name the test that shows it, or take the promise back");
                findings.push(Finding::new(&path, what));
            }
        }
        for row in find_unshown(&text) {
            let what = format!("no test shows this, or none is named: {row}");
            findings.push(Finding::new(&path, what));
        }
    }
    Ok(findings)
}

/// Checks whether a file has a test of a name: a function, a group of trials, or a scenario with its recording.
fn has_test(file: &Path, name: &str) -> bool {
    if file.extension().is_some_and(|extension| extension == "yaml") {
        return file.file_stem().is_some_and(|stem| stem == name)
            && file.is_file()
            && file.with_extension("snap").is_file();
    }
    fs::read_to_string(file)
        .is_ok_and(|code| code.contains(&format!("fn {name}(")) || code.contains(&format!("suite.add(\"{name}\",")))
}

/// Lists the rows without a test, in tables with a column for tests.
fn find_unshown(text: &str) -> Vec<&str> {
    let mut unshown = Vec::new();
    let mut is_shown_by = false;
    let mut before = "";
    for line in text.lines() {
        let is_row = line.starts_with('|');
        if is_row && !before.starts_with('|') {
            is_shown_by = last_cell(line) == SHOWN_BY;
        } else if is_row && is_shown_by && !line.starts_with("|---") && find_promises(last_cell(line)).is_empty() {
            unshown.push(line);
        }
        before = line;
    }
    unshown
}

fn last_cell(row: &str) -> &str {
    let row = row.trim_end().trim_end_matches('|');
    row.rsplit_once('|').map_or(row, |(_, cell)| cell).trim()
}

/// Lists the tests that a text names, each with its file.
fn find_promises(text: &str) -> Vec<(&str, &str)> {
    let promise = |part: &'_ str| -> Option<(usize, usize)> {
        let end = part.find("`](")?;
        let name = part.get(..end)?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let length = part.get(end + 3..)?.find(')')?;
        let target = part.get(end + 3..end + 3 + length)?;
        let is_test = target.ends_with(".rs") || (target.contains("/tests/scenarios/") && target.ends_with(".yaml"));
        (is_name && is_test).then_some((end, length))
    };
    let parts = text.match_indices("[`").filter_map(|(at, _)| text.get(at + 2..));
    parts
        .filter_map(|part| {
            let (end, length) = promise(part)?;
            Some((part.get(..end)?, part.get(end + 3..end + 3 + length)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_tests_are_promises() {
        let text = "[`a_test`](../a.rs), [`kinds`](kinds.md), [`two words`](b.rs), [plain](c.rs) [`open`](";
        assert_eq!(find_promises(text), [("a_test", "../a.rs")]);
        let text = "[`scenario`](../tests/scenarios/kind/scenario.yaml), [`file`](deploy/file.yaml)";
        assert_eq!(
            find_promises(text),
            [("scenario", "../tests/scenarios/kind/scenario.yaml")]
        );
    }

    #[test]
    fn row_without_a_test_link_is_found() {
        let text =
            "| a | shown by |\n|---|---|\n| b | [`t`](t.rs) |\n| c | \\| later |\n\n| d | e |\n|---|---|\n| f | g |\n";
        assert_eq!(find_unshown(text), ["| c | \\| later |"]);
    }

    #[test]
    fn scenario_and_trial_names_count_as_tests() {
        let file = |path: &str| {
            super::super::find_root()
                .join("crates/planner/tests/scenarios/kustomization")
                .join(path)
        };
        assert!(has_test(&file("deletion.yaml"), "deletion"));
        assert!(!has_test(&file("deletion.yaml"), "another") && !has_test(&file("missing.yaml"), "missing"));
        assert!(has_test(
            &super::super::find_root().join("crates/planner/tests/trials/main.rs"),
            "kustomization"
        ));
        assert!(!has_test(
            &super::super::find_root().join("crates/planner/tests/trials/main.rs"),
            "kustom"
        ));
    }
}
