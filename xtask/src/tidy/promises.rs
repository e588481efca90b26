//! What a document promises with the name of a test has that test. Owns how such promises are read: a link whose text is one name in backticks and whose
//! target is a Rust file; refuses to judge whether the test shows what is promised.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{Finding, tracked};

/// The promises in the documents whose test isn't there.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in tracked(root)?.into_iter().filter(|path| path.ends_with(".md")) {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for (name, target) in find_promises(&text) {
            let file = root.join(folder).join(target);
            let is_there = fs::read_to_string(file).is_ok_and(|code| code.contains(&format!("fn {name}(")));
            if !is_there {
                let what = format!("{target} has no `{name}`: name the test that shows it, or take the promise back");
                findings.push(Finding::new(&path, what));
            }
        }
    }
    Ok(findings)
}

/// The tests that a text names, each with its file.
fn find_promises(text: &str) -> Vec<(&str, &str)> {
    let promise = |part: &'_ str| -> Option<(usize, usize)> {
        let end = part.find("`](")?;
        let name = part.get(..end)?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let length = part.get(end + 3..)?.find(')')?;
        (is_name && part.get(end + 3..end + 3 + length)?.ends_with(".rs")).then_some((end, length))
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
    }
}
