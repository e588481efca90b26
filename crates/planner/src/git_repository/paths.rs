//! Paths of a spec that lead into a repository's files.
//!
//! A path must be relative to the root, of plain parts. A path that leads anywhere else is refused, though no code here or later would follow it: a path that means
//! something else than it seems is a mistake.

use crate::source::SourceRefusal;

/// The longest path that the archive of an artifact may hold.
const LONGEST: usize = 1024;

/// Reads the path of a folder or a file. The result has no `./` in front and no `/` at the end, and is empty for the root.
pub(super) fn read_path(field: &str, text: &str) -> Result<String, SourceRefusal> {
    let refuse = |problem: &str| {
        Err(SourceRefusal::invalid(format!(
            "{field}: {text:?} {problem}; write a path from the root of the repository, such as deploy/base"
        )))
    };
    let path = text.strip_prefix("./").unwrap_or(text);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() || path == "." {
        return if text == "/" {
            refuse("is absolute")
        } else {
            Ok(String::new())
        };
    }
    if path.starts_with('/') {
        return refuse("is absolute");
    }
    if path.len() > LONGEST {
        return Err(SourceRefusal::invalid(format!(
            "{field} is longer than {LONGEST} bytes"
        )));
    }
    if path.chars().any(char::is_control) {
        return refuse("holds a control character");
    }
    for part in path.split('/') {
        match part {
            ".." => return refuse("leads out of a folder with \"..\""),
            "" | "." => return refuse("has an empty or \".\" part"),
            part if part.eq_ignore_ascii_case(".git") => return refuse("leads into .git"),
            _ => {}
        }
    }
    Ok(path.to_owned())
}
