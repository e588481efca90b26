//! Finds modules of a crate that depend on each other in a circle. The list of known circles may only shrink, and is empty. Tests and modules below the top level are not
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;

use super::{Finding, list_tracked_files};

/// A known circle: the crate's folder, and its modules.
type Known = (&'static str, &'static [&'static str]);

/// Crates that are checked, and their known circles. A crate without a circle may get none.
const CRATES: &[&str] = &[
    "crates/kinds",
    "crates/auth",
    "crates/apiserver",
    "crates/controllers",
    "crates/planner",
    "crates/git-access",
    "crates/inspection",
    "crates/remote-requests",
    "crates/tenancy",
    "crates/admission-rules",
];

/// The known circles.
const KNOWN: &[Known] = &[];

/// The modules that each module of a crate names.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Compares the circles with the known ones.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let files = list_tracked_files(root)?;
    let mut findings = Vec::new();
    for folder in CRATES {
        let found = find_circles(&list_edges(root, folder, &files)?);
        let known: Vec<BTreeSet<String>> = KNOWN
            .iter()
            .filter(|(place, _)| place == folder)
            .map(|(_, modules)| modules.iter().map(|module| (*module).to_owned()).collect())
            .collect();
        for circle in found.iter().filter(|circle| !known.contains(circle)) {
            let names: Vec<&str> = circle.iter().map(String::as_str).collect();
            let what = format!(
                "these modules reach each other in a circle: {}; untie it, or shorten the list in xtask/src/tidy/circles.rs if it got smaller",
                names.join(", ")
            );
            findings.push(Finding::new(*folder, what));
        }
        for circle in known.iter().filter(|circle| !found.contains(circle)) {
            let names: Vec<&str> = circle.iter().map(String::as_str).collect();
            let what = format!(
                "this circle is gone: {}; take it out of xtask/src/tidy/circles.rs",
                names.join(", ")
            );
            findings.push(Finding::new(*folder, what));
        }
    }
    Ok(findings)
}

/// Returns the other modules that each top-level module of a crate names.
fn list_edges(root: &Path, folder: &str, files: &[String]) -> anyhow::Result<Edges> {
    let sources = format!("{folder}/src/");
    let mut edges = Edges::new();
    let own = files
        .iter()
        .filter_map(|file| Some((file, file.strip_prefix(&sources)?)));
    for (file, below) in own.filter(|(_, below)| below.ends_with(".rs") && !is_test(below)) {
        let module = below.split(['/', '.']).next().unwrap_or_default();
        if matches!(module, "lib" | "main") {
            continue;
        }
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let reached = edges.entry(module.to_owned()).or_default();
        let named = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in named {
            let paths = line.split("crate::").skip(1);
            let others = paths.flat_map(first_words).filter(|other| *other != module);
            reached.extend(others.map(str::to_owned));
        }
    }
    Ok(edges)
}

fn is_test(below: &str) -> bool {
    below.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Returns the modules at the beginning of a path: several if braces follow.
fn first_words(path: &str) -> Vec<&str> {
    let inner = path.strip_prefix('{').and_then(|rest| rest.split('}').next());
    let words: Vec<&str> = match inner {
        Some(inner) => inner.split(',').map(|part| first_word(part.trim_start())).collect(),
        None => vec![first_word(path)],
    };
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

fn first_word(text: &str) -> &str {
    let end = text.find(|character: char| !(character.is_alphanumeric() || character == '_'));
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Returns the largest sets of modules that all reach each other.
fn find_circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|from| (from.as_str(), all_from(edges, from)))
        .collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (from, others) in &reached {
        let circle: BTreeSet<String> = others
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(from)))
            .chain([from])
            .map(|module| (*module).to_owned())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn all_from<'a>(edges: &'a Edges, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        let others = edges.get(module).into_iter().flatten();
        next.extend(others.map(String::as_str).filter(|other| found.insert(*other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_whole() {
        let edges = |pairs: &[(&str, &str)]| {
            let mut edges = Edges::new();
            for (from, to) in pairs {
                edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            edges
        };
        assert!(find_circles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = find_circles(&edges(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("d", "a"),
            ("e", "f"),
            ("f", "e"),
        ]));
        let names: Vec<String> = found
            .iter()
            .map(|circle| circle.iter().cloned().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(names, ["a b c", "e f"]);
    }

    #[test]
    fn a_path_begins_with_its_module() {
        assert_eq!(first_words("schema::{FieldPath, once}"), ["schema"]);
        assert_eq!(first_words("{kinds, strategy::prepare};"), ["kinds", "strategy"]);
        assert_eq!(first_words("yaml;"), ["yaml"]);
    }
}
