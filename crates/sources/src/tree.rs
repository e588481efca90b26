//! The files and links of an artifact, in memory.
//!
//! An archive has untrusted content: paths, sizes and counts are checked while it is read. Anything but regular files, symbolic links and folders is refused. Links are
//! stored as text; the renderer decides which ones to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::{Bound, Range};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::error::StorageError;
use crate::limits::{Limits, describe_bytes};
use crate::tar_reader::{TarError, TarKind, TarReader};

/// A read-only tree of files. Paths are relative, `/`-separated, without `.`, `..` or empty parts; the root is `""`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    executables: BTreeSet<String>,
}

/// A file or symbolic link of a [`Tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file's content.
    File(Bytes),
    /// A symbolic link's target, exactly as committed.
    Link(String),
}

/// The file, folder or symbolic link at a path of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A regular file's content.
    File(&'a [u8]),
    /// A folder, which has at least one entry.
    Directory,
    /// A symbolic link's target, not followed.
    Link(&'a str),
}

impl Tree {
    /// Returns the entry at this exact path; a path through a link finds nothing.
    pub fn entry(&self, path: &str) -> Option<Entry<'_>> {
        match self.nodes.get(path) {
            Some(Node::File(content)) => Some(Entry::File(content)),
            Some(Node::Link(target)) => Some(Entry::Link(target)),
            None if path.is_empty() => Some(Entry::Directory),
            None => self.list_below(path).next().map(|_| Entry::Directory),
        }
    }

    /// Lists the names in a folder, sorted by byte, without duplicates; empty if the folder has no entries.
    pub fn list(&self, directory: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for rest in self.list_below(directory) {
            let name = rest.split_once('/').map_or(rest, |(name, _)| name);
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Iterates over all files and links with their paths, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Iterates over the files and links from a path on.
    pub(crate) fn iter_from(&self, path: &str) -> impl Iterator<Item = (&str, &Node)> + use<'_> {
        let from = (Bound::Included(path), Bound::Unbounded);
        self.nodes
            .range::<str, _>(from)
            .map(|(path, node)| (path.as_str(), node))
    }

    /// Returns the file or link at this exact path.
    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Checks whether the file at this exact path may be executed.
    pub(crate) fn is_executable(&self, path: &str) -> bool {
        self.executables.contains(path)
    }

    /// Lists all folders except the root; each comes before the folders in it.
    pub fn list_folders(&self) -> BTreeSet<&str> {
        let mut folders = BTreeSet::new();
        for path in self.nodes.keys() {
            let ends = path.match_indices('/').map(|(at, _)| at);
            // Folders are added from the inside out. If a folder is known already, all its parents are known.
            for end in ends.rev() {
                if !folders.insert(path.get(..end).unwrap_or_default()) {
                    break;
                }
            }
        }
        folders
    }

    /// Returns the number of files and links.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Checks whether the tree is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the bytes of all files together.
    pub fn size(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| {
                if let Node::File(content) = node {
                    content.len() as u64
                } else {
                    0
                }
            })
            .sum()
    }

    /// Lists the paths below a folder, relative to it.
    fn list_below<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> {
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        self.nodes
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .map_while(move |(path, _)| path.strip_prefix(prefix.as_str()))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Unpacks a gzipped tar archive. The caller has verified its digest, and knows its unpacked size.
    ///
    /// The content of all files is in one piece of memory of that size, so that it is released in one piece.
    pub(crate) fn from_archive(
        archive: impl Read,
        (digest, size): (&str, u64),
        limits: &Limits,
    ) -> Result<Self, StorageError> {
        let invalid = |problem: String| StorageError::InvalidArchive {
            digest: digest.to_owned(),
            problem,
        };
        let large = |what, limit| StorageError::TooLarge {
            digest: digest.to_owned(),
            what,
            limit,
        };
        // Headers and padding come on top of the files: a kilobyte and a half for each, and long names.
        let overhead = u64::from(limits.files).saturating_mul(1536 + 2 * limits.path_bytes as u64);
        let bound = limits.unpacked_bytes.saturating_add(overhead).min(size);
        let mut all = Vec::with_capacity(usize::try_from(bound.min(limits.unpacked_bytes)).unwrap_or_default());
        let mut nodes = BTreeMap::new();
        let mut executables = BTreeSet::new();
        let mut unpacked = 0_u64;
        let failed = |error| match error {
            TarError::Invalid(problem) => invalid(problem),
            TarError::Io(error) => invalid(error.to_string()),
        };
        let mut archive = TarReader::new(MultiGzDecoder::new(archive).take(bound));
        while let Some(entry) = archive.next().map_err(failed)? {
            let path = entry.path;
            if matches!(entry.kind, TarKind::Folder) {
                // No code asks for an empty folder.
                continue;
            }
            check_path(&path, limits).map_err(|problem| invalid(format!("path {path:?} {problem}")))?;
            if nodes.len() >= limits.files as usize {
                return Err(large("files", limits.files.to_string()));
            }
            let node = match entry.kind {
                TarKind::File { size, is_executable } => {
                    if is_executable {
                        executables.insert(path.clone());
                    }
                    if size > limits.file_bytes {
                        return Err(large("bytes of one file", describe_bytes(limits.file_bytes)));
                    }
                    unpacked = unpacked.saturating_add(size);
                    if unpacked > limits.unpacked_bytes {
                        return Err(large("unpacked bytes", describe_bytes(limits.unpacked_bytes)));
                    }
                    let start = all.len();
                    archive
                        .read_to_end(&mut all)
                        .map_err(|error| failed(TarError::from(error)))?;
                    Found::File(start..all.len())
                }
                TarKind::Link(target) => {
                    let target =
                        String::from_utf8(target).map_err(|_| invalid(format!("the link {path:?} is not UTF-8")))?;
                    Found::Link(target)
                }
                TarKind::Folder => continue,
            };
            if nodes.insert(path.clone(), node).is_some() {
                return Err(invalid(format!("{path:?} is in it twice")));
            }
        }
        all.shrink_to_fit();
        let all = Bytes::from(all);
        let nodes = nodes.into_iter().map(|(path, found)| match found {
            Found::File(range) => (path, Node::File(all.slice(range))),
            Found::Link(target) => (path, Node::Link(target)),
        });
        let tree = Self {
            nodes: nodes.collect(),
            executables,
        };
        if let Some(path) = tree.nodes.keys().find(|path| tree.list_below(path).next().is_some()) {
            return Err(invalid(format!("{path:?} is both a file and a folder")));
        }
        Ok(tree)
    }
}

/// An entry of the archive while it is read.
enum Found {
    /// The range of its content within the content of all files.
    File(Range<usize>),
    Link(String),
}

/// Checks whether a path may be in an artifact; the error completes the sentence "path … ".
pub(crate) fn check_path(path: &str, limits: &Limits) -> Result<(), String> {
    if path.len() > limits.path_bytes {
        return Err(format!("is longer than {} bytes", limits.path_bytes));
    }
    if path.contains('\0') {
        return Err("holds a zero byte".to_owned());
    }
    let mut depth = 0_usize;
    for part in path.split('/') {
        depth += 1;
        if matches!(part, "" | "." | "..") {
            return Err("has an empty, \".\" or \"..\" part".to_owned());
        }
        if part.eq_ignore_ascii_case(".git") {
            return Err("leads into .git".to_owned());
        }
    }
    if depth > limits.depth {
        return Err(format!("has more than {} parts", limits.depth));
    }
    Ok(())
}
