//! Decrypts one file from its bytes to its clear bytes, and checks its MAC.

use std::fmt;

use zeroize::Zeroizing;

use crate::cipher;
use crate::error::Error;
use crate::format::Format;
use crate::keys::Keys;
use crate::limits::Limits;
use crate::metadata::{self, Metadata, Place};
use crate::stores::{dotenv, ini, json, yaml};
use crate::tree::{Document, NodeCounter, Value, find_field};
use crate::walk::Walk;

/// The result of the MAC check: whether the file is as SOPS wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacVerdict {
    /// The file is unchanged.
    Right,
    /// The file has no MAC.
    Missing,
    /// The MAC can't be decrypted: it was made with another key, or changed.
    Unreadable,
    /// A value was changed, added or removed.
    Wrong,
}

/// A decrypted file, and the result of the MAC check. Its bytes are wiped on drop, and never printed.
pub struct Decrypted {
    /// The file before SOPS encrypted it, or data equal to it (see the crate's documentation).
    pub bytes: Zeroizing<Vec<u8>>,
    /// The result of the MAC check.
    pub mac: MacVerdict,
}

impl fmt::Debug for Decrypted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Decrypted({} bytes, {:?})", self.bytes.len(), self.mac)
    }
}

/// Selects the documents of a YAML file that stay encrypted: each document that has `text` at `path`.
#[derive(Debug, Clone, Copy)]
pub struct EncryptedDocumentSelector<'a> {
    /// The keys that lead to a text.
    pub path: &'a [&'a str],
    /// The text that is compared, in any case.
    pub text: &'a str,
}

/// Runs `work` with a limit for the produced bytes and the steps of all decryptions in it, as `go_yaml::meter` counts them. A decryption that needs more fails with
/// [`Error::Spent`].
pub fn decrypt_within<T>((bytes, steps): (u64, u64), work: impl FnOnce() -> T) -> T {
    let _metering = go_yaml::meter::start_metering(go_yaml::meter::Allowance { bytes, steps }, None);
    work()
}

/// Decrypts a file in one format, and writes it in the same or another format. `kept` selects documents of YAML that stay encrypted.
///
/// # Errors
/// [`Error`] when no key opens the file, a value was changed, or the file exceeds a limit. A wrong MAC is a verdict and no error.
pub fn decrypt(
    bytes: &[u8],
    (from, to): (Format, Format),
    keys: &Keys,
    kept: Option<EncryptedDocumentSelector<'_>>,
    limits: &Limits,
) -> Result<Decrypted, Error> {
    if bytes.len() > limits.bytes {
        return Err(Error::TooLarge {
            bytes: bytes.len(),
            most: limits.bytes,
        });
    }
    let file = std::str::from_utf8(bytes).map_err(|error| Error::Syntax {
        line: bytes
            .get(..error.valid_up_to())
            .unwrap_or_default()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1,
        what: "it is not text",
    })?;
    go_yaml::meter::count_text(file.len());
    let mut count = NodeCounter::new(*limits);
    let (mut documents, place) = match from {
        Format::Yaml => (yaml::read(file, &mut count)?, Place::Map),
        Format::Json | Format::Binary => (vec![json::read(file, &mut count)?], Place::Map),
        Format::Dotenv => (vec![dotenv::read(file, &mut count)?], Place::FlatKeys),
        Format::Ini => (vec![ini::read(file, &mut count)?], Place::FlatSection),
    };
    let is_kept: Vec<bool> = documents
        .iter()
        .map(|document| from == Format::Yaml && kept.is_some_and(|kept| has_text(document, kept)))
        .collect();
    if !is_kept.is_empty() && is_kept.iter().all(|is| *is) {
        return Ok(Decrypted {
            bytes: Zeroizing::new(bytes.to_vec()),
            mac: MacVerdict::Right,
        });
    }
    let metadata = metadata::take_metadata(&mut documents, place, limits)?;
    let key = keys.data_key(&metadata, limits.tries)?;
    let mut walk = Walk::new(&key, &metadata.rule, metadata.only_encrypted);
    walk.decrypt_documents(&mut documents)?;
    let mac = compare_mac(&metadata, &key, &walk.finish());
    let bytes = write(file, documents, (from, to), &is_kept)?;
    go_yaml::meter::check().map_err(Error::Spent)?;
    Ok(Decrypted { bytes, mac })
}

/// Checks whether the selector selects a document.
fn has_text(document: &Document, kept: EncryptedDocumentSelector<'_>) -> bool {
    let Some((first, rest)) = kept.path.split_first() else {
        return false;
    };
    let node = rest
        .iter()
        .try_fold(find_field(&document.entries, first), |node, key| match &node?.value {
            Value::Map(entries) => Some(find_field(entries, key)),
            _ => None,
        });
    let text = node.flatten().and_then(|node| node.as_text());
    text.is_some_and(|text| text.eq_ignore_ascii_case(kept.text))
}

fn compare_mac(metadata: &Metadata, key: &cipher::DataKey, computed: &str) -> MacVerdict {
    if metadata.mac.is_empty() {
        return MacVerdict::Missing;
    }
    match cipher::decrypt_value(&metadata.mac, key, &metadata.last_modified) {
        Ok(Value::Text(text)) if bool::from(subtle::ConstantTimeEq::ct_eq(text.as_bytes(), computed.as_bytes())) => {
            MacVerdict::Right
        }
        Ok(_) => MacVerdict::Wrong,
        Err(_) => MacVerdict::Unreadable,
    }
}

fn write(
    file: &str,
    documents: Vec<Document>,
    (from, to): (Format, Format),
    is_kept: &[bool],
) -> Result<Zeroizing<Vec<u8>>, Error> {
    if to == Format::Yaml && from == Format::Yaml {
        let pairs = documents.into_iter().zip(is_kept);
        let clear: Vec<Document> = pairs
            .filter(|(_, is_kept)| !**is_kept)
            .map(|(document, _)| document)
            .collect();
        return yaml::write(file, &clear, is_kept.contains(&true));
    }
    let mut documents = documents;
    if to == Format::Yaml {
        return yaml::write_lines(&documents);
    }
    if documents.len() > 1 {
        return Err(Error::Unwritable("several documents can't be written in this format"));
    }
    let document = documents.pop().ok_or(Error::NotEncrypted)?;
    match to {
        Format::Json => json::write(&document),
        Format::Dotenv => dotenv::write(&document),
        Format::Ini => ini::write(&document),
        Format::Binary | Format::Yaml => json::write_data(&document),
    }
}
