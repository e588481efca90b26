//! Compares the fuzz targets with the modules `fuzzing` of the crates. CI compiles no target, so without this check a renamed module or function would be found only at
//! the next run of the targets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Finding, list_tracked_files};

const MANIFEST: &str = "fuzz/Cargo.toml";
const DECLARATIONS: [&str; 5] = ["pub fn ", "pub struct ", "pub const ", "pub type ", "pub mod "];

/// Checks that each target calls checks that exist, and that each module of checks has a target.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let crates = list_crates(&read(MANIFEST)?);
    let mut checks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut callers = Vec::new();
    for path in list_tracked_files(root)?.iter().filter(|path| path.ends_with(".rs")) {
        if let Some(folder) = find_crate_of_checks(path) {
            let names = checks.entry(folder.to_owned()).or_default();
            names.extend(list_declared_names(&read(path)?));
        } else if path.starts_with("fuzz/") {
            callers.push(path.clone());
        }
    }
    let mut findings = Vec::new();
    let mut called = BTreeSet::new();
    for path in callers {
        for (name, items) in list_used_items(&read(&path)?) {
            let folder = crates.get(&name);
            let known = folder.and_then(|folder| checks.get(folder));
            let Some((folder, known)) = folder.zip(known) else {
                let what = format!(
                    "uses `{name}::…::fuzzing`, but no crate of {MANIFEST} with this name has such a module: name the crate that has it now"
                );
                findings.push(Finding::new(&path, what));
                continue;
            };
            called.insert(folder.clone());
            for item in items.difference(known) {
                let what =
                    format!("uses `{item}`, which no module `fuzzing` of {folder} declares: change the target, too");
                findings.push(Finding::new(&path, what));
            }
        }
    }
    for folder in checks.keys().filter(|folder| !called.contains(*folder)) {
        let what = format!(
            "has a module `fuzzing`, but no target in fuzz/targets uses it: write one, and list it in {MANIFEST}"
        );
        findings.push(Finding::new(folder, what));
    }
    Ok(findings)
}

/// Lists the project's crates in a manifest, by their names in code, with their folders.
fn list_crates(manifest: &str) -> BTreeMap<String, String> {
    let crate_of = |line: &str| {
        let (name, rest) = line.split_once(" = { path = \"../")?;
        Some((name.replace('-', "_"), rest.split_once('"')?.0.to_owned()))
    };
    manifest.lines().filter_map(crate_of).collect()
}

/// Returns the folder of the crate if a file belongs to a module `fuzzing`.
fn find_crate_of_checks(path: &str) -> Option<&str> {
    let (folder, inner) = path.split_once("/src/")?;
    let is_check = inner.split('/').any(|part| matches!(part, "fuzzing" | "fuzzing.rs"));
    (is_check && folder.starts_with("crates/")).then_some(folder)
}

/// Returns the identifier at the beginning of a text.
fn take_identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Lists the public names of a file, with re-exported ones.
fn list_declared_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(passed_on) = line.strip_prefix("pub use ") {
            let parts = passed_on.split(|c: char| !c.is_alphanumeric() && c != '_');
            names.extend(parts.map(str::to_owned));
        }
        let declared = DECLARATIONS.iter().find_map(|word| line.strip_prefix(word));
        names.extend(declared.map(|rest| take_identifier(rest).to_owned()));
    }
    names
}

/// Lists the items of modules `fuzzing` that a file uses, by crate.
fn list_used_items(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let imports = text.split(';').filter_map(|part| {
        let end = part.rsplit_once("\nuse ").map(|(_, end)| end);
        end.or_else(|| part.strip_prefix("use "))
    });
    for import in imports {
        let Some((before, imported)) = import.split_once("::fuzzing") else {
            continue;
        };
        let items = used.entry(take_identifier(before).to_owned()).or_default();
        let imported: Vec<&str> = imported
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|name| !name.is_empty() && *name != "self")
            .collect();
        items.extend(imported.iter().map(|name| (*name).to_owned()));
        for name in imported.iter().chain(&["fuzzing"]) {
            items.extend(list_identifiers_after(text, &format!("{name}::")));
        }
        // Methods of recorded inputs.
        items.extend(list_identifiers_after(text, "recorded."));
        items.extend(list_identifiers_after(text, "Recorded::default()."));
        items.retain(|name| name != "default" && name != "fuzzing");
    }
    used
}

/// Lists the identifiers that stand in a text after a prefix which begins a word, outside of imports.
fn list_identifiers_after(text: &str, prefix: &str) -> Vec<String> {
    let begins_word = |at: usize| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    };
    text.match_indices(prefix)
        .filter(|(at, _)| begins_word(*at))
        .filter_map(|(at, _)| text.get(at + prefix.len()..))
        .map(|rest| take_identifier(rest).to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn used_items_are_found() {
        let text = "//! A target.\n#![no_main]\n\nuse libfuzzer_sys::fuzz_target;\nuse tenure_sources::fuzzing::tar;\nuse sops::fuzzing::{self, Recorded};\n\n\
                    fuzz_target!(init: seeds(\"tar\", tar::seeds()), |bytes: &[u8]| {\n    tar::check(bytes);\n    fuzzing::check_keys(bytes);\n    recorded.check_file(bytes);\n    Recorded::default().file_seeds();\n});\n";
        let used = list_used_items(text);
        assert_eq!(used.keys().collect::<Vec<_>>(), ["sops", "tenure_sources"]);
        assert!(used["tenure_sources"].is_superset(&names(&["tar", "seeds", "check"])));
        assert!(used["sops"].is_superset(&names(&["Recorded", "check_keys", "check_file", "file_seeds"])));
    }

    #[test]
    fn declared_names_and_crates_are_found() {
        let text = "pub use crate::oci::fuzzing::{layer, manifest};\npub use a::fuzzing as listing;\npub mod tar;\n    pub fn check(bytes: &[u8]) {\n";
        assert!(list_declared_names(text).is_superset(&names(&["layer", "manifest", "listing", "tar", "check"])));
        let manifest = "sops = { path = \"../crates/sops\" }\ntenure-sources = { path = \"../crates/sources\", optional = true }\nserde = \"1\"\n";
        let crates = list_crates(manifest);
        assert_eq!(crates.get("tenure_sources").map(String::as_str), Some("crates/sources"));
        assert_eq!(crates.len(), 2);
        assert_eq!(find_crate_of_checks("crates/a/src/fuzzing/tar.rs"), Some("crates/a"));
        assert_eq!(find_crate_of_checks("crates/a/src/tar.rs"), None);
    }
}
