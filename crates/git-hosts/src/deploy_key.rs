//! Deploy keys that Tenure makes, and the fingerprints that identify credentials.

use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use sha2::{Digest as _, Sha256};
use tenure_sources::SecretBytes;
use zeroize::Zeroizing;

/// A new key pair for one repository.
#[derive(Clone, Debug)]
pub struct DeployKeyPair {
    /// The private half, in OpenSSH's form.
    pub private: SecretBytes,
    /// The public half, in OpenSSH's form, with its comment.
    pub public: String,
}

/// Makes a pair of Ed25519 keys. Both halves have the comment.
///
/// # Errors
/// When the system gives no random bytes, or the comment isn't allowed in a key.
pub fn make_deploy_key(comment: &str) -> Result<DeployKeyPair, &'static str> {
    if comment.chars().any(char::is_control) {
        return Err("a key's comment is one line without control characters");
    }
    let mut seed = Zeroizing::new([0_u8; 32]);
    let filled = SystemRandom::new().fill(&mut *seed);
    filled.map_err(|_| "the system gives no random bytes")?;
    let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed));
    let written = PrivateKey::new(pair, comment).and_then(|key| {
        let private = key.to_openssh(LineEnding::LF)?;
        Ok((SecretBytes::new(private.as_str()), key.public_key().to_openssh()?))
    });
    let (private, public) = written.map_err(|_| "the key can't be written")?;
    Ok(DeployKeyPair { private, public })
}

/// Returns the SHA-256 of a token, as hex.
#[must_use]
pub fn fingerprint_value(value: &SecretBytes) -> String {
    fingerprint_bytes(value.reveal().as_bytes())
}

/// Returns the SHA-256 of bytes, as hex.
#[must_use]
pub fn fingerprint_bytes(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns the SHA-256 of the kind and the key of a public key, as hex. A space separates the two; the comment is left out.
#[must_use]
pub fn fingerprint_key(public: &str) -> String {
    hex::encode(Sha256::digest(strip_comment(public).as_bytes()))
}

/// Returns the kind and the key of a public key.
pub(crate) fn strip_comment(public: &str) -> String {
    let words: Vec<&str> = public.split_whitespace().take(2).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_new_and_its_halves_belong_together() {
        let (one, other) = (make_deploy_key("tenure").unwrap(), make_deploy_key("tenure").unwrap());
        assert_ne!(one.public, other.public);
        assert!(one.public.starts_with("ssh-ed25519 ") && one.public.ends_with(" tenure"));
        let private = PrivateKey::from_openssh(one.private.reveal()).unwrap();
        assert_eq!(private.public_key().to_openssh().unwrap(), one.public);
        assert_eq!(
            fingerprint_key(&one.public),
            fingerprint_key(&strip_comment(&one.public))
        );
        assert_ne!(fingerprint_key(&one.public), fingerprint_key(&other.public));
        assert!(!format!("{one:?}").contains("PRIVATE"));
        assert!(make_deploy_key("a\nb").is_err());
    }
}
