//! The file tree that a build reads: the trait, an implementation on a map, and the resolution of paths and links. A path or link that
//! leaves the tree is an error. This module never reads a filesystem.

use std::collections::BTreeMap;

use crate::error::Error;

/// The maximum number of links on one path. More links count as a loop.
const MAXIMUM_LINKS: usize = 40;

/// The entry of a [`FileTree`] at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'tree> {
    /// A regular file and its bytes.
    File(&'tree [u8]),
    /// A directory; [`FileTree::list`] names its children.
    Directory,
    /// A symbolic link and its target as written, relative to the directory that holds the link.
    Link(&'tree str),
}

/// A read-only tree of files in memory.
///
/// Paths are relative to the root of the tree, separated by `/`, without leading or trailing `/`, and already clean (no `.` or `..`). The
/// root itself is the empty path. An implementation doesn't follow links: the build follows them, so that it can refuse links that leave
/// the tree, with a reason.
pub trait FileTree {
    /// Looks up one clean path; `None` if nothing exists at the path.
    fn entry(&self, path: &str) -> Option<Entry<'_>>;
    /// Names the children of a directory (last path segment only), sorted; empty when it isn't a directory.
    fn list(&self, directory: &str) -> Vec<String>;
    /// Returns whether the file at a clean path is confidential, for example because it was decrypted. The caller has looked up the path
    /// before. Resources built from such a file are confidential ([`crate::BuiltResource::is_confidential`]), and its content must not
    /// appear in any message.
    fn is_confidential(&self, path: &str) -> bool {
        let _ = path;
        false
    }
}

/// A [`FileTree`] on an ordered map.
///
/// ```
/// use kustomize::{FileTree, MapTree};
/// let mut tree = MapTree::new();
/// tree.insert("base/kustomization.yaml", "resources: []");
/// assert_eq!(tree.list("base"), ["kustomization.yaml"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct MapTree {
    entries: BTreeMap<String, StoredEntry>,
}

/// An entry of a [`MapTree`].
#[derive(Debug, Clone)]
enum StoredEntry {
    File(Vec<u8>),
    Directory,
    Link(String),
}

impl MapTree {
    /// Returns an empty tree: only its root directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a file at `path` and creates its directories. The file replaces an existing entry.
    pub fn insert(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.insert_entry(path, StoredEntry::File(content.into()));
    }

    /// Puts a symbolic link at `path`.
    pub fn insert_link(&mut self, path: &str, target: &str) {
        self.insert_entry(path, StoredEntry::Link(target.to_owned()));
    }

    /// Puts a directory at `path`, needed only for directories that stay empty.
    pub fn insert_directory(&mut self, path: &str) {
        self.insert_entry(path, StoredEntry::Directory);
    }

    fn insert_entry(&mut self, path: &str, held: StoredEntry) {
        let clean = clean_path(path);
        let mut end = 0;
        while let Some(next) = clean.get(end..).and_then(|rest| rest.find('/')) {
            end += next;
            if let Some(parent) = clean.get(..end) {
                self.entries.entry(parent.to_owned()).or_insert(StoredEntry::Directory);
            }
            end += 1;
        }
        if clean.is_empty() {
            return;
        }
        self.entries.insert(clean, held);
    }
}

impl FileTree for MapTree {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        if path.is_empty() {
            return Some(Entry::Directory);
        }
        Some(match self.entries.get(path)? {
            StoredEntry::File(bytes) => Entry::File(bytes),
            StoredEntry::Directory => Entry::Directory,
            StoredEntry::Link(target) => Entry::Link(target),
        })
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        self.entries
            .range(prefix.clone()..)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter_map(|(path, _)| path.strip_prefix(&prefix))
            .filter(|rest| !rest.is_empty() && !rest.contains('/'))
            .map(str::to_owned)
            .collect()
    }
}

/// A path after following all links, and the entry at that path.
#[derive(Debug)]
pub(crate) enum Found<'tree> {
    /// A regular file.
    File {
        /// The clean path.
        path: String,
        /// The bytes of the file.
        bytes: &'tree [u8],
    },
    /// A directory, by its clean path.
    Directory(String),
    /// The path is missing.
    Nothing,
}

/// Follows `relative` from the clean directory `from` and returns its target.
///
/// # Errors
/// If the path or a link on the way leaves the tree, or if links form a loop.
pub(crate) fn resolve<'tree>(tree: &'tree dyn FileTree, from: &str, relative: &str) -> Result<Found<'tree>, Error> {
    // As in Go, the path is made clean before any link is followed: `a/..` is empty, even if `a` is a link.
    let whole = clean_path(&format!("{from}/{relative}"));
    let (mut at, mut todo) = match whole.strip_prefix(from).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) if !from.is_empty() => (split_segments(from), split_segments(rest)),
        _ => (Vec::new(), split_segments(&whole)),
    };
    todo.reverse();
    if relative.starts_with('/') {
        return Err(Error::OutsideTree {
            path: relative.to_owned(),
            from: from.to_owned(),
            through: None,
        });
    }
    let mut links = 0;
    let mut through: Option<(String, String)> = None;
    let mut last_file = None;
    while let Some(segment) = todo.pop() {
        if last_file.is_some() {
            return Ok(Found::Nothing);
        }
        if segment == ".." {
            if at.pop().is_none() {
                return Err(Error::OutsideTree {
                    path: relative.to_owned(),
                    from: from.to_owned(),
                    through,
                });
            }
            continue;
        }
        at.push(segment);
        let path = at.join("/");
        match tree.entry(&path) {
            None => return Ok(Found::Nothing),
            Some(Entry::Directory) => {}
            Some(Entry::File(bytes)) => last_file = Some(bytes),
            Some(Entry::Link(target)) => {
                links += 1;
                if links > MAXIMUM_LINKS {
                    return Err(Error::LinkLoop { path });
                }
                if target.starts_with('/') {
                    return Err(Error::OutsideTree {
                        path: relative.to_owned(),
                        from: from.to_owned(),
                        through: Some((path, target.to_owned())),
                    });
                }
                at.pop();
                todo.extend(split_segments(target).into_iter().rev());
                through = Some((path, target.to_owned()));
            }
        }
    }
    let path = at.join("/");
    Ok(match last_file {
        Some(bytes) => Found::File { path, bytes },
        None => Found::Directory(path),
    })
}

fn split_segments(path: &str) -> Vec<String> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .map(str::to_owned)
        .collect()
}

/// Cleans a path lexically: no empty parts, `.` or inner `..`; a leading `..` stays.
pub(crate) fn clean_path(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    kept.join("/")
}

/// Checks whether `path` is `directory` or lies below it. Both paths must be clean.
pub(crate) fn is_within(path: &str, directory: &str) -> bool {
    directory.is_empty() || path == directory || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}
