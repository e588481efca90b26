//! The rule that says which values of a file are encrypted: suffixes and regular expressions of the metadata, for the keys of a value's path and for the comments before
//! it.

use go_words::pattern::translate;
use regex::Regex;

use crate::error::Error;

/// The largest compiled expression, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;

/// The suffix of keys that SOPS leaves unencrypted by default (`DefaultUnencryptedSuffix`).
pub(crate) const DEFAULT_UNENCRYPTED_SUFFIX: &str = "_unencrypted";

/// Which values are encrypted. A file has one rule.
pub(crate) enum Rule {
    /// All except values below a key with this suffix.
    UnencryptedSuffix(String),
    /// Values below a key with this suffix.
    EncryptedSuffix(String),
    /// All except values below a key that matches.
    UnencryptedRegex(Regex),
    /// Values below a key that matches.
    EncryptedRegex(Regex),
    /// All except values after a comment that matches.
    UnencryptedCommentRegex(Regex),
    /// Values after a comment that matches.
    EncryptedCommentRegex(Regex),
}

impl Rule {
    /// Reads the rule of this metadata field.
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

    /// Checks whether the rule is about comments.
    pub(crate) fn is_of_comments(&self) -> bool {
        matches!(self, Self::UnencryptedCommentRegex(_) | Self::EncryptedCommentRegex(_))
    }

    /// Checks whether the rule matches a key. One key in a path decides for all values below it.
    pub(crate) fn matches_key(&self, key: &str) -> bool {
        match self {
            Self::UnencryptedSuffix(suffix) | Self::EncryptedSuffix(suffix) => key.ends_with(suffix.as_str()),
            Self::UnencryptedRegex(regex) | Self::EncryptedRegex(regex) => is_match(regex, key),
            Self::UnencryptedCommentRegex(_) | Self::EncryptedCommentRegex(_) => false,
        }
    }

    /// Checks whether the rule matches a comment, which decides for the following values.
    pub(crate) fn matches_comment(&self, comment: &str) -> bool {
        match self {
            Self::UnencryptedCommentRegex(regex) | Self::EncryptedCommentRegex(regex) => is_match(regex, comment),
            _ => false,
        }
    }

    /// Checks whether matching values are encrypted, or else left unencrypted.
    pub(crate) fn encrypts_matches(&self) -> bool {
        matches!(
            self,
            Self::EncryptedSuffix(_) | Self::EncryptedRegex(_) | Self::EncryptedCommentRegex(_)
        )
    }
}

fn is_match(regex: &Regex, text: &str) -> bool {
    go_yaml::meter::count_steps(1 + text.len());
    regex.is_match(text)
}
