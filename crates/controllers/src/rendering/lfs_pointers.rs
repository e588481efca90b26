//! Files whose content is in Git LFS: an artifact or a working copy has only a pointer in their place. A GitRepository fetches the content, other sources don't. A build that
//! reads a pointer is refused, because it would take the pointer for the content. Files that no build reads may be pointers.

use std::cell::RefCell;

use kustomize::{Entry, FileTree};
use tenure_api::text::visible_line;
use tenure_sources::describe_pointer;

/// A file tree that records the first pointer that was read in place of a file.
pub(crate) struct PointerCheckedFiles<'a> {
    files: &'a dyn FileTree,
    /// The path and the description of the first pointer.
    pointer: RefCell<Option<(String, String)>>,
}

impl<'a> PointerCheckedFiles<'a> {
    pub(crate) fn new(files: &'a dyn FileTree) -> Self {
        Self {
            files,
            pointer: RefCell::default(),
        }
    }

    /// Returns a message about the first pointer that the build read, if it read one.
    pub(crate) fn describe_pointer(&self) -> Option<String> {
        let (path, what) = self.pointer.borrow().clone()?;
        Some(format!(
            "{} is {what}. In a working copy, run git lfs pull. A GitRepository fetches the content unless lfs.fetchexclude of .lfsconfig leaves it \
             out; an artifact of another source must have the file itself",
            visible_line(&path)
        ))
    }
}

impl FileTree for PointerCheckedFiles<'_> {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        let entry = self.files.entry(path)?;
        if let Entry::File(content) = entry
            && let Some(what) = describe_pointer(content)
        {
            self.pointer.borrow_mut().get_or_insert_with(|| (path.to_owned(), what));
        }
        Some(entry)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.files.list(directory)
    }

    fn is_confidential(&self, path: &str) -> bool {
        self.files.is_confidential(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

    #[test]
    fn only_pointers_in_read_files_are_reported() {
        let mut files = kustomize::MapTree::new();
        files.insert("a/logo.svg", POINTER);
        files.insert("b.yaml", "a: b\n");
        let whole = PointerCheckedFiles::new(&files);
        assert_eq!(whole.list("a"), ["logo.svg"]);
        whole.entry("b.yaml");
        assert_eq!(whole.describe_pointer(), None);
        whole.entry("a/logo.svg");
        let description = whole.describe_pointer().expect("a pointer was read");
        assert!(
            description.starts_with(
                "a/logo.svg is a pointer of Git LFS and not the file itself. In a working copy, run git lfs pull"
            ),
            "{description}"
        );
        files.insert("c.yaml", POINTER.replace("size", "size x"));
        let whole = PointerCheckedFiles::new(&files);
        whole.entry("c.yaml");
        let description = whole.describe_pointer().expect("a pointer was read");
        assert!(
            description.starts_with("c.yaml is a pointer of Git LFS that can't be followed: its size must be"),
            "{description}"
        );
    }
}
