//! The keys that may open files, and the search for the right one. Keys that need a passphrase or a device are refused.

use std::fmt;

use zeroize::Zeroizing;

use crate::age::{self, Identity};
use crate::cipher::DataKey;
use crate::error::{Error, KeyError};
use crate::metadata::{Group, Metadata};
use crate::pgp::{self, SecretKey};
use crate::shamir;
use crate::tries::Tries;

/// The most keys of one kind.
const MOST_KEYS: usize = 64;
/// The largest text with keys, in bytes.
const LARGEST_TEXT: usize = 1 << 20;

/// The private keys that may open files. The content is wiped on drop, and never printed.
#[derive(Default)]
pub struct Keys {
    age: Vec<Identity>,
    pgp: Vec<SecretKey>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Keys({} of age, {} of OpenPGP)",
            self.age.len(),
            self.pgp.len()
        )
    }
}

impl Keys {
    /// Creates an empty set of keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.age.is_empty() && self.pgp.is_empty()
    }

    /// Returns the recipients of the age identities, as age prints them. Recipients are public.
    #[must_use]
    pub fn age_recipients(&self) -> Vec<String> {
        self.age.iter().map(Identity::recipient).collect()
    }

    /// Adds age identities: one per line, with comments, as `age-keygen` writes them.
    ///
    /// # Errors
    /// When a line is no identity, or there are too many. The error names the line, and no part of its content.
    pub fn add_age(&mut self, text: &[u8]) -> Result<(), KeyError> {
        let text = check_text(text)?;
        let left = MOST_KEYS - self.age.len().min(MOST_KEYS);
        self.age.extend(age::read_identities(text, left)?);
        Ok(())
    }

    /// Adds OpenPGP secret keys: armored and without a passphrase, as `gpg --armor --export-secret-keys` writes them.
    ///
    /// # Errors
    /// When no key can decrypt, or there are too many.
    pub fn add_pgp(&mut self, text: &[u8]) -> Result<(), KeyError> {
        let text = check_text(text)?;
        let left = MOST_KEYS - self.pgp.len().min(MOST_KEYS);
        self.pgp.extend(pgp::read_keys(text, left)?);
        Ok(())
    }

    /// Decrypts the data key of a file with these private keys.
    ///
    /// # Errors
    /// When the keys open too few of its groups.
    pub(crate) fn data_key(&self, metadata: &Metadata, most_tries: usize) -> Result<DataKey, Error> {
        let mut tries = Tries::new(most_tries);
        let mut shares = Vec::new();
        for group in &metadata.groups {
            if let Some(share) = self.decrypt_share(group, &mut tries)? {
                shares.push(share);
            }
        }
        let secret = if metadata.groups.len() > 1 {
            if shares.is_empty() {
                return Err(nothing_opens(metadata));
            }
            if shares.len() < metadata.threshold.max(2) {
                return Err(Error::Threshold {
                    opened: shares.len(),
                    needed: metadata.threshold.max(2),
                });
            }
            shamir::combine_shares(&shares)
                .ok_or_else(|| Error::Metadata("the shares of its key don't fit together".into()))?
        } else {
            shares.pop().ok_or_else(|| nothing_opens(metadata))?
        };
        let key = <[u8; 32]>::try_from(secret.as_slice());
        key.map(Zeroizing::new)
            .map_err(|_| Error::Metadata("its data key is not one for AES-256".into()))
    }

    /// Returns the share of one group. Tries recipients of these keys first, then other age recipients, then OpenPGP's, in SOPS' order.
    fn decrypt_share(&self, group: &Group, tries: &mut Tries) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let ours = self.age_recipients();
        let (known, others): (Vec<_>, Vec<_>) = group.age.iter().partition(|one| ours.contains(&one.name));
        for recipient in known.into_iter().chain(others) {
            if let Some(share) = age::decrypt_data_key(&recipient.sealed, &self.age, tries) {
                return Ok(Some(share));
            }
            if tries.are_over() {
                tries.count_try(0)?;
            }
        }
        for recipient in &group.pgp {
            if let Some(share) = pgp::decrypt_data_key(&recipient.sealed, &self.pgp, tries)? {
                return Ok(Some(share));
            }
        }
        go_yaml::meter::check().map_err(Error::Spent)?;
        Ok(None)
    }
}

fn check_text(text: &[u8]) -> Result<&str, KeyError> {
    if text.len() > LARGEST_TEXT {
        return Err(KeyError("it is larger than keys are".to_owned()));
    }
    std::str::from_utf8(text).map_err(|_| KeyError("it is not text".to_owned()))
}

/// Makes the error for a file that no key opens: names its kinds of recipients.
fn nothing_opens(metadata: &Metadata) -> Error {
    let mut services: Vec<&str> = metadata
        .groups
        .iter()
        .flat_map(|group| group.services.iter().copied())
        .collect();
    services.sort_unstable();
    services.dedup();
    let age: usize = metadata.groups.iter().map(|group| group.age.len()).sum();
    let pgp: usize = metadata.groups.iter().map(|group| group.pgp.len()).sum();
    if age + pgp == 0 {
        return Error::ServicesOnly(services.join(" and "));
    }
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("one {what}")),
        many => Some(format!("{many} {what}s")),
    };
    let mut whom: Vec<String> = counted(age, "recipient of age")
        .into_iter()
        .chain(counted(pgp, "key of OpenPGP"))
        .collect();
    whom.extend(
        services
            .into_iter()
            .map(|service| format!("{service}, which is not asked")),
    );
    Error::NoKey(whom.join(", "))
}
