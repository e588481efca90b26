//! The key that signs ServiceAccount tokens: ES256 on ring, key id, verification, and the public key as a JSON Web
//! Key. Other algorithms are refused. The private key never leaves this type.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use thiserror::Error;

/// The DER bytes before the 65 bytes of an uncompressed P-256 point in a SubjectPublicKeyInfo (RFC 5480).
const SUBJECT_PUBLIC_KEY_INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The reason why a signing key can't be created or used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// The system gave no random bytes.
    #[error("the system's random number generator failed")]
    Random,
    /// The bytes are not a PKCS#8 key on P-256.
    #[error("not an ECDSA P-256 key in PKCS#8 form: {0}")]
    Rejected(String),
    /// Signing failed.
    #[error("the token could not be signed")]
    Sign,
}

/// An ECDSA P-256 key that signs ServiceAccount tokens. `Debug` shows its id only.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Creates a new key in PKCS#8 form (DER), to be stored and read with [`SigningKey::from_pkcs8`].
    ///
    /// # Errors
    /// [`KeyError::Random`] if the system has no randomness to give.
    pub fn generate_pkcs8() -> Result<Vec<u8>, KeyError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|document| document.as_ref().to_vec())
            .map_err(|_| KeyError::Random)
    }

    /// Reads the key in `der` in PKCS#8 form.
    ///
    /// # Errors
    /// [`KeyError::Rejected`] if `der` holds something else.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|error| KeyError::Rejected(error.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &public_key_info(&pair)));
        Ok(Self { pair, random, id })
    }

    /// Returns the public key as a SubjectPublicKeyInfo (DER), the form in certificates and public key files.
    #[must_use]
    pub fn public_key_info(&self) -> Vec<u8> {
        public_key_info(&self.pair)
    }

    /// Returns the `kid` of the tokens it signs: the hash of the public key, as kube-apiserver derives it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Signs `message`, in the fixed form that JWS demands.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.pair
            .sign(&self.random, message)
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| KeyError::Sign)
    }

    /// Checks whether this key made `signature` over `message`.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(message, signature)
            .is_ok()
    }

    /// Returns a random version 4 UUID, for `jti`.
    pub(super) fn random_id(&self) -> Result<String, KeyError> {
        let mut bytes = [0_u8; 16];
        self.random.fill(&mut bytes).map_err(|_| KeyError::Random)?;
        Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
    }

    /// Returns the public key as a JSON Web Key (RFC 7517), for `/openid/v1/jwks`.
    #[must_use]
    pub fn public_jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let coordinate = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": "P-256",
            "alg": "ES256",
            "x": coordinate(1..33),
            "y": coordinate(33..65),
        })
    }
}

fn public_key_info(pair: &EcdsaKeyPair) -> Vec<u8> {
    let mut info = SUBJECT_PUBLIC_KEY_INFO.to_vec();
    info.extend_from_slice(pair.public_key().as_ref());
    info
}
