//! The objects of a bucket: keys, marks (ETags) and sizes, and the revision that follows from them. Pure.
//!
//! A key is used as a path unchanged, and a key that can't be a path is refused. The revision is Flux's: the digest of a line `key mark` for each object, in the order of
//! the keys.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::client::quote_key;
use super::error::BucketError;
use super::listing::ListedObject;
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::{Limits, describe_bytes};
use crate::tree::check_path;

/// Bytes of memory of an object besides its key and its mark: in a list, whose capacity may be twice its length, and in an index.
const ENTRY_BYTES: u64 = 288;

/// The objects of a bucket that become files of the artifact, by their keys.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) objects: BTreeMap<String, Object>,
}

/// An object that becomes a file of the artifact: its mark (ETag), its size and where its content is.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) mark: String,
    pub(super) size: u64,
    pub(super) content: Content,
}

/// The place from which an object's content is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// In the store.
    Upstream,
    /// In the previous artifact.
    Kept,
    /// In one of the received files, from this offset.
    Received { file: usize, offset: u64 },
}

/// Returns the bytes of memory that an object takes.
pub(super) fn count_bytes(object: &ListedObject) -> u64 {
    object.key.len() as u64 + object.mark.len() as u64 + ENTRY_BYTES
}

/// Checks whether an object never becomes a file: a folder, or the file with patterns, which is fetched separately.
pub(super) fn is_left_out(key: &str) -> bool {
    key.ends_with('/') || key == IGNORE_FILE
}

impl Index {
    /// Makes the index of the listed objects that no pattern excludes. `cancelled` ends the work.
    ///
    /// # Errors
    /// [`BucketError::InvalidKey`], [`BucketError::InvalidIgnore`] or [`BucketError::TooLarge`].
    pub(super) fn from_objects(
        listed: Vec<ListedObject>,
        ignore: &Ignore,
        limits: &Limits,
        cancelled: impl Fn() -> bool,
    ) -> Result<Self, BucketError> {
        let mut objects = BTreeMap::new();
        let mut bytes = 0_u64;
        for object in listed {
            if cancelled() {
                break;
            }
            let excluded = ignore.excludes(&object.key).ok_or(BucketError::InvalidIgnore {
                problem: "they take too much work for so many objects",
            })?;
            if excluded {
                continue;
            }
            check_key(&object.key, limits)?;
            if object.size > limits.file_bytes {
                return Err(BucketError::TooLarge {
                    what: "bytes of one object",
                    limit: describe_bytes(limits.file_bytes),
                });
            }
            bytes = bytes.saturating_add(object.size);
            if bytes > limits.unpacked_bytes {
                return Err(BucketError::TooLarge {
                    what: "bytes of all objects",
                    limit: describe_bytes(limits.unpacked_bytes),
                });
            }
            let ListedObject { key, mark, size } = object;
            let content = Content::Upstream;
            objects.insert(key, Object { mark, size, content });
        }
        let index = Self { objects };
        index.refuse_overlaps()?;
        Ok(index)
    }

    /// Refuses a key that is both a file and the folder of another key.
    fn refuse_overlaps(&self) -> Result<(), BucketError> {
        for key in self.objects.keys() {
            let folders = key.match_indices('/').filter_map(|(at, _)| key.get(..at));
            if let Some(folder) = folders.into_iter().find(|folder| self.objects.contains_key(*folder)) {
                return Err(BucketError::InvalidKey {
                    key: quote_key(folder),
                    problem: format!("would be a folder, too, for {}", quote_key(key)),
                });
            }
        }
        Ok(())
    }

    /// Returns the revision of the artifact: the digest of all keys and marks.
    pub(super) fn revision(&self) -> String {
        let mut hash = Sha256::new();
        for (key, object) in &self.objects {
            for part in [key, " ", &object.mark, "\n"] {
                hash.update(part.as_bytes());
            }
        }
        format!("sha256:{}", hex::encode(hash.finalize()))
    }

    /// Lists the keys of the objects that have to be fetched.
    pub(super) fn list_wanted(&self) -> Vec<String> {
        let wanted = self
            .objects
            .iter()
            .filter(|(_, object)| object.content == Content::Upstream);
        wanted.map(|(key, _)| key.clone()).collect()
    }
}

/// Checks whether a key can be the path of a file.
fn check_key(key: &str, limits: &Limits) -> Result<(), BucketError> {
    let invalid = |problem: String| BucketError::InvalidKey {
        key: quote_key(key),
        problem,
    };
    check_path(key, limits).map_err(invalid)?;
    if key.chars().any(char::is_control) {
        return Err(invalid("holds a control character".to_owned()));
    }
    if key.contains('\\') {
        return Err(invalid(
            "holds a backslash, which some would read as a separator".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    fn index(keys: &[&str], ignore: Option<&str>) -> Result<Index, BucketError> {
        let listed = keys.iter().map(|key| ListedObject {
            key: (*key).to_owned(),
            mark: "m".to_owned(),
            size: 1,
        });
        Index::from_objects(
            listed.collect(),
            &Ignore::from_texts(None, ignore),
            &Limits::default(),
            || false,
        )
    }

    #[test]
    fn the_revision_is_the_digest_of_all_lines() {
        // printf 'a/b m\nc m\n' | sha256sum
        let expected = "sha256:0b0fafb9ac50b975435ca9490038849f10f712ec9ab6c561125792ce465c3eb1";
        assert_eq!(index(&["c", "a/b"], None).unwrap().revision(), expected);
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(index(&[], None).unwrap().revision(), empty);
    }

    #[test]
    fn a_key_is_a_path_or_refused() {
        for (key, problem) in [
            ("../../x", "\"..\""),
            ("/etc/passwd", "empty"),
            ("a//b", "empty"),
            ("a/./b", "\".\""),
            ("a\\..\\b", "backslash"),
            ("a\nb", "control character"),
            ("a/.git/config", ".git"),
        ] {
            let error = index(&["fine", key], None).unwrap_err().to_string();
            assert!(
                error.contains(problem) && error.contains(&format!("{key:?}")),
                "{error}"
            );
            // An excluded object may have any key.
            assert_eq!(
                index(&["fine", key], Some("*\n!fine")).unwrap().objects.len(),
                1,
                "{key}"
            );
        }
        let error = index(&["a", "a-", "a/b"], None).unwrap_err().to_string();
        assert!(
            error.contains("\"a\"") && error.contains("a folder, too, for \"a/b\""),
            "{error}"
        );
        let long = index(&[&"x".repeat(2000)], None).unwrap_err().to_string();
        assert!(long.len() < 500 && long.contains('…'), "{long}");
    }

    #[test]
    fn nothing_is_ignored_by_default() {
        assert_eq!(index(&["a.png", "b.zip", ".github/x"], None).unwrap().objects.len(), 3);
    }
}
