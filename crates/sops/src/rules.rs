//! Owns which values of a file are encrypted: the suffixes and regular expressions of its metadata, by the keys on the way to a value and
//! by the comments before it.

use go_words::pattern::translate;
use regex::Regex;

use crate::error::Error;

/// What a compiled expression may take, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;

/// What SOPS leaves alone when a file doesn't say (`DefaultUnencryptedSuffix`).
pub(crate) const DEFAULT_UNENCRYPTED_SUFFIX: &str = "_unencrypted";

/// Which values are encrypted. A file has one rule.
pub(crate) enum Rule {
    /// All but those below a key that ends so.
    UnencryptedSuffix(String),
    /// Those below a key that ends so.
    EncryptedSuffix(String),
    /// All but those below a key that matches.
    UnencryptedRegex(Regex),
    /// Those below a key that matches.
    EncryptedRegex(Regex),
    /// All but those after a comment that matches.
    UnencryptedCommentRegex(Regex),
    /// Those after a comment that matches.
    EncryptedCommentRegex(Regex),
}

impl Rule {
    /// The rule of metadata with this field, and what it says.
    ///
    /// # Errors
    /// For an expression that Go can't read.
    pub(crate) fn new(field: &str, text: &str) -> Result<Self, Error> {
        let regex = || {
            let bad = || Error::Metadata(format!("{field} is not a regular expression"));
            let translated = translate(text).map_err(|_| bad())?;
            regex::RegexBuilder::new(&translated)
                .size_limit(LARGEST_PATTERN)
                .build()
                .map_err(|_| bad())
        };
        Ok(match field {
            "unencrypted_suffix" => Self::UnencryptedSuffix(text.to_owned()),
            "encrypted_suffix" => Self::EncryptedSuffix(text.to_owned()),
            "unencrypted_regex" => Self::UnencryptedRegex(regex()?),
            "encrypted_regex" => Self::EncryptedRegex(regex()?),
            "unencrypted_comment_regex" => Self::UnencryptedCommentRegex(regex()?),
            _ => Self::EncryptedCommentRegex(regex()?),
        })
    }

    /// Whether it looks at comments.
    pub(crate) fn is_of_comments(&self) -> bool {
        matches!(self, Self::UnencryptedCommentRegex(_) | Self::EncryptedCommentRegex(_))
    }

    /// Whether one key on the way decides for all below it.
    pub(crate) fn matches_key(&self, key: &str) -> bool {
        match self {
            Self::UnencryptedSuffix(suffix) | Self::EncryptedSuffix(suffix) => key.ends_with(suffix.as_str()),
            Self::UnencryptedRegex(regex) | Self::EncryptedRegex(regex) => is_match(regex, key),
            Self::UnencryptedCommentRegex(_) | Self::EncryptedCommentRegex(_) => false,
        }
    }

    /// Whether one comment decides for what follows.
    pub(crate) fn matches_comment(&self, comment: &str) -> bool {
        match self {
            Self::UnencryptedCommentRegex(regex) | Self::EncryptedCommentRegex(regex) => is_match(regex, comment),
            _ => false,
        }
    }

    /// Whether what is matched is encrypted, or left alone.
    pub(crate) fn encrypts(&self) -> bool {
        matches!(
            self,
            Self::EncryptedSuffix(_) | Self::EncryptedRegex(_) | Self::EncryptedCommentRegex(_)
        )
    }
}

fn is_match(regex: &Regex, text: &str) -> bool {
    go_yaml::meter::work(1 + text.len());
    regex.is_match(text)
}
