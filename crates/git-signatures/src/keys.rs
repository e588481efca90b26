//! The trusted public keys of a Secret, and the verification with them.
//!
//! By Flux's rules, entries with the ending `.sshpub` have SSH keys, and entries with `.asc` have OpenPGP keys. Other entries may have OpenPGP keys, as before these
//! endings existed. An entry with one of these endings and without a key is refused: its author would think that the key is trusted.

use std::collections::BTreeMap;

use crate::certificate::Certificate;
use crate::openpgp;
use crate::payload::Signed;
use crate::ssh::{self, SshKey};

/// The most entries of a Secret that are read.
const MOST_ENTRIES: usize = 200;

/// The OpenPGP and SSH public keys of a Secret, which may sign commits and tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedKeys {
    openpgp: Vec<Certificate>,
    ssh: Vec<SshKey>,
}

/// The error for a Secret, or an entry of it, without usable keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidKey(String);

/// Why a commit or tag is not verified: no good signature of a trusted key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unverified(String);

impl TrustedKeys {
    /// Reads the public keys in the entries of a Secret.
    ///
    /// # Errors
    /// The unusable entry and the reason, without its content. Also when there is no key at all.
    pub fn read(entries: &BTreeMap<String, Vec<u8>>) -> Result<Self, InvalidKey> {
        if entries.len() > MOST_ENTRIES {
            return Err(InvalidKey(format!("it has more than {MOST_ENTRIES} entries")));
        }
        let mut keys = Self::default();
        for (name, content) in entries {
            let invalid = |problem: String| InvalidKey(format!("{name} {problem}"));
            let text = std::str::from_utf8(content).ok();
            let (is_ssh, is_openpgp) = (name.ends_with(".sshpub"), name.ends_with(".asc"));
            match text {
                None if is_ssh || is_openpgp => return Err(invalid("is not text".to_owned())),
                Some(text) if is_ssh => {
                    let list = ssh::read_list(text)
                        .map_err(|problem| invalid(format!("is no list of SSH keys: {problem}")))?;
                    keys.ssh.extend(list);
                }
                Some(text) if is_openpgp || openpgp::is_key_ring(text) => {
                    keys.openpgp.extend(openpgp::read_key_ring(text).map_err(invalid)?);
                }
                _ => {}
            }
        }
        if keys.openpgp.is_empty() && keys.ssh.is_empty() {
            return Err(InvalidKey(
                "it has no public key: none of OpenPGP under a name that ends in .asc, and none of SSH under one that ends in .sshpub".to_owned(),
            ));
        }
        Ok(keys)
    }

    /// Verifies an object and returns the key of its signature: the id of a primary key of OpenPGP, or the fingerprint of an SSH key. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The reason why the object is not verified.
    pub fn verify(&self, object: &Signed, now: i64) -> Result<String, Unverified> {
        let fail = |text: &str| Err(Unverified(text.to_owned()));
        let signature = object.signature.as_str();
        let verified = if signature.starts_with("-----BEGIN PGP SIGNATURE-----") {
            if self.openpgp.is_empty() {
                return fail("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)");
            }
            openpgp::verify(signature, &object.payload, &self.openpgp, now)
        } else if signature.starts_with("-----BEGIN SSH SIGNATURE-----") {
            if self.ssh.is_empty() {
                return fail(
                    "SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)",
                );
            }
            ssh::verify(signature, &object.payload, &self.ssh)
        } else if signature.is_empty() {
            return fail("unsupported signature type: empty");
        } else if signature.starts_with("-----BEGIN SIGNED MESSAGE-----") {
            return fail("unsupported signature type: x509");
        } else {
            return fail("unsupported signature type: unknown");
        };
        verified.map_err(|failure| {
            Unverified(format!(
                "unable to verify payload with any of the given keys: {}",
                failure.0
            ))
        })
    }
}
