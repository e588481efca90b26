//! Keeps the map correct: every path in ARCHITECTURE.md and the other documents exists, and every crate is on the map.

use std::path::Path;

use super::{Finding, list_tracked_files};

/// Documents whose links and paths are checked.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Checks relative links of every Markdown file, and the map's paths.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS.iter().filter(|document| !root.join(document).exists()) {
        findings.push(Finding::new(*document, "is missing"));
    }
    for path in list_tracked_files(root)?
        .iter()
        .filter(|path| path.ends_with(".md") && !path.contains("/tests/"))
    {
        let text = std::fs::read_to_string(root.join(path))?;
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        for link in find_links(&text) {
            if !root.join(folder).join(link).exists() {
                findings.push(Finding::new(path, format!("links to {link}, which does not exist")));
            }
        }
        if DOCUMENTS.contains(&path.as_str()) {
            for named in find_paths(&text).into_iter().filter(|named| !root.join(named).exists()) {
                findings.push(Finding::new(path, format!("names `{named}`, which does not exist")));
            }
        }
    }
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = format!("crates/{}", entry?.file_name().to_string_lossy());
        if !map.contains(&format!("`{folder}`")) {
            findings.push(Finding::new(
                "ARCHITECTURE.md",
                format!("has no paragraph on `{folder}`"),
            ));
        }
    }
    Ok(findings)
}

/// Lists relative link targets of a Markdown text, without fragments.
fn find_links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
        .collect()
}

/// Lists paths in backticks that begin in one of the project's folders.
fn find_paths(text: &str) -> Vec<&str> {
    const FOLDERS: &[&str] = &["crates/", "xtask/", "docs/", "deploy/", ".ci/"];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| FOLDERS.iter().any(|folder| quoted.starts_with(folder)))
        .filter(|quoted| !quoted.contains(['*', '<', ' ', '{', '…']))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_repository_paths_count_as_paths() {
        assert_eq!(
            find_paths("see `crates/api` and `cargo test`, `crates/<kind>`"),
            ["crates/api"]
        );
        assert_eq!(find_links("[a](docs/a.md#b) [b](https://x) [c](#d)"), ["docs/a.md"]);
    }
}
