//! Reads commits, tags and trees.

use super::oid::{Algorithm, Oid};

/// The parts of a commit that a fetch needs: its tree, and the first line of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitObject {
    pub(crate) tree: Oid,
    pub(crate) subject: String,
}

/// Reads a commit; `None` if it is malformed.
pub(crate) fn read_commit(content: &[u8]) -> Option<CommitObject> {
    let text = String::from_utf8_lossy(content);
    let (headers, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let header = |name: &str| {
        headers
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    let tree = Oid::from_hex(header("tree")?.as_bytes())?;
    let subject = message.trim_start().lines().next().unwrap_or_default().trim();
    Some(CommitObject {
        tree,
        subject: subject.chars().filter(|c| !c.is_control()).take(200).collect(),
    })
}

/// Reads the target of a tag object; `None` if it is malformed.
pub(crate) fn read_tag_target(content: &[u8]) -> Option<Oid> {
    let line = content.split(|byte| *byte == b'\n').next()?;
    Oid::from_hex(line.strip_prefix(b"object ")?)
}

/// The kind of a tree entry, which its mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    File,
    Executable,
    Link,
    Tree,
    Submodule,
}

/// An entry of a Git tree: a file, link, folder or submodule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeEntry<'a> {
    pub(crate) mode: Mode,
    pub(crate) name: &'a [u8],
    pub(crate) oid: Oid,
}

/// Reads a tree; `None` if it is malformed.
pub(crate) fn read_tree(content: &[u8], algorithm: Algorithm) -> Option<Vec<TreeEntry<'_>>> {
    let mut entries = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let (mode, tail) = rest.split_at_checked(space)?;
        let tail = tail.get(1..)?;
        let end = tail.iter().position(|byte| *byte == 0)?;
        let (name, tail) = tail.split_at_checked(end)?;
        let (oid, tail) = tail.get(1..)?.split_at_checked(algorithm.length())?;
        let mode = match mode {
            b"100644" | b"100664" | b"100600" => Mode::File,
            b"100755" | b"100775" | b"100700" => Mode::Executable,
            b"120000" => Mode::Link,
            b"40000" | b"040000" => Mode::Tree,
            b"160000" => Mode::Submodule,
            _ => return None,
        };
        entries.push(TreeEntry {
            mode,
            name,
            oid: Oid::from_bytes(oid)?,
        });
        rest = tail;
    }
    Some(entries)
}
