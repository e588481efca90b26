//! The reasons why a file isn't decrypted. Errors name places; no error repeats a key or a value, encrypted or clear.

/// Why a file isn't decrypted, or a key is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is larger than the limit, both in bytes.
    #[error("it has {bytes} bytes, more than the {most} that an encrypted file may have")]
    TooLarge {
        /// The size of the file.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The file has more of the counted items than the limit.
    #[error("it has more than {most} {what}")]
    TooMany {
        /// The counted items.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// The budget of the caller is spent (`go_yaml::meter`).
    #[error("{0}")]
    Spent(String),
    /// The file has no metadata of SOPS.
    #[error("it is not encrypted with SOPS: there is no metadata")]
    NotEncrypted,
    /// The file is malformed.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The problem.
        what: &'static str,
    },
    /// The metadata do not have SOPS' form.
    #[error("its SOPS metadata: {0}")]
    Metadata(String),
    /// Only key services have the key, and they are not supported.
    #[error("it is encrypted for {0} only, which is not asked; add an age or OpenPGP recipient")]
    ServicesOnly(String),
    /// No key opens it.
    #[error("none of the keys opens it: it is encrypted for {0}")]
    NoKey(String),
    /// Too few key groups can be opened.
    #[error("{opened} of its key groups can be opened, and {needed} are needed")]
    Threshold {
        /// The number of opened groups.
        opened: usize,
        /// The number of required groups.
        needed: usize,
    },
    /// A value can't be decrypted.
    #[error("the value at {path} {what}")]
    Value {
        /// The keys that lead to the value, as in the file.
        path: String,
        /// The problem.
        what: &'static str,
    },
    /// The decrypted data can't be written in the requested format.
    #[error("{0}")]
    Unwritable(&'static str),
}

/// Why a key is refused. Contains no part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub(crate) String);

impl KeyError {
    pub(crate) fn at(line: usize, what: &str) -> Self {
        Self(format!("line {line}: {what}"))
    }
}

/// The shown length of a name from the file.
const SHOWN: usize = 64;

/// Writes a name from the file on one line, cut short, because the text is untrusted.
pub(crate) fn shorten_name(text: &str) -> String {
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
