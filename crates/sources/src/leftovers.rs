//! What sources that are gone left behind, in folders of the form `<namespace>/<name>/<uid>`.
//!
//! Owns the walk. Whatever stands where a source's folder should, and is none that is known, is removed: files of an older layout, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Removes everything below a folder but what `keep` says, which is asked with namespace, name and the uid that a file or folder is
/// called by (without `.json`). What can't be removed doesn't keep the rest.
///
/// # Errors
/// The first failure, with its path.
pub fn remove_leftovers(folder: &Path, keep: impl Fn(&str, &str, &str) -> bool) -> Result<(), (PathBuf, io::Error)> {
    let mut failed = None;
    for namespace in entries(folder) {
        for name in entries(&namespace) {
            for uid in entries(&name) {
                let text = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                let known = match (text(&namespace), text(&name), text(&uid)) {
                    (Some(namespace), Some(name), Some(uid)) => {
                        keep(&namespace, &name, uid.strip_suffix(".json").unwrap_or(&uid))
                    }
                    _ => false,
                };
                if !known {
                    remove(&uid, &mut failed);
                }
            }
            if name.is_file() {
                remove(&name, &mut failed);
            }
            // These fail where something is left in them, which is right.
            let _ = fs::remove_dir(&name);
        }
        let _ = fs::remove_dir(&namespace);
    }
    failed.map_or(Ok(()), Err)
}

fn remove(path: &Path, failed: &mut Option<(PathBuf, io::Error)>) {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        failed.get_or_insert((path.to_owned(), error));
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
