//! Owns why a file isn't decrypted. No error repeats a value, encrypted or clear, nor a key: what is named are places.

/// Why a file isn't decrypted, or a key isn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is larger than the limit, both in bytes.
    #[error("it has {bytes} bytes, more than the {most} that an encrypted file may have")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        most: usize,
    },
    /// There is more in the file than the limit of what is counted.
    #[error("it has more than {most} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        most: usize,
    },
    /// The budget of whoever reads is spent (`go_yaml::meter`).
    #[error("{0}")]
    Spent(String),
    /// The file has no metadata of SOPS.
    #[error("it is not encrypted with SOPS: there is no metadata")]
    NotEncrypted,
    /// The file isn't of its format.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The metadata aren't as SOPS writes them.
    #[error("its SOPS metadata: {0}")]
    Metadata(String),
    /// Only services that aren't asked hold the key.
    #[error("it is encrypted for {0} only, which is not asked; add an age or OpenPGP recipient")]
    ServicesOnly(String),
    /// No key opens it.
    #[error("none of the keys opens it: it is encrypted for {0}")]
    NoKey(String),
    /// Too few key groups can be opened.
    #[error("{opened} of its key groups can be opened, and {needed} are needed")]
    Threshold {
        /// How many can be.
        opened: usize,
        /// How many have to be.
        needed: usize,
    },
    /// A value can't be decrypted.
    #[error("the value at {path} {what}")]
    Value {
        /// Its keys, as they are in the file.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// What is decrypted can't be written in the format that is asked for.
    #[error("{0}")]
    Unwritable(&'static str),
}

/// Why a key isn't taken. Repeats nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub(crate) String);

impl KeyError {
    pub(crate) fn at(line: usize, what: &str) -> Self {
        Self(format!("line {line}: {what}"))
    }
}

/// How much of a name of the file is shown.
const SHOWN: usize = 64;

/// A name of the file on one line, cut short; it is somebody else's text.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(SHOWN)
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
