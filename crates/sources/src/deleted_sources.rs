//! Removes the files of deleted sources, in folders of the form `<namespace>/<name>/<uid>`.
//!
//! Any unknown entry at the place of a source's folder is removed, including files of an older layout.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Removes every entry below a folder unless `keep` returns true. `keep` gets the namespace, the name and the uid: the name of a file or folder without `.json`. A failed
/// removal does not stop the others.
///
/// # Errors
/// The first failure, with its path.
pub fn remove_deleted_sources(
    folder: &Path,
    keep: impl Fn(&str, &str, &str) -> bool,
) -> Result<(), (PathBuf, io::Error)> {
    let mut failed = None;
    for namespace in list_entries(folder) {
        for name in list_entries(&namespace) {
            for uid in list_entries(&name) {
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
            // A folder with entries stays: its removal fails, as intended.
            let _ = fs::remove_dir(&name);
        }
        let _ = fs::remove_dir(&namespace);
    }
    failed.map_or(Ok(()), Err)
}

/// Removes a file or folder. Stores the first failure in `failed`.
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

fn list_entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
