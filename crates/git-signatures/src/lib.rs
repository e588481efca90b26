//! Verifies signatures of Git's commits and tags, made with keys of OpenPGP or SSH that somebody trusts.
//!
//! Owns what of an object is signed and by whom it may be; `ring` does the arithmetic. A key must be good now: neither revoked nor expired.
//! Pure: the time is a parameter, and nothing is looked up anywhere. Refuses by name what it does not understand, and whatever it can't
//! tell to be good is not good.
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
mod keys;
mod openpgp;
mod payload;
mod ssh;
mod subpackets;

pub use keys::{InvalidKey, TrustedKeys, Unverified};
pub use payload::{ObjectFormat, Signed, read_tag_name, split_commit, split_tag};
