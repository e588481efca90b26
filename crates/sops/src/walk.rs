//! Walks over a file's values in SOPS' order. A value is decrypted if the file's rule says so, with its path, and is added to the hash for the MAC. A value that
//! contradicts its rule is refused.

use sha2::{Digest as _, Sha512};

use crate::cipher::{self, DataKey};
use crate::error::{Error, shorten_name};
use crate::rules::Rule;
use crate::text;
use crate::tree::{Comment, Document, Entry, Node, Value};

/// The initial bytes of a hash that covers only the encrypted values (`MACOnlyEncryptedInitialization`): the SHA-256 of `sops`.
const ONLY_ENCRYPTED: &str = "8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69";

/// Decrypts the values of a file's documents one after the other, and hashes them for the MAC.
pub(crate) struct Walk<'a> {
    key: &'a DataKey,
    rule: &'a Rule,
    only_encrypted: bool,
    hash: Sha512,
}

/// The path to a value, and how often the file's rule has matched along the path.
#[derive(Default)]
struct ValuePath {
    /// The keys, each with a colon after it.
    path: String,
    /// The number of keys that the rule matches.
    matched_keys: usize,
    /// For each level, the number of comments before the value that the rule matches.
    comments: Vec<usize>,
}

impl ValuePath {
    /// Returns the path in its authenticated form: a colon at the top level.
    fn authenticated_path(&self) -> &str {
        if self.path.is_empty() { ":" } else { &self.path }
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(key: &'a DataKey, rule: &'a Rule, only_encrypted: bool) -> Self {
        let mut hash = Sha512::new();
        if only_encrypted {
            hash.update(hex::decode(ONLY_ENCRYPTED).unwrap_or_default());
        }
        Self {
            key,
            rule,
            only_encrypted,
            hash,
        }
    }

    /// Decrypts the values of all documents in place, and hashes them.
    ///
    /// # Errors
    /// When a value can't be decrypted.
    pub(crate) fn decrypt_documents(&mut self, documents: &mut [Document]) -> Result<(), Error> {
        for document in documents {
            self.walk_map(&mut document.entries, &mut ValuePath::default())?;
        }
        Ok(())
    }

    /// Returns the hash of all values in upper hexadecimal digits, the form for the comparison.
    pub(crate) fn finish(self) -> String {
        hex::encode_upper(self.hash.finalize())
    }

    fn walk_map(&mut self, entries: &mut [Entry], way: &mut ValuePath) -> Result<(), Error> {
        way.comments.push(0);
        for entry in entries {
            match entry {
                Entry::Comment(comment) => self.walk_comment(comment, way)?,
                Entry::Pair { key, value, .. } => {
                    let length = way.path.len();
                    let is_match = self.rule.matches_key(key);
                    way.path.push_str(key);
                    way.path.push(':');
                    go_yaml::meter::count_steps(1 + way.path.len() / 16);
                    way.matched_keys += usize::from(is_match);
                    let done = self.walk_node(value, way);
                    way.matched_keys -= usize::from(is_match);
                    way.path.truncate(length);
                    done?;
                    clear_last(way);
                }
            }
        }
        way.comments.pop();
        Ok(())
    }

    fn walk_list(&mut self, items: &mut [Node], way: &mut ValuePath) -> Result<(), Error> {
        way.comments.push(0);
        for item in items {
            if let Value::Comment(comment) = &mut item.value {
                self.walk_comment(comment, way)?;
                continue;
            }
            self.walk_node(item, way)?;
            clear_last(way);
        }
        way.comments.pop();
        Ok(())
    }

    /// Decrypts a comment if possible, and never hashes it. A comment that isn't encrypted stays unchanged, as older versions wrote it.
    fn walk_comment(&mut self, comment: &mut Comment, way: &mut ValuePath) -> Result<(), Error> {
        // The rule applies to the comment as written in the file. A comment that starts encryption isn't encrypted itself; a comment that ends it is included.
        let is_match = self.rule.matches_comment(&comment.text);
        let was_encrypted = self.is_encrypted(way);
        if let Some(last) = way.comments.last_mut() {
            *last += usize::from(is_match);
        }
        let encrypted = was_encrypted && (self.rule.encrypts_matches() || self.is_encrypted(way));
        if encrypted
            && cipher::is_encrypted(&comment.text)
            && let Ok(Value::Comment(opened)) = cipher::decrypt_value(&comment.text, self.key, way.authenticated_path())
        {
            comment.text = opened.text;
            comment.is_opened = true;
        }
        go_yaml::meter::check().map_err(Error::Spent)
    }

    /// Checks whether the file's rule says that the value at this path is encrypted.
    fn is_encrypted(&self, way: &ValuePath) -> bool {
        let matched = way.matched_keys > 0 || way.comments.iter().any(|matched| *matched > 0);
        matched == self.rule.encrypts_matches()
    }

    fn walk_node(&mut self, node: &mut Node, way: &mut ValuePath) -> Result<(), Error> {
        match &mut node.value {
            Value::Map(entries) => return self.walk_map(entries, way),
            Value::List(items) => return self.walk_list(items, way),
            Value::Null => return Ok(()),
            _ => {}
        }
        go_yaml::meter::check().map_err(Error::Spent)?;
        let encrypted = self.is_encrypted(way);
        let fail = |what| {
            Err(Error::Value {
                path: shorten_name(way.path.trim_end_matches(':')),
                what,
            })
        };
        if encrypted {
            let Some(sealed) = node.as_text() else {
                return fail("should be encrypted and isn't");
            };
            if !sealed.is_empty() {
                if node.is_alias {
                    return fail("is encrypted and used through an alias");
                }
                if self.rule.is_of_comments() && !cipher::is_encrypted(sealed) {
                    return fail("should be encrypted by the comments before it and isn't");
                }
                match cipher::decrypt_value(sealed, self.key, way.authenticated_path()) {
                    Ok(value) => node.value = value,
                    Err(what) => return fail(what),
                }
                node.is_opened = true;
            }
        } else if self.rule.is_of_comments() && node.as_text().is_some_and(cipher::is_encrypted) {
            return fail("is encrypted although no comment before it says so");
        }
        if !self.only_encrypted || encrypted {
            self.hash_value(&node.value);
        }
        Ok(())
    }

    /// Adds a value to the hash as SOPS does (`ToBytes`).
    fn hash_value(&mut self, value: &Value) {
        match value {
            Value::Text(text) | Value::Time(text) => self.hash.update(text.as_bytes()),
            Value::Bytes(bytes) => self.hash.update(bytes.as_slice()),
            Value::Int(number) => self.hash.update(number.to_string()),
            Value::Float(number) => self.hash.update(text::plain_float(*number)),
            Value::Bool(truth) => self.hash.update(if *truth { "True" } else { "False" }),
            Value::Comment(_) | Value::Null | Value::Map(_) | Value::List(_) => {}
        }
    }
}

fn clear_last(way: &mut ValuePath) {
    if let Some(last) = way.comments.last_mut() {
        *last = 0;
    }
}
