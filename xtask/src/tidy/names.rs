//! Forbids two names beside each other that differ only by an s: a reader easily confuses `object::` and `objects::`, or `Hook` and `Hooks`. The rule covers modules of
//! one folder, and types of one file. A type with many items should be named for its form (an index, a table, a reader).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{Finding, list_tracked_files};

const KEYWORDS: [&str; 4] = ["struct ", "enum ", "trait ", "type "];

/// Lists the pairs among the project's own files.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut findings = Vec::new();
    for path in list_tracked_files(root)? {
        let Some((folder, file)) = path.rsplit_once('/').filter(|_| path.contains("/src/")) else {
            continue;
        };
        let Some(module) = file.strip_suffix(".rs") else {
            continue;
        };
        folders.entry(folder.to_owned()).or_default().insert(module.to_owned());
        if let Some((parent, own)) = folder.rsplit_once('/') {
            folders.entry(parent.to_owned()).or_default().insert(own.to_owned());
        }
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let pairs = find_pairs(&declared_types(&text));
        findings.extend(pairs.into_iter().map(|name| report_name(&path, &name)));
    }
    for (folder, modules) in folders {
        findings.extend(find_pairs(&modules).into_iter().map(|name| report_name(&folder, &name)));
    }
    Ok(findings)
}

fn report_name(place: &str, name: &str) -> Finding {
    let what = format!(
        "`{name}` and `{name}s` differ by an s; say what the one that holds many is (an index, a table, a reader)"
    );
    Finding::new(place, what)
}

/// Lists the types that a file declares outside of other items. Indented declarations belong to a trait, a function or a test.
fn declared_types(text: &str) -> BTreeSet<String> {
    let declared = |line: &str| {
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.strip_prefix(' ')?,
            None => line,
        };
        let rest = KEYWORDS.iter().find_map(|keyword| line.strip_prefix(keyword))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        Some(rest.get(..end.unwrap_or(rest.len()))?.to_owned())
    };
    text.lines().filter_map(declared).collect()
}

/// Lists the names that also exist with an s at the end.
fn find_pairs(names: &BTreeSet<String>) -> Vec<String> {
    let is_pair = |name: &&String| names.contains(&format!("{name}s"));
    names.iter().filter(is_pair).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_whoever_may_see_them() {
        let text = "pub(crate) struct Hook {\npub struct Hooks<'a>(u8);\nenum Word<'a> {\n    type Item = u8;\npublic\npub(super) type Turn = u8;\n";
        let names = declared_types(text);
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            ["Hook", "Hooks", "Turn", "Word"]
        );
        assert_eq!(find_pairs(&names), ["Hook"]);
    }
}
