//! Key pairs that Tenure makes for a source: their creation, and the check that a public half belongs to a private one.
//!
//! Only ed25519 keys are accepted, since only Tenure should have written a key at this place. No error quotes the private half.

use std::fmt;

use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::ssh_key::{HashAlg, LineEnding};
use russh::keys::{PrivateKey, PublicKey};
use zeroize::Zeroizing;

/// The most bytes of a key that is read: more than an ed25519 key takes in any form.
const LONGEST: usize = 4 << 10;

/// An ed25519 key pair for a source. Its private half is wiped from memory on drop, and is never printed.
pub struct DeployKey {
    private: Zeroizing<String>,
    public: PublicHalf,
}

/// The public half of a [`DeployKey`], with its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicHalf {
    /// One line of `authorized_keys`.
    pub line: String,
    /// The fingerprint as `ssh-keygen -l` writes it: `SHA256:…`.
    pub fingerprint: String,
}

impl DeployKey {
    /// Makes a key pair. `comment` stands behind the public half and says where the key comes from.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn generate(comment: &str) -> Result<Self, String> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        SystemRandom::new()
            .fill(seed.as_mut())
            .map_err(|_| "the system gives no random bytes".to_owned())?;
        let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed));
        // The library's error could quote the key, so it is left out.
        let unwritable = || "the key can't be written in OpenSSH's form".to_owned();
        let key = PrivateKey::new(pair, comment).map_err(|_| unwritable())?;
        Ok(Self {
            private: key.to_openssh(LineEnding::LF).map_err(|_| unwritable())?,
            public: PublicHalf::from_key(key.public_key()).ok_or_else(unwritable)?,
        })
    }

    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicHalf {
        &self.public
    }

    /// Returns the private half in OpenSSH's form, for the Secret and nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.private
    }
}

impl fmt::Debug for DeployKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("DeployKey");
        shown.field("public", &self.public).finish_non_exhaustive()
    }
}

impl PublicHalf {
    fn from_key(key: &PublicKey) -> Option<Self> {
        Some(Self {
            line: key.to_openssh().ok()?,
            fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
        })
    }
}

/// Reads the public half of a pair from the entries `identity` and `identity.pub` of a Secret that Tenure has written.
///
/// # Errors
/// The problem, without any content of the Secret: a half is no ed25519 key, or the halves don't belong together.
pub fn read_pair(identity: &[u8], public: &[u8]) -> Result<PublicHalf, &'static str> {
    if identity.len() > LONGEST || public.len() > LONGEST {
        return Err("its content is longer than any key of ed25519");
    }
    let key = PrivateKey::from_openssh(identity).map_err(|_| "identity is no private key in OpenSSH's form")?;
    let KeypairData::Ed25519(pair) = key.key_data() else {
        return Err("identity is no key of ed25519 without a passphrase");
    };
    // Two places of the file state the public half, and neither needs to be true.
    let made = Ed25519Keypair::from_seed(&pair.private.to_bytes());
    let named = std::str::from_utf8(public).ok().map(PublicKey::from_openssh);
    let Some(Ok(named)) = named else {
        return Err("identity.pub is no public key in OpenSSH's form");
    };
    let is_pair = named.key_data().ed25519() == Some(&made.public) && key.public_key().key_data() == named.key_data();
    if !is_pair {
        return Err("identity.pub is not the public half of identity");
    }
    PublicHalf::from_key(&named).ok_or("identity.pub is no public key in OpenSSH's form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_key() -> DeployKey {
        DeployKey::generate("tenure:alpha/shop-app").unwrap()
    }

    #[test]
    fn generated_keys_read_back_and_differ() {
        let (one, other) = (make_key(), make_key());
        assert_ne!(one.public(), other.public());
        assert!(one.public().line.starts_with("ssh-ed25519 AAAA"), "{one:?}");
        assert!(one.public().line.ends_with(" tenure:alpha/shop-app"), "{one:?}");
        assert!(one.public().fingerprint.starts_with("SHA256:"), "{one:?}");
        let read = read_pair(one.reveal().as_bytes(), one.public().line.as_bytes());
        assert_eq!(read.as_ref(), Ok(one.public()));
        // The reader of sources' credentials accepts the key as well.
        let key = russh::keys::decode_secret_key(one.reveal(), None).unwrap();
        assert_eq!(key.public_key().to_openssh().unwrap(), one.public().line);
    }

    #[test]
    fn nothing_private_is_printed() {
        let key = make_key();
        let shown = format!("{key:?}");
        let inside = key.reveal().lines().nth(1).unwrap();
        assert!(!shown.contains(inside) && !shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn mismatched_and_malformed_keys_are_refused() {
        let (one, other) = (make_key(), make_key());
        let read = |identity: &str, public: &str| read_pair(identity.as_bytes(), public.as_bytes()).unwrap_err();
        assert_eq!(
            read(one.reveal(), &other.public().line),
            "identity.pub is not the public half of identity"
        );
        assert_eq!(
            read("", &one.public().line),
            "identity is no private key in OpenSSH's form"
        );
        assert_eq!(
            read(one.reveal(), "ssh-ed25519 AAAA"),
            "identity.pub is no public key in OpenSSH's form"
        );
        let long = "x".repeat(LONGEST + 1);
        assert!(read(&long, "").contains("longer") && read("", &long).contains("longer"));
        // A private half below the public half of another key, as a file that was edited by hand may have.
        let seed = [7_u8; 32];
        let mut pair = Ed25519Keypair::from_seed(&seed);
        pair.public = Ed25519Keypair::from_seed(&[8_u8; 32]).public;
        if let Ok(key) = PrivateKey::new(KeypairData::Ed25519(pair), "") {
            let text = key.to_openssh(LineEnding::LF).unwrap();
            let public = key.public_key().to_openssh().unwrap();
            assert!(read_pair(text.as_bytes(), public.as_bytes()).is_err());
        }
    }
}
