//! A folder on disk as the tree that a build reads. A file is read once, when the build first asks for it. Files outside the folder are refused, for every target of a
//! link, and so are files that are too large.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kustomize::{Entry, FileTree};

/// Files larger than this are not read.
const LARGEST_FILE: u64 = 512 << 20;

/// The content at one path of the tree, once it was read.
#[derive(Debug)]
enum PathContent {
    File(Vec<u8>),
    Folder,
    Link(String),
}

/// A folder on disk as the tree of a build. Each file is read at most once.
///
/// A build borrows from the tree, so an answer never moves in memory: answers are in slots of rows that stay in place. Each row is twice as long as the previous one.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    slots: RefCell<HashMap<String, Option<usize>>>,
    rows: [OnceCell<Box<[OnceCell<PathContent>]>>; usize::BITS as usize],
    used: Cell<usize>,
    /// The first read error.
    trouble: RefCell<Option<String>>,
}

impl Disk {
    /// Returns the tree below a folder, whose path must have no links in it.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            slots: RefCell::default(),
            rows: [const { OnceCell::new() }; usize::BITS as usize],
            used: Cell::new(0),
            trouble: RefCell::default(),
        }
    }

    /// Returns the reason why an existing file couldn't be read, if any.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Returns the row and the slot of the answer with this number.
    fn locate_slot(number: usize) -> (usize, usize) {
        let row = (number + 1).ilog2();
        (row as usize, number + 1 - (1 << row))
    }

    fn store_answer(&self, held: PathContent) -> Option<usize> {
        let number = self.used.get();
        let (row, slot) = Self::locate_slot(number);
        let slots = self
            .rows
            .get(row)?
            .get_or_init(|| (0..1_usize << row).map(|_| OnceCell::new()).collect());
        slots.get(slot)?.set(held).ok()?;
        self.used.set(number + 1);
        Some(number)
    }

    fn find_answer(&self, number: usize) -> Option<&PathContent> {
        let (row, slot) = Self::locate_slot(number);
        self.rows.get(row)?.get()?.get(slot)?.get()
    }

    fn read_path(&self, path: &str) -> Option<PathContent> {
        let place = self.root.join(path);
        let note = |why: String| {
            self.trouble
                .borrow_mut()
                .get_or_insert_with(|| format!("{}: {why}", place.display()));
        };
        let metadata = match std::fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            Err(error) => {
                if !matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound
                        | std::io::ErrorKind::NotADirectory
                        | std::io::ErrorKind::InvalidFilename
                ) {
                    note(error.to_string());
                }
                return None;
            }
        };
        if metadata.is_dir() {
            return Some(PathContent::Folder);
        }
        if metadata.is_symlink() {
            return match std::fs::read_link(&place) {
                Ok(target) => Some(PathContent::Link(self.inside(path, &target))),
                Err(error) => {
                    note(error.to_string());
                    None
                }
            };
        }
        if !metadata.is_file() {
            note("neither a file nor a folder".to_owned());
            return None;
        }
        if metadata.len() > LARGEST_FILE {
            note(format!("larger than {} MiB", LARGEST_FILE >> 20));
            return None;
        }
        match std::fs::read(&place) {
            Ok(bytes) => Some(PathContent::File(bytes)),
            Err(error) => {
                note(error.to_string());
                None
            }
        }
    }

    /// Returns a link's target. An absolute target below the root is made relative, because a tree knows no absolute paths.
    fn inside(&self, path: &str, target: &Path) -> String {
        match target.strip_prefix(&self.root) {
            Ok(rest) if target.is_absolute() => {
                let up = "../".repeat(path.matches('/').count());
                format!("{up}{}", rest.to_string_lossy())
            }
            _ => target.to_string_lossy().into_owned(),
        }
    }
}

impl FileTree for Disk {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        if path.is_empty() {
            return Some(Entry::Directory);
        }
        let known = self.slots.borrow().get(path).copied();
        let number = match known {
            Some(number) => number,
            None => {
                let number = self.read_path(path).and_then(|held| self.store_answer(held));
                self.slots.borrow_mut().insert(path.to_owned(), number);
                number
            }
        };
        Some(match self.find_answer(number?)? {
            PathContent::File(bytes) => Entry::File(bytes),
            PathContent::Folder => Entry::Directory,
            PathContent::Link(target) => Entry::Link(target),
        })
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join(directory)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_returns_files_folders_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        for number in 0..40 {
            std::fs::write(root.join(format!("a/{number}")), number.to_string()).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/7"), root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("out")).unwrap();
        let disk = Disk::new(root);
        let first = disk.entry("a/0");
        let all: Vec<_> = (0..40).map(|number| disk.entry(&format!("a/{number}"))).collect();
        assert_eq!(first, Some(Entry::File(b"0")));
        assert_eq!(all[39], Some(Entry::File(b"39")));
        assert_eq!(disk.entry("a"), Some(Entry::Directory));
        assert_eq!(disk.entry("a/link"), Some(Entry::Link("../a/7")));
        assert_eq!(disk.entry("out"), Some(Entry::Link("/etc/hostname")));
        assert_eq!(disk.entry("missing"), None);
        assert_eq!(disk.trouble(), None);
        assert_eq!(disk.list("a").len(), 41);
    }
}
