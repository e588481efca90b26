//! Verifies signatures of Git's commits and tags, made with trusted keys of OpenPGP or SSH.
//!
//! A key must be valid now: neither revoked nor expired. The crate is pure: the time is a parameter, and nothing is looked up. `ring` does the arithmetic. An unsupported
//! form is refused by name. A signature is only accepted if it is proven to be good.
//!
//! ```
//! use std::collections::BTreeMap;
//! use git_signatures::{ObjectFormat, TrustedKeys, split_commit};
//!
//! let secret = BTreeMap::from([("author.sshpub".to_owned(), b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHeGAJOqEMB3rYBtsnOLqzVkVZPgBJWCnwfXRuhvQQkm me".to_vec())]);
//! let keys = TrustedKeys::read(&secret).unwrap();
//! let signed = split_commit(b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\nno signature\n", ObjectFormat::Sha1).unwrap();
//! assert_eq!(keys.verify(&signed, 0).unwrap_err().to_string(), "unsupported signature type: empty");
//! ```

mod arithmetic;
mod certificate;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keys;
mod openpgp;
mod payload;
mod ssh;
mod subpackets;

pub use keys::{InvalidKey, TrustedKeys, Unverified};
pub use payload::{ObjectFormat, Signed, read_tag_name, split_commit, split_tag};
