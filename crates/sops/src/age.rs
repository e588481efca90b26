//! The part of age (age-encryption.org/v1) that SOPS needs: X25519 identities, and data keys that are encrypted for them. Other kinds of identities are refused by name,
//! and other kinds of stanzas are ignored. No key is derived from a passphrase.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use curve25519_dalek::MontgomeryPoint;
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::armor;
use crate::bech32;
use crate::error::KeyError;
use crate::tries::Tries;

const VERSION: &[u8] = b"age-encryption.org/v1\n";
const FILE: &str = "AGE ENCRYPTED FILE";
/// The most stanzas in a header. SOPS writes one.
const MOST_STANZAS: usize = 16;
/// Bytes of the key of an age file, and of its tags and nonces.
const FILE_KEY: usize = 16;
const TAG: usize = 16;
const NONCE: usize = 16;
/// Steps of `go_yaml::meter` that one try of an identity on a stanza counts.
const STEPS: usize = 20_000;

/// A private key of age (an X25519 identity), with its public key.
pub(crate) struct Identity {
    scalar: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity")
    }
}

impl Identity {
    /// Returns the public key as age prints it: the recipient.
    pub(crate) fn recipient(&self) -> String {
        bech32::encode("age", &self.public)
    }
}

/// Reads identities, one per line. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// For a line that isn't an X25519 identity; names the line.
pub(crate) fn read_identities(text: &str, most: usize) -> Result<Vec<Identity>, KeyError> {
    let mut identities = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = |what| Err(KeyError::at(index + 1, what));
        if identities.len() == most {
            return refuse("there are more identities than may be given");
        }
        match line.get(..16).map(str::to_ascii_uppercase).as_deref() {
            Some("AGE-SECRET-KEY-1") => {}
            Some("AGE-SECRET-KEY-P") => return refuse("a post-quantum identity of age is not supported"),
            Some("AGE-PLUGIN-YUBIK" | "AGE-PLUGIN-SE-1Q") => {
                return refuse("an identity of an age plugin is not supported");
            }
            Some(plugin) if plugin.starts_with("AGE-PLUGIN-") => {
                return refuse("an identity of an age plugin is not supported");
            }
            _ if line.starts_with("-----BEGIN") => {
                return refuse("an SSH key or an encrypted identity is not supported");
            }
            _ => return refuse("it is not an identity of age (AGE-SECRET-KEY-1…)"),
        }
        let Some(bytes) = bech32::decode("age-secret-key-", line) else {
            return refuse("the identity is mistyped: its checksum is wrong");
        };
        let Ok(scalar) = <[u8; 32]>::try_from(bytes.as_slice()) else {
            return refuse("the identity has another length than those of age");
        };
        let scalar = Zeroizing::new(scalar);
        let public = MontgomeryPoint::mul_base_clamped(*scalar).to_bytes();
        identities.push(Identity { scalar, public });
    }
    if identities.is_empty() {
        return Err(KeyError("there is no identity of age".to_owned()));
    }
    Ok(identities)
}

/// A stanza in the header of an age file: the file key, encrypted for one X25519 recipient.
struct Stanza {
    share: [u8; 32],
    wrapped: Vec<u8>,
}

/// The part of an age file before its payload.
struct Header<'a> {
    stanzas: Vec<Stanza>,
    /// The bytes that the header's MAC covers.
    signed: &'a [u8],
    mac: Vec<u8>,
    payload: &'a [u8],
}

/// Decrypts a data key; `None` if no identity opens it or it is damaged. The result doesn't say which, so that an answer gives no help in guessing.
pub(crate) fn decrypt_data_key(
    armored: &str,
    identities: &[Identity],
    tries: &mut Tries,
) -> Option<Zeroizing<Vec<u8>>> {
    let (file, _) = armor::decode_first(armored, FILE, false)?;
    let header = read_header(&file)?;
    for stanza in &header.stanzas {
        for identity in identities {
            tries.count_try(STEPS).ok()?;
            if let Some(file_key) = unwrap_file_key(stanza, identity) {
                return open_payload(&header, &file_key);
            }
        }
    }
    None
}

/// Reads the stanzas and the MAC of an age file. Stanzas of other kinds than X25519 are skipped.
fn read_header(file: &[u8]) -> Option<Header<'_>> {
    let mut rest = file.strip_prefix(VERSION)?;
    let mut stanzas = Vec::new();
    let mut count = 0;
    loop {
        let line = take_line(&mut rest)?;
        if let Some(mac) = line.strip_prefix("--- ") {
            let before = file.len() - rest.len() - mac.len() - 2;
            return Some(Header {
                stanzas,
                signed: file.get(..before)?,
                mac: STANDARD_NO_PAD.decode(mac).ok()?,
                payload: rest,
            });
        }
        let mut words = line.strip_prefix("-> ")?.split(' ');
        count += 1;
        if count > MOST_STANZAS {
            return None;
        }
        let kind = words.next()?;
        let share = words.next();
        let mut body = String::new();
        loop {
            let line = take_line(&mut rest)?;
            body.push_str(line);
            if line.len() < 64 {
                break;
            }
        }
        if kind == "X25519" && words.next().is_none() {
            stanzas.push(Stanza {
                share: STANDARD_NO_PAD.decode(share?).ok()?.try_into().ok()?,
                wrapped: STANDARD_NO_PAD.decode(body).ok()?,
            });
        }
    }
}

fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (line, after) = rest.split_at_checked(end)?;
    *rest = after.get(1..)?;
    std::str::from_utf8(line).ok()
}

/// Returns the file key, if the stanza is for this identity.
fn unwrap_file_key(stanza: &Stanza, identity: &Identity) -> Option<Zeroizing<Vec<u8>>> {
    if stanza.wrapped.len() != FILE_KEY + TAG {
        return None;
    }
    let shared = Zeroizing::new(MontgomeryPoint(stanza.share).mul_clamped(*identity.scalar).to_bytes());
    // A point of low order gives a shared secret that is publicly known.
    if bool::from(subtle::ConstantTimeEq::ct_eq(shared.as_slice(), &[0; 32])) {
        return None;
    }
    let mut salt = [0; 64];
    let (first, second) = salt.split_at_mut(32);
    first.copy_from_slice(&stanza.share);
    second.copy_from_slice(&identity.public);
    let key = derive_key(&salt, shared.as_slice(), b"age-encryption.org/v1/X25519")?;
    decrypt_bytes(&key, &[0; 12], &stanza.wrapped)
}

/// Verifies the header's MAC with the file key, and decrypts the payload.
fn open_payload(header: &Header<'_>, file_key: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mac_key = derive_key(&[], file_key, b"header")?;
    let mut mac = <Hmac<Sha256>>::new_from_slice(mac_key.as_slice()).ok()?;
    mac.update(header.signed);
    mac.verify_slice(&header.mac).ok()?;
    let (nonce, sealed) = header.payload.split_at_checked(NONCE)?;
    let key = derive_key(nonce, file_key, b"payload")?;
    // A data key is far shorter than a chunk, so the first chunk is the last.
    let mut chunk_nonce = [0; 12];
    *chunk_nonce.last_mut()? = 1;
    decrypt_bytes(&key, &chunk_nonce, sealed)
}

/// Derives a key from a secret with HKDF-SHA-256.
fn derive_key(salt: &[u8], secret: &[u8], info: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(Some(salt), secret)
        .expand(info, key.as_mut_slice())
        .ok()?;
    Some(key)
}

/// Decrypts bytes with ChaCha20-Poly1305.
fn decrypt_bytes(key: &[u8; 32], nonce: &[u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = ChaCha20Poly1305::new_from_slice(key).ok()?;
    cipher.decrypt(&Nonce::from(*nonce), sealed).ok().map(Zeroizing::new)
}
