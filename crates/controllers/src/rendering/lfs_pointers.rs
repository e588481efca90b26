//! Files whose content is in Git LFS: the repository has only a pointer in their place. A build that reads a pointer is refused, because it would
//! take the pointer for the content. Files that no build reads may be pointers. Nothing is fetched from LFS.

use std::cell::RefCell;

use kustomize::{Entry, FileTree};
use tenure_api::text::visible_line;

/// The beginnings of pointers: in the current version of the specification, and in the version before it had that name.
const BEGINNINGS: [&[u8]; 2] = [
    b"version https://git-lfs.github.com/spec/v1\n",
    b"version https://hawser.github.com/spec/v1\n",
];
/// The size limit of a pointer, by the specification.
const LONGEST: usize = 1024;

/// A file tree that records the first pointer that was read in place of a file.
pub(crate) struct PointerCheckedFiles<'a> {
    files: &'a dyn FileTree,
    pointer: RefCell<Option<String>>,
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
        let path = self.pointer.borrow().clone()?;
        Some(format!(
            "{} is a pointer of Git LFS and not the file itself, and nothing is fetched from LFS: commit the file without LFS (git lfs untrack, \
             git add --renormalize), or leave it out of the kustomization",
            visible_line(&path)
        ))
    }
}

impl FileTree for PointerCheckedFiles<'_> {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        let entry = self.files.entry(path)?;
        if let Entry::File(content) = entry
            && is_pointer(content)
        {
            self.pointer.borrow_mut().get_or_insert_with(|| path.to_owned());
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

fn is_pointer(content: &[u8]) -> bool {
    let begins = BEGINNINGS.iter().any(|beginning| content.starts_with(beginning));
    let has_line = |key: &[u8]| content.split(|byte| *byte == b'\n').any(|line| line.starts_with(key));
    begins && content.len() < LONGEST && has_line(b"oid ") && has_line(b"size ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

    #[test]
    fn a_pointer_is_told_from_files_that_look_like_it() {
        assert!(is_pointer(POINTER.as_bytes()));
        let older = POINTER.replace("git-lfs.github.com", "hawser.github.com");
        assert!(is_pointer(older.as_bytes()));
        let long = format!("{POINTER}{}", "x".repeat(1024));
        for other in [
            "",
            "version: 1\n",
            "version https://git-lfs.github.com/spec/v1\n",
            &format!(" {POINTER}"),
            &long,
        ] {
            assert!(!is_pointer(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn only_what_is_read_counts() {
        let mut files = kustomize::MapTree::new();
        files.insert("a/logo.svg", POINTER);
        files.insert("b.yaml", "a: b\n");
        let whole = PointerCheckedFiles::new(&files);
        assert_eq!(whole.list("a"), ["logo.svg"]);
        whole.entry("b.yaml");
        assert_eq!(whole.describe_pointer(), None);
        whole.entry("a/logo.svg");
        let said = whole.describe_pointer().expect("a pointer was read");
        assert!(said.starts_with("a/logo.svg is a pointer of Git LFS"), "{said}");
    }
}
