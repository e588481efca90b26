//! The pointers of Git LFS among the files of an archive.

use crate::git::lfs_pointer::{self, LONGEST, Pointer, Reading};

/// The most files of an artifact whose content is in LFS. The list is held while contents arrive.
const MOST: usize = 2000;

/// A file of an archive that has a pointer of Git LFS in place of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedPointer {
    /// The path of the file in the archive.
    pub(crate) path: String,
    /// The repository that has the content: 0 is the source's own, and submodules follow in their order.
    pub(crate) repository: usize,
    pub(crate) pointer: Pointer,
}

/// The pointers of an archive.
#[derive(Debug, Default)]
pub(crate) struct PointerList(Vec<PlacedPointer>);

/// The error for an artifact with more pointers of Git LFS than a fetch follows.
#[derive(Debug)]
pub(crate) struct TooManyPointers;

impl PointerList {
    /// Checks whether a file of this size, in bytes, can be a pointer.
    pub(crate) fn may_contain(size: u64) -> bool {
        size < LONGEST as u64
    }

    /// Adds a file if its content is a pointer that leads to an object.
    pub(crate) fn add(&mut self, path: &str, repository: usize, content: &[u8]) -> Result<(), TooManyPointers> {
        let Reading::Pointer(pointer) = lfs_pointer::read(content) else {
            return Ok(());
        };
        if self.0.len() >= MOST {
            return Err(TooManyPointers);
        }
        self.0.push(PlacedPointer {
            path: path.to_owned(),
            repository,
            pointer,
        });
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PlacedPointer> {
        self.0.iter()
    }

    /// Returns the bytes that the list takes in memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |file: &PlacedPointer| (file.path.len() + 2 * size_of::<PlacedPointer>()) as u64;
        self.0.iter().map(bytes).sum()
    }
}

impl TooManyPointers {
    pub(crate) const WHAT: &'static str = "files in Git LFS";

    pub(crate) fn limit() -> String {
        MOST.to_string()
    }
}
