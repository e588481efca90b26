#![doc = include_str!("../README.md")]

mod age;
mod armor;
mod bech32;
mod cipher;
mod decrypt;
mod error;
mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keys;
mod limits;
mod metadata;
mod pgp;
mod rules;
mod shamir;
mod stores;
mod text;
mod tree;
mod tries;
mod walk;

pub use decrypt::{Decrypted, EncryptedDocumentSelector, MacVerdict, decrypt, decrypt_within};
pub use error::{Error, KeyError};
pub use format::Format;
pub use keys::Keys;
pub use limits::Limits;
