//! Files that SOPS encrypted, as a rendering reads them. Each is decrypted once, when it is read, with the keys of this rendering, and its clear text
//! ends with the rendering. This module decides which files and values are decrypted. No message contains clear text: a failed build is reported with
//! the errors of the encrypted files, or without details.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kustomize::{BuiltResource, Entry, FileTree};
use serde_json::Value;
use sops::{Decrypted, EncryptedDocumentSelector, Error, Format, Keys, Limits, MacVerdict, decrypt};
use tenure_api::metadata::DECRYPT;
use tenure_api::text::visible_line;
use tenure_api::{ObjectId, ObjectView};
use tenure_planner::render_inputs::DecryptionKeys;
use zeroize::Zeroizing;

/// The number of lists of clear files, so that each list is short.
const LISTS: usize = 1024;
/// The limit of files that a message names.
const NAMED: usize = 5;
/// The value that leaves an object unchanged, as in Flux.
const DISABLED: &str = "disabled";

/// Reads the keys from a Secret's entries.
///
/// # Errors
/// The unreadable entry, and why; nothing of its content.
pub(crate) fn read_keys(entries: &DecryptionKeys) -> Result<Keys, String> {
    let mut keys = Keys::new();
    for (name, key) in entries.entries() {
        let added = if name.ends_with(".asc") {
            keys.add_pgp(key)
        } else {
            keys.add_age(key)
        };
        added.map_err(|error| {
            format!(
                "failed to import '{}' of spec.decryption.secretRef: {error}",
                visible_line(name)
            )
        })?;
    }
    Ok(keys)
}

/// A file tree in which encrypted files are read as clear text.
pub(crate) struct DecryptedFiles<'a> {
    files: &'a dyn FileTree,
    keys: &'a Keys,
    clear: Vec<OnceCell<Box<Slot>>>,
    found: RefCell<Found>,
}

/// An encrypted file that was read. Slots are never removed or moved, so that their content can be borrowed.
struct Slot {
    path: String,
    /// `None` if the file is read unchanged.
    clear: Option<Zeroizing<Vec<u8>>>,
    next: OnceCell<Box<Slot>>,
}

/// The results of the reads so far: the first failure, the decrypted files, and the files that were changed after encryption.
#[derive(Default)]
struct Found {
    /// The first file that could not be decrypted, and why.
    failure: Option<String>,
    decrypted: BTreeSet<String>,
    changed: BTreeSet<String>,
}

impl<'a> DecryptedFiles<'a> {
    pub(crate) fn new(files: &'a dyn FileTree, keys: &'a Keys) -> Self {
        Self {
            files,
            keys,
            clear: std::iter::repeat_with(OnceCell::new).take(LISTS).collect(),
            found: RefCell::default(),
        }
    }

    /// Returns why a file could not be decrypted, if one could not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.found.borrow().failure.clone()
    }

    /// Returns the message for a failed build that does not fail with the encrypted files: its error could quote decrypted text.
    pub(crate) fn describe_problem(&self) -> Option<String> {
        let found = self.found.borrow();
        let named: Vec<String> = found
            .decrypted
            .iter()
            .take(NAMED)
            .map(|path| visible_line(path).into_owned())
            .collect();
        if named.is_empty() {
            return None;
        }
        Some(format!(
            "the build fails on decrypted files; the reason is not shown, since it can quote them. Decrypted were {}{}: check them with `sops decrypt` and `kustomize build`",
            named.join(", "),
            if found.decrypted.len() > NAMED {
                " and others"
            } else {
                ""
            }
        ))
    }

    /// Returns the files with a wrong MAC, and such values that [`Self::open_values`] decrypted.
    pub(crate) fn into_changed(self) -> Vec<String> {
        let changed = self.found.into_inner().changed.into_iter();
        changed.map(|path| visible_line(&path).into_owned()).collect()
    }

    /// Returns the slot of a file, or its free place.
    fn slot(&self, path: &str) -> (Option<&Slot>, Option<&OnceCell<Box<Slot>>>) {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let list = usize::try_from(hasher.finish() % LISTS as u64).unwrap_or(0);
        let mut cell = self.clear.get(list);
        while let Some(slot) = cell.and_then(OnceCell::get) {
            if slot.path == path {
                return (Some(slot), None);
            }
            cell = Some(&slot.next);
        }
        (None, cell)
    }

    fn read<'b>(&'b self, path: &str, content: &'b [u8]) -> &'b [u8] {
        let place = match self.slot(path) {
            (Some(slot), _) => return slot.clear.as_deref().map_or(content, Vec::as_slice),
            (None, place) => place,
        };
        if self.found.borrow().failure.is_some() {
            return content;
        }
        let Some(format) = Format::of_file(path, content) else {
            return content;
        };
        let kept = EncryptedDocumentSelector {
            path: &["metadata", "annotations", DECRYPT],
            text: DISABLED,
        };
        let clear = match decrypt(content, (format, format), self.keys, Some(kept), &Limits::default()) {
            Ok(decrypted) => Some(self.record_decrypted(path.to_owned(), decrypted)),
            // The file contains encrypted text, but is not encrypted itself.
            Err(Error::NotEncrypted) => None,
            // The file's name does not show its format. The key of the Secret that it goes into does.
            Err(Error::Unwritable(_)) if format == Format::Binary => None,
            Err(error) => {
                let place = visible_line(path);
                let failure = format!("cannot decrypt {place}: {error}");
                self.found.borrow_mut().failure.get_or_insert(failure);
                None
            }
        };
        let slot = Slot {
            path: path.to_owned(),
            clear,
            next: OnceCell::new(),
        };
        let slot = place.map(|place| place.get_or_init(|| Box::new(slot)));
        slot.and_then(|slot| slot.clear.as_deref())
            .map_or(content, Vec::as_slice)
    }

    /// Records the name of a decrypted file or value, and whether it was changed after encryption.
    fn record_decrypted(&self, name: String, decrypted: Decrypted) -> Zeroizing<Vec<u8>> {
        let mut found = self.found.borrow_mut();
        if decrypted.mac != MacVerdict::Right {
            found.changed.insert(name.clone());
        }
        found.decrypted.insert(name);
        decrypted.bytes
    }

    /// Decrypts the values of Secrets that are encrypted files themselves: a generator took them from a file whose name does not show its format.
    ///
    /// # Errors
    /// The value that can't be decrypted, and why.
    pub(crate) fn open_values(&self, resources: &mut [BuiltResource]) -> Result<(), String> {
        for resource in resources {
            let view = ObjectView::new(&resource.object);
            let is_disabled = view
                .find_annotation(DECRYPT)
                .is_some_and(|value| value.eq_ignore_ascii_case(DISABLED));
            let is_secret = view.read_text("/kind") == "Secret" && view.read_text("/apiVersion") == "v1";
            if !is_secret || is_disabled {
                continue;
            }
            let subject = ObjectId::from_object(&resource.object)
                .map(|id| id.subject())
                .unwrap_or_default();
            let Some(data) = resource.object.get_mut("data").and_then(Value::as_object_mut) else {
                continue;
            };
            for (key, value) in data {
                let Some(sealed) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) else {
                    continue;
                };
                let Some(from) = Format::of_encrypted(&sealed) else {
                    continue;
                };
                let place = format!("{} of {}", visible_line(key), visible_line(&subject));
                let opened = decrypt(
                    &sealed,
                    (from, Format::of_name(key)),
                    self.keys,
                    None,
                    &Limits::default(),
                );
                let decrypted = opened.map_err(|error| format!("cannot decrypt {place}: {error}"))?;
                *value = Value::String(STANDARD.encode(self.record_decrypted(place, decrypted).as_slice()));
            }
        }
        Ok(())
    }
}

impl FileTree for DecryptedFiles<'_> {
    fn entry(&self, path: &str) -> Option<Entry<'_>> {
        Some(match self.files.entry(path)? {
            Entry::File(content) => Entry::File(self.read(path, content)),
            other => other,
        })
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.files.list(directory)
    }

    fn is_confidential(&self, path: &str) -> bool {
        self.found.borrow().decrypted.contains(path)
    }
}
