//! Session keys of OpenPGP, encrypted for one recipient (RFC 9580, 5.1 and 11.5). A key is tried only on packets that name it.

use aes::cipher::{BlockCipherDecrypt as _, KeyInit as _};
use aes::{Aes128, Aes256};
use curve25519_dalek::MontgomeryPoint;
use rsa::Pkcs1v15Encrypt;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use super::key::{CURVE_25519, Secret, SecretKey};
use crate::error::Error;
use crate::tries::Tries;
use openpgp_packets::packet::{take_byte, take_bytes, take_mpi, take_number};

/// Steps of `go_yaml::meter` that one try of a key counts.
const RSA_STEPS: usize = 2_000_000;
const ECDH_STEPS: usize = 20_000;
/// The number of the ECDH algorithm, an input of the key derivation.
const ECDH: u8 = 18;

/// A session key and its cipher.
pub(super) struct Session {
    /// AES by its number: 7, 8, 9.
    pub(super) cipher: u8,
    pub(super) key: Zeroizing<Vec<u8>>,
}

/// Decrypts the session key of a packet; `None` if the packet names another key or can't be decrypted.
pub(super) fn decrypt_session_key(body: &[u8], key: &SecretKey, tries: &mut Tries) -> Result<Option<Session>, Error> {
    let Some((algorithm, rest)) = for_key(body, key) else {
        return Ok(None);
    };
    let opened = match (&key.secret, algorithm) {
        (Secret::Rsa(secret), 1 | 2) => {
            tries.count_try(RSA_STEPS)?;
            open_rsa(rest, secret)
        }
        (Secret::Curve25519 { scalar, hash, cipher }, 18) => {
            tries.count_try(ECDH_STEPS)?;
            open_ecdh(rest, scalar, (*hash, *cipher), &key.fingerprint)
        }
        _ => None,
    };
    Ok(opened.as_deref().and_then(|bytes| read(bytes)))
}

/// Returns the algorithm and the rest of a version 3 packet, if it names the key.
fn for_key<'a>(body: &'a [u8], key: &SecretKey) -> Option<(u8, &'a [u8])> {
    let mut rest = body;
    if take_byte(&mut rest)? != 3 || take_bytes(&mut rest, 8)? != key.id {
        return None;
    }
    let algorithm = take_byte(&mut rest)?;
    Some((algorithm, rest))
}

/// Decrypts the content of a session key packet with an RSA key.
fn open_rsa(mut rest: &[u8], secret: &rsa::RsaPrivateKey) -> Option<Zeroizing<Vec<u8>>> {
    use rsa::traits::PublicKeyParts as _;
    let number = take_mpi(&mut rest)?;
    // The number has no leading zeros, but the decryption needs them.
    let mut sealed = vec![0; secret.size().checked_sub(number.len())?];
    sealed.extend_from_slice(number);
    secret.decrypt(Pkcs1v15Encrypt, &sealed).ok().map(Zeroizing::new)
}

/// Decrypts the content of a session key packet with a key on Curve25519.
fn open_ecdh(
    mut rest: &[u8],
    scalar: &[u8; 32],
    (hash, cipher): (u8, u8),
    fingerprint: &[u8; 20],
) -> Option<Zeroizing<Vec<u8>>> {
    let point: [u8; 32] = take_mpi(&mut rest)?.strip_prefix(&[0x40])?.try_into().ok()?;
    let length = take_number(&mut rest, 1)?;
    let wrapped = take_bytes(&mut rest, length)?;
    let shared = Zeroizing::new(MontgomeryPoint(point).mul_clamped(*scalar).to_bytes());
    if bool::from(subtle::ConstantTimeEq::ct_eq(shared.as_slice(), &[0; 32])) {
        return None;
    }
    let mut message = Zeroizing::new(vec![0, 0, 0, 1]);
    message.extend_from_slice(shared.as_slice());
    message.push(u8::try_from(CURVE_25519.len()).ok()?);
    message.extend_from_slice(CURVE_25519);
    message.extend_from_slice(&[ECDH, 3, 1, hash, cipher]);
    message.extend_from_slice(b"Anonymous Sender    ");
    message.extend_from_slice(fingerprint);
    let derived: Zeroizing<Vec<u8>> = Zeroizing::new(match hash {
        8 => Sha256::digest(message.as_slice()).to_vec(),
        9 => Sha384::digest(message.as_slice()).to_vec(),
        10 => Sha512::digest(message.as_slice()).to_vec(),
        _ => return None,
    });
    let padded = unwrap_key(derived.get(..key_size(cipher)?)?, wrapped)?;
    let padding = usize::from(*padded.last()?);
    let length = padded.len().checked_sub(padding)?;
    let (content, end) = padded.split_at_checked(length)?;
    let is_padding = (1..=40).contains(&padding) && end.iter().all(|byte| usize::from(*byte) == padding);
    is_padding.then(|| Zeroizing::new(content.to_vec()))
}

/// Returns the number of bytes of a cipher's key.
pub(super) fn key_size(cipher: u8) -> Option<usize> {
    match cipher {
        7 => Some(16),
        8 => Some(24),
        9 => Some(32),
        _ => None,
    }
}

/// Reads the content of a session key packet: the cipher, the key, and the checksum.
fn read(content: &[u8]) -> Option<Session> {
    let (cipher, rest) = content.split_first()?;
    let (key, sum) = rest.split_at_checked(key_size(*cipher)?)?;
    let expected = key.iter().fold(0_u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
    (sum == expected.to_be_bytes()).then(|| Session {
        cipher: *cipher,
        key: Zeroizing::new(key.to_vec()),
    })
}

/// Unwraps a key with another key (RFC 3394).
fn unwrap_key(key: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let decrypt: Box<dyn Fn(&mut aes::Block)> = match key.len() {
        16 => {
            let cipher = Aes128::new_from_slice(key).ok()?;
            Box::new(move |block| cipher.decrypt_block(block))
        }
        24 => {
            let cipher = aes::Aes192::new_from_slice(key).ok()?;
            Box::new(move |block| cipher.decrypt_block(block))
        }
        _ => {
            let cipher = Aes256::new_from_slice(key).ok()?;
            Box::new(move |block| cipher.decrypt_block(block))
        }
    };
    let (blocks, rest) = wrapped.as_chunks::<8>();
    if !rest.is_empty() || !(3..=32).contains(&blocks.len()) {
        return None;
    }
    let (first, others) = blocks.split_first()?;
    let mut check = *first;
    let mut parts: Zeroizing<Vec<[u8; 8]>> = Zeroizing::new(others.to_vec());
    let count = parts.len();
    for round in (0..6).rev() {
        for (index, part) in parts.iter_mut().enumerate().rev() {
            let step = u64::try_from(count * round + index + 1).ok()?;
            let mixed = u64::from_be_bytes(check) ^ step;
            let mut block = aes::Block::default();
            let (left, right) = block.split_at_mut(8);
            left.copy_from_slice(&mixed.to_be_bytes());
            right.copy_from_slice(part);
            decrypt(&mut block);
            let (left, right) = block.split_at(8);
            check = left.try_into().ok()?;
            *part = right.try_into().ok()?;
        }
    }
    let is_whole = bool::from(subtle::ConstantTimeEq::ct_eq(check.as_slice(), &[0xa6; 8]));
    is_whole.then(|| Zeroizing::new(parts.concat()))
}
