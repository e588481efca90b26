//! Verifies signatures of all kinds of keys; only this module uses `ring`.
//!
//! It decides which keys and hashes are strong enough: RSA of 2048 to 8192 bits, Ed25519, ECDSA with P-256 and P-384, hashes of the SHA-2 family. SHA-1 is accepted only
//! for a key's signatures about itself, as old keys have them.

use ring::digest::{Digest, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// Bits of the smallest modulus.
const LEAST_RSA_BITS: usize = 2048;

/// The hash algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(crate) fn digest(self, message: &[u8]) -> Digest {
        let algorithm = match self {
            Self::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
            Self::Sha512 => &SHA512,
        };
        digest(algorithm, message)
    }
}

/// A public key that can verify signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// Modulus and exponent, without leading zeros.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    /// A point, compressed.
    Ed25519(Vec<u8>),
    /// A point, uncompressed.
    P256(Vec<u8>),
    /// A point, uncompressed.
    P384(Vec<u8>),
}

impl PublicKey {
    /// Creates an RSA key; `None` if it is too small, or larger than any real key.
    pub(crate) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (modulus, exponent) = (trim_zeros(modulus), trim_zeros(exponent));
        let bits = modulus.len() * 8 - usize::try_from(modulus.first()?.leading_zeros()).ok()?;
        (LEAST_RSA_BITS..=8192).contains(&bits).then(|| Self::Rsa {
            modulus: modulus.to_vec(),
            exponent: exponent.to_vec(),
        })
    }

    pub(crate) fn ed25519(point: &[u8]) -> Option<Self> {
        (point.len() == 32).then(|| Self::Ed25519(point.to_vec()))
    }

    pub(crate) fn p256(point: &[u8]) -> Option<Self> {
        (point.len() == 65 && point.first() == Some(&4)).then(|| Self::P256(point.to_vec()))
    }

    pub(crate) fn p384(point: &[u8]) -> Option<Self> {
        (point.len() == 97 && point.first() == Some(&4)).then(|| Self::P384(point.to_vec()))
    }

    /// Verifies an RSA signature (PKCS #1 v1.5) of a message. Its leading zeros may be missing; there are none beyond the length of the key.
    pub(crate) fn verify_rsa(&self, hash: Hash, message: &[u8], signature: &[u8]) -> bool {
        let Self::Rsa { modulus, exponent } = self else {
            return false;
        };
        if signature.len() > modulus.len() {
            return false;
        }
        let Some(signature) = pad_number(signature, modulus.len()) else {
            return false;
        };
        let parameters = match hash {
            Hash::Sha1 => &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
            Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        };
        let key = RsaPublicKeyComponents {
            n: modulus.as_slice(),
            e: exponent.as_slice(),
        };
        key.verify(parameters, message, &signature).is_ok()
    }

    /// Verifies an Ed25519 signature of these bytes.
    pub(crate) fn verify_ed25519(&self, message: &[u8], signature: &[u8]) -> bool {
        let Self::Ed25519(point) = self else { return false };
        UnparsedPublicKey::new(&ED25519, point)
            .verify(message, signature)
            .is_ok()
    }

    /// Verifies an ECDSA signature of a message. Its two numbers may have missing or additional leading zeros.
    pub(crate) fn verify_ecdsa(&self, hash: Hash, message: &[u8], (r, s): (&[u8], &[u8])) -> bool {
        let (algorithm, point, length) = match (self, hash) {
            (Self::P256(point), Hash::Sha256) => (&ECDSA_P256_SHA256_FIXED, point, 32),
            (Self::P384(point), Hash::Sha384) => (&ECDSA_P384_SHA384_FIXED, point, 48),
            _ => return false,
        };
        let (Some(r), Some(s)) = (pad_number(r, length), pad_number(s, length)) else {
            return false;
        };
        UnparsedPublicKey::new(algorithm, point)
            .verify(message, &[r, s].concat())
            .is_ok()
    }
}

/// Pads a number with leading zeros to this length; `None` if it is longer.
pub(crate) fn pad_number(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let number = trim_zeros(number);
    let missing = length.checked_sub(number.len())?;
    Some([vec![0; missing].as_slice(), number].concat())
}

fn trim_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    number.get(first..).unwrap_or_default()
}
