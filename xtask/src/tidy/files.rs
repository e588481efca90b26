//! Rules for single files: a module begins with its documentation, a file holds one idea, has no banned name, and has no text about a machine or a registry.

use std::path::Path;

use super::{Finding, list_tracked_files};

/// The most lines: a longer file nearly always has two ideas.
const LONGEST: usize = 600;

/// Files beyond the limit that are still one idea, with the reason. The list only shrinks.
const LONG_FILES: &[(&str, &str)] = &[];

/// Names that say nothing about the content.
const BANNED_NAMES: &[&str] = &["util", "utils", "common", "core", "helper", "helpers", "misc"];

/// Text that has no place in the project: paths of one machine, hosts of package registries. Each is written in two halves so that this file does not break its own rule.
const BANNED_TEXT: &[(&str, &str)] = &[
    ("/work", "/"),
    ("index.crates", ".io"),
    ("proxy.golang", ".org"),
    ("deb.debian", ".org"),
];

/// Files that are exempt from the banned text: `.ci/run` installs programs, the lock file records registries.
const EXEMPT: &[&str] = &["Cargo.lock", ".ci/run"];

/// Checks every tracked file.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in list_tracked_files(root)? {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            continue;
        };
        if !EXEMPT.contains(&path.as_str()) {
            findings.extend(text_findings(&path, &text));
        }
        if path.ends_with(".rs") {
            findings.extend(source_findings(&path, &text));
        }
    }
    Ok(findings)
}

fn text_findings(path: &str, text: &str) -> Vec<Finding> {
    let banned = |(first, second): &(&str, &str)| {
        let word = format!("{first}{second}");
        text.contains(&word)
            .then(|| Finding::new(path, format!("names {word:?}, which has no place in the project")))
    };
    BANNED_TEXT.iter().filter_map(banned).collect()
}

fn source_findings(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let opens_with_docs = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.starts_with("//!") || line.starts_with("#!["));
    if !opens_with_docs {
        findings.push(Finding::new(
            path,
            "opens without `//!`: say what the module owns and what it refuses",
        ));
    }
    let lines = text.lines().count();
    if lines > LONGEST && !LONG_FILES.iter().any(|(long, _)| *long == path) {
        findings.push(Finding::new(
            path,
            format!("{lines} lines: two ideas in one room? Split it"),
        ));
    }
    if text.lines().any(|line| line.ends_with([' ', '\t'])) {
        findings.push(Finding::new(path, "has trailing white space: run cargo fmt"));
    }
    let stem = Path::new(path)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let in_banned_folder = Path::new(path).components().any(|part| {
        part.as_os_str()
            .to_str()
            .is_some_and(|part| BANNED_NAMES.contains(&part))
    });
    if BANNED_NAMES.contains(&stem) || in_banned_folder {
        findings.push(Finding::new(
            path,
            "bears a name that says nothing about what is inside: name the idea",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, want: &[&str]) {
        let mut got: Vec<String> = source_findings(path, text)
            .into_iter()
            .map(|finding| finding.what)
            .collect();
        got.extend(text_findings(path, text).into_iter().map(|finding| finding.what));
        assert_eq!(got.len(), want.len(), "{path}: {got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "{got} lacks {want}");
        }
    }

    #[test]
    fn files() {
        check("a/merge.rs", "//! Owns merge.\n", &[]);
        check("a/merge.rs", "fn main() {}\n", &["opens without"]);
        check("a/utils.rs", "//! Owns.\n", &["says nothing"]);
        check("a/common/x.rs", "//! Owns.\n", &["says nothing"]);
        check("a/x.rs", &format!("//! Owns.\n{}", "\n".repeat(600)), &["Split it"]);
        check("a/x.rs", "//! Owns. \n", &["trailing"]);
        check("a/x.rs", &format!("//! See {}{}x.\n", "/work", "/"), &["no place"]);
    }
}
