//! OpenPGP secret keys that can decrypt: RSA, and ECDH on Curve25519, of version 4 and without a passphrase. Keys for signing are skipped, and so are stubs without a
//! secret. A passphrase, and other versions and curves, are refused by name.

use std::fmt;

use rsa::{BoxedUint, RsaPrivateKey};
use sha1::{Digest as _, Sha1};
use zeroize::Zeroizing;

use crate::armor;
use crate::error::KeyError;
use openpgp_packets::packet::{self, MOST_PACKETS, Packet, take_byte, take_bytes, take_mpi, take_number};

const BLOCK: &str = "PGP PRIVATE KEY BLOCK";
/// The most armored blocks of one text.
const MOST_BLOCKS: usize = 64;
const SECRET_KEY: u8 = 5;
const SECRET_SUBKEY: u8 = 7;
/// 1.3.6.1.4.1.3029.1.5.1.
pub(super) const CURVE_25519: &[u8] = &[0x2b, 6, 1, 4, 1, 0x97, 0x55, 1, 5, 1];
/// The allowed bits of a modulus.
const RSA_BITS: std::ops::RangeInclusive<usize> = 1024..=4096;

/// An OpenPGP secret key that can decrypt session keys.
pub(crate) struct SecretKey {
    pub(super) id: [u8; 8],
    pub(super) fingerprint: [u8; 20],
    pub(super) secret: Secret,
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey")
    }
}

/// The secret part of a key.
pub(super) enum Secret {
    Rsa(Box<RsaPrivateKey>),
    /// The scalar, and the parameters of the key derivation: a hash and a cipher, by their numbers.
    Curve25519 {
        scalar: Zeroizing<[u8; 32]>,
        hash: u8,
        cipher: u8,
    },
}

/// The result of reading a secret key packet.
enum Found {
    Key(SecretKey),
    /// A key that can't decrypt, or without its secret.
    Nothing,
}

/// Reads the armored secret keys of a text, at most `most` of them.
///
/// # Errors
/// When no key can decrypt. The error has the reason, and no part of the text.
pub(crate) fn read_keys(text: &str, most: usize) -> Result<Vec<SecretKey>, KeyError> {
    let refuse = |what: &str| Err(KeyError(what.to_owned()));
    let mut keys = Vec::new();
    let mut rest = text;
    for _ in 0..MOST_BLOCKS {
        let Some((bytes, after)) = armor::decode_first(rest, BLOCK, true) else {
            break;
        };
        rest = after;
        let mut bytes = bytes.as_slice();
        for _ in 0..MOST_PACKETS {
            if bytes.is_empty() {
                break;
            }
            let Some(packet) = packet::take_packet(&mut bytes) else {
                return refuse("a packet of the key is broken");
            };
            if !matches!(packet.tag, SECRET_KEY | SECRET_SUBKEY) {
                continue;
            }
            if let Found::Key(key) = read_key(&packet)? {
                if keys.len() == most {
                    return refuse("there are more keys than may be given");
                }
                keys.push(key);
            }
        }
    }
    if !keys.is_empty() {
        return Ok(keys);
    }
    if text.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----") {
        return refuse("it is a public key of OpenPGP; a secret key is needed to decrypt");
    }
    if text.contains(BLOCK) {
        return refuse("no key in it can decrypt: RSA, or ECDH on Curve25519, is needed");
    }
    refuse("it is not an armored secret key of OpenPGP")
}

fn read_key(packet: &Packet) -> Result<Found, KeyError> {
    let broken = || KeyError("a secret key is broken".to_owned());
    let mut rest = packet.body.as_slice();
    let version = take_byte(&mut rest).ok_or_else(broken)?;
    if version != 4 {
        return Err(KeyError(format!(
            "a key of version {version} of OpenPGP is not supported; version 4 is"
        )));
    }
    take_bytes(&mut rest, 4).ok_or_else(broken)?;
    let algorithm = take_byte(&mut rest).ok_or_else(broken)?;
    match algorithm {
        1 | 2 => read_rsa_key(packet, rest),
        18 => read_ecdh_key(packet, rest),
        25 | 26 => Err(KeyError(
            "a key for X25519 or X448 of RFC 9580 is not supported".to_owned(),
        )),
        // A signing key, or an ElGamal key, which is obsolete.
        _ => Ok(Found::Nothing),
    }
}

/// Returns the secret numbers; `None` if the secret is on a card.
fn read_unprotected_secret<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, KeyError> {
    let broken = || KeyError("a secret key is broken".to_owned());
    match take_byte(rest).ok_or_else(broken)? {
        0 => {}
        254 | 255 => {
            // GnuPG's own S2K type means that the packet has no secret.
            let (_, kind) = (take_byte(rest), take_byte(rest));
            if kind == Some(101) {
                return Ok(None);
            }
            return Err(KeyError("the key has a passphrase; export it without one".to_owned()));
        }
        _ => return Err(KeyError("the key has a passphrase; export it without one".to_owned())),
    }
    let (secret, checksum) = rest.split_at_checked(rest.len().wrapping_sub(2)).ok_or_else(broken)?;
    let sum = secret
        .iter()
        .fold(0_u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
    if sum.to_be_bytes() != checksum {
        return Err(broken());
    }
    Ok(Some(secret))
}

/// Returns the fingerprint of the key, and its last eight bytes. `secret_part` is the length of the part after the public one.
fn derive_names(packet: &Packet, secret_part: usize) -> Option<([u8; 20], [u8; 8])> {
    let public = packet.body.get(..packet.body.len().checked_sub(secret_part)?)?;
    let length = u16::try_from(public.len()).ok()?;
    let mut hash = Sha1::new();
    hash.update([0x99]);
    hash.update(length.to_be_bytes());
    hash.update(public);
    let fingerprint: [u8; 20] = hash.finalize().into();
    let id = fingerprint.get(12..)?.try_into().ok()?;
    Some((fingerprint, id))
}

fn read_rsa_key(packet: &Packet, mut rest: &[u8]) -> Result<Found, KeyError> {
    let broken = || KeyError("an RSA key is broken".to_owned());
    let modulus = take_mpi(&mut rest).ok_or_else(broken)?;
    let exponent = take_mpi(&mut rest).ok_or_else(broken)?;
    let (fingerprint, id) = derive_names(packet, rest.len()).ok_or_else(broken)?;
    let Some(mut secret) = read_unprotected_secret(&mut rest)? else {
        return Ok(Found::Nothing);
    };
    if !RSA_BITS.contains(&(modulus.len() * 8)) || exponent.len() > 8 {
        return Err(KeyError("an RSA key has a size that is not supported".to_owned()));
    }
    let mut take = || {
        let bytes = take_mpi(&mut secret)?;
        (bytes.len() <= modulus.len()).then_some(bytes)
    };
    let (d, p, q) = (
        take().ok_or_else(broken)?,
        take().ok_or_else(broken)?,
        take().ok_or_else(broken)?,
    );
    let number = |bytes: &[u8]| BoxedUint::from_be_slice_vartime(bytes);
    let key = RsaPrivateKey::from_components(number(modulus), number(exponent), number(d), vec![number(p), number(q)]);
    let secret = Secret::Rsa(Box::new(key.map_err(|_| broken())?));
    Ok(Found::Key(SecretKey {
        id,
        fingerprint,
        secret,
    }))
}

fn read_ecdh_key(packet: &Packet, mut rest: &[u8]) -> Result<Found, KeyError> {
    let broken = || KeyError("an ECDH key is broken".to_owned());
    let length = take_number(&mut rest, 1).ok_or_else(broken)?;
    let curve = take_bytes(&mut rest, length).ok_or_else(broken)?;
    let _point = take_mpi(&mut rest).ok_or_else(broken)?;
    let length = take_number(&mut rest, 1).ok_or_else(broken)?;
    let derivation = take_bytes(&mut rest, length).ok_or_else(broken)?;
    let (fingerprint, id) = derive_names(packet, rest.len()).ok_or_else(broken)?;
    let Some(mut secret) = read_unprotected_secret(&mut rest)? else {
        return Ok(Found::Nothing);
    };
    if curve != CURVE_25519 {
        return Err(KeyError(
            "an ECDH key on another curve than Curve25519 is not supported".to_owned(),
        ));
    }
    let &[1, hash, cipher] = derivation else {
        return Err(broken());
    };
    let number = take_mpi(&mut secret).ok_or_else(broken)?;
    // The packet has the scalar in big-endian order and without leading zeros.
    let mut scalar = Zeroizing::new([0; 32]);
    if number.len() > scalar.len() {
        return Err(broken());
    }
    for (place, byte) in scalar.iter_mut().zip(number.iter().rev()) {
        *place = *byte;
    }
    let secret = Secret::Curve25519 { scalar, hash, cipher };
    Ok(Found::Key(SecretKey {
        id,
        fingerprint,
        secret,
    }))
}
