//! Reads the private key of a Secret, `identity`.
//!
//! A key that would take too much time or memory to read is refused first: the file sets the number of rounds for its passphrase, and the author of the Secret controls
//! the file.

use russh::keys::ssh_key::Kdf;
use russh::keys::{PrivateKey, decode_secret_key};

use crate::error::FetchError;
use crate::secret::SecretBytes;

/// More bytes than an RSA key of 16,384 bits takes.
const LONGEST: usize = 16 << 10;
/// The most rounds. OpenSSH writes 16 or 24; users of `ssh-keygen -a` take a few hundred.
const MOST_ROUNDS: u32 = 500;

/// Reads the key, on a thread for blocking work, because deriving the key from a passphrase takes a while.
pub(crate) async fn read_private_key(
    identity: &SecretBytes,
    passphrase: Option<&SecretBytes>,
) -> Result<PrivateKey, FetchError> {
    let (identity, passphrase) = (identity.clone(), passphrase.cloned());
    let read = move || read_now(identity.reveal(), passphrase.as_ref().map(SecretBytes::reveal));
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result,
        Err(_) => Err(unreadable_error()),
    }
}

/// Reads a key on this thread. Refuses a key with too many rounds before its passphrase is tried.
fn read_now(identity: &str, passphrase: Option<&str>) -> Result<PrivateKey, FetchError> {
    if identity.len() > LONGEST {
        return Err(secret_error("identity is longer than any private key (16 KiB)"));
    }
    if identity.trim_start().starts_with("-----BEGIN OPENSSH PRIVATE KEY-----") {
        let key = PrivateKey::from_openssh(identity.trim_start()).map_err(|_| unreadable_error())?;
        if !key.is_encrypted() {
            return Ok(key);
        }
        if let Kdf::Bcrypt { rounds, .. } = key.kdf()
            && *rounds > MOST_ROUNDS
        {
            return Err(secret_error(
                "the passphrase of identity is stretched more than 500 rounds; lower that with ssh-keygen -p -a 24",
            ));
        }
        let passphrase =
            passphrase.ok_or_else(|| secret_error("identity has a passphrase; store it under the key password"))?;
        return key
            .decrypt(passphrase)
            .map_err(|_| secret_error("password is not the passphrase of identity"));
    }
    let putty = identity.trim_start().starts_with("PuTTY-User-Key-File-");
    if putty || identity.contains("ENCRYPTED") {
        return Err(secret_error(
            "identity has a passphrase or is in PuTTY's form; convert it to OpenSSH's form with ssh-keygen -p, or puttygen -O private-openssh",
        ));
    }
    // The parser's error could quote the key, so it is left out.
    decode_secret_key(identity, None).map_err(|_| unreadable_error())
}

fn unreadable_error() -> FetchError {
    secret_error("identity is no private key in OpenSSH, PKCS#1 or PKCS#8 form")
}

fn secret_error(problem: &str) -> FetchError {
    FetchError::InvalidSecret {
        problem: problem.to_owned(),
    }
}
