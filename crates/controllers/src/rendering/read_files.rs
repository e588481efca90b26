//! The files that a rendering read, so that a commit that changes none of them needs no new rendering.
//!
//! Two trees are the same for a rendering under two conditions. Every requested path leads in both to the same content, folder or link, or to
//! nothing. Every listed folder has the same names in both. This module does not know the rendering itself.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kustomize::{Entry, FileTree};
use sha2::{Digest, Sha256};

/// Memory of an entry besides its path: its digest, and its place in the map.
const ENTRY: u64 = 64;

/// The result of looking up a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Directory,
    File([u8; 32]),
    Link([u8; 32]),
}

impl Found {
    fn from_entry(entry: Option<Entry<'_>>) -> Self {
        match entry {
            None => Self::Nothing,
            Some(Entry::Directory) => Self::Directory,
            Some(Entry::File(content)) => Self::File(Sha256::digest(content).into()),
            Some(Entry::Link(target)) => Self::Link(Sha256::digest(target).into()),
        }
    }
}

/// The files and folders that a rendering read, in their state at that time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadFiles {
    entries: BTreeMap<String, Found>,
    listed: BTreeMap<String, [u8; 32]>,
    /// The size of all files together.
    content: u64,
}

impl ReadFiles {
    /// Checks whether a rendering would see the same in another tree.
    pub(crate) fn are_same_in(&self, files: &dyn FileTree) -> bool {
        self.entries
            .iter()
            .all(|(path, found)| Found::from_entry(files.entry(path)) == *found)
            && self
                .listed
                .iter()
                .all(|(directory, names)| digest_names(&files.list(directory)) == *names)
    }

    /// Returns the number of content bytes that this check compares.
    pub(crate) fn content_bytes(&self) -> usize {
        usize::try_from(self.content).unwrap_or(usize::MAX)
    }

    /// Returns the memory that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        let paths = self.entries.keys().chain(self.listed.keys());
        paths.map(|path| ENTRY.saturating_add(path.len() as u64)).sum()
    }
}

fn digest_names(names: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for name in names {
        // Names contain no NUL, so two names can't be taken for one.
        hash.update(name);
        hash.update([0]);
    }
    hash.finalize().into()
}

/// A tree that records reads.
pub(crate) struct RecordingTree<'a> {
    files: &'a dyn FileTree,
    seen: RefCell<ReadFiles>,
}

impl<'a> RecordingTree<'a> {
    pub(crate) fn new(files: &'a dyn FileTree) -> Self {
        Self {
            files,
            seen: RefCell::default(),
        }
    }

    /// Returns the recorded files.
    pub(crate) fn into_seen(self) -> ReadFiles {
        self.seen.into_inner()
    }
}

impl FileTree for RecordingTree<'_> {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        let entry = self.files.entry(path);
        let mut seen = self.seen.borrow_mut();
        if !seen.entries.contains_key(path) {
            if let Some(Entry::File(content)) = &entry {
                seen.content = seen.content.saturating_add(content.len() as u64);
            }
            seen.entries.insert(path.to_owned(), Found::from_entry(entry));
        }
        entry
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let names = self.files.list(directory);
        let mut seen = self.seen.borrow_mut();
        if !seen.listed.contains_key(directory) {
            seen.listed.insert(directory.to_owned(), digest_names(&names));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use kustomize::{MapTree, Options};

    use super::*;

    fn tree() -> MapTree {
        let mut tree = MapTree::new();
        tree.insert("a/kustomization.yaml", "resources: [map.yaml, ../base]");
        tree.insert("a/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
        tree.insert("base/kustomization.yaml", "resources: [map.yaml]");
        tree.insert(
            "base/map.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: base}\n",
        );
        tree.insert(
            "plain/map.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n",
        );
        tree.insert("README.md", "a text");
        tree
    }

    fn see(folder: &str) -> ReadFiles {
        let tree = tree();
        let noted = RecordingTree::new(&tree);
        let options = Options {
            generate_missing: true,
            ..Options::default()
        };
        kustomize::build(&noted, folder, &options).expect("a build");
        noted.into_seen()
    }

    #[test]
    fn changes_of_unread_files_are_ignored() {
        let (mut tree, seen) = (tree(), see("a"));
        assert!(seen.are_same_in(&tree) && seen.held_bytes() > 0);
        tree.insert("README.md", "another text");
        tree.insert(
            "plain/more.yaml",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: more}\n",
        );
        tree.insert("new/kustomization.yaml", "");
        assert!(seen.are_same_in(&tree));
    }

    #[test]
    fn changes_of_read_files_are_detected() {
        for (folder, path, content) in [
            (
                "a",
                "a/map.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
            ),
            (
                "a",
                "base/map.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
            ),
            // The file was requested and missing. If it appears, kustomize finds two kustomization files, which is an error.
            ("a", "a/kustomization.yml", "resources: []"),
            // Without a kustomization file, every file below is a resource.
            (
                "plain",
                "plain/more.yaml",
                "apiVersion: v1\nkind: Secret\nmetadata: {name: more}\n",
            ),
            (
                "plain",
                "plain/deep/more.yaml",
                "apiVersion: v1\nkind: Secret\nmetadata: {name: more}\n",
            ),
            ("plain", "plain/kustomization.yaml", "resources: []"),
        ] {
            let (mut tree, seen) = (tree(), see(folder));
            assert!(seen.are_same_in(&tree));
            tree.insert(path, content);
            assert!(!seen.are_same_in(&tree), "{path}");
        }
    }

    #[test]
    fn names_with_equal_concatenation_have_different_digests() {
        let names = |names: &[&str]| digest_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_ne!(names(&["ab", "c"]), names(&["a", "bc"]));
    }
}
