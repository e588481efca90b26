//! Signatures of OpenPGP keys in git's form: detached, armored, over binary data.
//!
//! A signature counts only if its key is valid now. Broken hashes, text signatures, and signatures from the future are refused.

use openpgp_packets::{armor, packet};

use crate::arithmetic::Hash;
use crate::certificate::{Certificate, Checked, is_current};
use crate::subpackets::Signature;

const BLOCK: &str = "PGP SIGNATURE";
const KEY_BLOCK: &str = "PGP PUBLIC KEY BLOCK";
const SIGNATURE: u8 = 2;
/// The type of a signature of binary data.
const BINARY: u8 = 0;
/// The most signatures in one block.
const MOST_SIGNATURES: usize = 4;
/// The most keys of the same id that are tried. Several keys share an id only if they were made so on purpose.
const MOST_CANDIDATES: usize = 4;
/// The most blocks of keys in one text.
const MOST_BLOCKS: usize = 64;

/// The reason why an OpenPGP or SSH signature is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

/// Checks whether a text has OpenPGP public keys.
pub(crate) fn is_key_ring(text: &str) -> bool {
    text.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----")
}

/// Reads the armored public keys of a text.
///
/// # Errors
/// The problem of the text.
pub(crate) fn read_key_ring(text: &str) -> Result<Vec<Certificate>, String> {
    let mut certificates = Vec::new();
    let mut rest = text;
    for _ in 0..MOST_BLOCKS {
        let Some((bytes, after)) = armor::find_first(rest, KEY_BLOCK, true) else {
            break;
        };
        rest = after;
        certificates.extend(Certificate::read_all(&bytes)?);
    }
    if certificates.is_empty() {
        return Err("holds no armored public key of OpenPGP, as gpg --export --armor writes it".to_owned());
    }
    if is_key_ring(rest) {
        return Err(format!("holds a block that is broken, or more than {MOST_BLOCKS}"));
    }
    Ok(certificates)
}

/// Verifies a signature and returns the primary key of its signer.
pub(crate) fn verify(armored: &str, payload: &[u8], keys: &[Certificate], now: i64) -> Result<String, Failure> {
    let malformed = || Failure("the OpenPGP signature is malformed".to_owned());
    let (bytes, _) = armor::find_first(armored, BLOCK, true).ok_or_else(malformed)?;
    let mut rest = bytes.as_slice();
    let mut failure = malformed();
    for _ in 0..MOST_SIGNATURES {
        if rest.is_empty() {
            break;
        }
        let packet = packet::take_packet(&mut rest).ok_or_else(malformed)?;
        if packet.tag != SIGNATURE {
            return Err(malformed());
        }
        match verify_one(&packet.body, payload, keys, now) {
            Ok(name) => return Ok(name),
            Err(other) => failure = other,
        }
    }
    Err(failure)
}

fn verify_one(body: &[u8], payload: &[u8], keys: &[Certificate], now: i64) -> Result<String, Failure> {
    let refuse = |why: String| Err(Failure(why));
    let Some(signature) = Signature::read(body) else {
        return refuse("the OpenPGP signature is malformed, or of another version than 4".to_owned());
    };
    if signature.kind != BINARY {
        return refuse("the OpenPGP signature is not one of binary data".to_owned());
    }
    if !matches!(signature.hash, Some(Hash::Sha256 | Hash::Sha384 | Hash::Sha512)) {
        return refuse("the hash of the OpenPGP signature is none of SHA-256, SHA-384 and SHA-512".to_owned());
    }
    let Some(issuer) = signature.issuer else {
        return refuse("the OpenPGP signature does not say which key made it".to_owned());
    };
    let name = hex::encode_upper(issuer);
    let mut failure = format!("no trusted OpenPGP key made the signature: it is of the key {name}");
    let found = keys
        .iter()
        .filter_map(|certificate| Some((certificate, certificate.find_signer(issuer, now)?)));
    for (certificate, signer) in found.take(MOST_CANDIDATES) {
        let key = match signer {
            Ok(key) => key,
            Err(why) => {
                failure = why;
                continue;
            }
        };
        match key.check(&signature, payload) {
            Checked::Good if is_current(&signature, now) => return Ok(certificate.describe()),
            Checked::Good => failure = "the OpenPGP signature has expired, or is from the future".to_owned(),
            Checked::Bad => failure = format!("the signature is not good for the key {name}"),
            Checked::Unknown => failure = format!("the signature of the key {name} is of a kind that is not supported"),
        }
    }
    refuse(failure)
}
