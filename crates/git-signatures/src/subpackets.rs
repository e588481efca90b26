//! A signature packet of version 4 of OpenPGP (RFC 9580, 5.2.3), and its subpackets.
//!
//! Subpackets that decide anything must be in the signed part. The issuer may also be in the unsigned part, since it only selects the key to try. A signature with an
//! unknown critical subpacket is refused.

use openpgp_packets::packet::{take_byte, take_bytes, take_mpi, take_number};

use crate::arithmetic::Hash;

/// The numbers that form a signature: one for RSA and for current Ed25519, two for ECDSA and older EdDSA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Numbers {
    One(Vec<u8>),
    Two(Vec<u8>, Vec<u8>),
}

/// A parsed OpenPGP signature packet of version 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The kind of the signature.
    pub(crate) kind: u8,
    /// The algorithm of the key that made it.
    pub(crate) algorithm: u8,
    /// `None` if the hash is too weak, or unknown.
    pub(crate) hash: Option<Hash>,
    /// From the version to the end of the signed part.
    pub(crate) signed_part: Vec<u8>,
    pub(crate) numbers: Option<Numbers>,
    /// Seconds since 1970.
    pub(crate) created: Option<i64>,
    /// Seconds after the creation: of the signature, and of the key that it is about.
    pub(crate) expires_after: Option<i64>,
    pub(crate) key_expires_after: Option<i64>,
    pub(crate) flags: Option<u8>,
    pub(crate) issuer: Option<[u8; 8]>,
    /// The signature of the other key, in a signature that binds that key.
    pub(crate) embedded: Option<Vec<u8>>,
    /// The signature has an unknown critical subpacket.
    pub(crate) is_strange: bool,
}

/// Kinds of subpackets.
const CREATED: u8 = 2;
const EXPIRES: u8 = 3;
const KEY_EXPIRES: u8 = 9;
const ISSUER: u8 = 16;
const NOTATION: u8 = 20;
const FLAGS: u8 = 27;
const EMBEDDED: u8 = 32;
const ISSUER_FINGERPRINT: u8 = 33;
/// Subpackets that change nothing here, and may be critical: exportable, trust, revocable, preferences, key server, primary user id, policy, signer, reason, features.
const KNOWN: [u8; 14] = [4, 5, 7, 11, 21, 22, 23, 24, 25, 26, 28, 29, 30, 34];

impl Signature {
    /// Reads the body of a packet; `None` if it is malformed or of another version.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut rest = body;
        if take_byte(&mut rest)? != 4 {
            return None;
        }
        let kind = take_byte(&mut rest)?;
        let algorithm = take_byte(&mut rest)?;
        let hash = match take_byte(&mut rest)? {
            2 => Some(Hash::Sha1),
            8 => Some(Hash::Sha256),
            9 => Some(Hash::Sha384),
            10 => Some(Hash::Sha512),
            _ => None,
        };
        let length = take_number(&mut rest, 2)?;
        let hashed = take_bytes(&mut rest, length)?;
        let signed_part = body.get(..6 + length)?.to_vec();
        let length = take_number(&mut rest, 2)?;
        let unhashed = take_bytes(&mut rest, length)?;
        // The first two bytes of the hash are skipped: verifying the signature checks the whole hash.
        take_bytes(&mut rest, 2)?;
        let numbers = match algorithm {
            1 | 3 => Some(Numbers::One(take_mpi(&mut rest)?.to_vec())),
            17 | 19 | 22 => Some(Numbers::Two(
                take_mpi(&mut rest)?.to_vec(),
                take_mpi(&mut rest)?.to_vec(),
            )),
            27 => Some(Numbers::One(take_bytes(&mut rest, 64)?.to_vec())),
            _ => None,
        };
        // Bytes after the numbers are in no hash.
        if numbers.is_some() && !rest.is_empty() {
            return None;
        }
        let mut signature = Self {
            kind,
            algorithm,
            hash,
            signed_part,
            numbers,
            created: None,
            expires_after: None,
            key_expires_after: None,
            flags: None,
            issuer: None,
            embedded: None,
            is_strange: false,
        };
        signature.read_subpackets(hashed, true)?;
        signature.read_subpackets(unhashed, false)?;
        Some(signature)
    }

    fn read_subpackets(&mut self, mut rest: &[u8], is_signed: bool) -> Option<()> {
        while !rest.is_empty() {
            let first = usize::from(take_byte(&mut rest)?);
            let length = match first {
                0..192 => first,
                192..255 => ((first - 192) << 8) + usize::from(take_byte(&mut rest)?) + 192,
                _ => take_number(&mut rest, 4)?,
            };
            let mut body = take_bytes(&mut rest, length)?;
            let tag = take_byte(&mut body)?;
            self.read_subpacket(tag & 0x7f, tag & 0x80 != 0, body, is_signed)?;
        }
        Some(())
    }

    fn read_subpacket(&mut self, tag: u8, is_critical: bool, mut body: &[u8], is_signed: bool) -> Option<()> {
        match tag {
            ISSUER => {
                self.issuer.get_or_insert(body.try_into().ok()?);
            }
            ISSUER_FINGERPRINT => {
                // The key's id is the end of its fingerprint, after the version.
                if body.len() == 21 {
                    self.issuer.get_or_insert(body.get(13..)?.try_into().ok()?);
                }
            }
            EMBEDDED => {
                self.embedded.get_or_insert(body.to_vec());
            }
            _ if !is_signed => {}
            CREATED => self.created = Some(take_seconds(&mut body)?),
            EXPIRES => self.expires_after = Some(take_seconds(&mut body)?).filter(|seconds| *seconds > 0),
            KEY_EXPIRES => self.key_expires_after = Some(take_seconds(&mut body)?).filter(|seconds| *seconds > 0),
            FLAGS => self.flags = Some(body.first().copied().unwrap_or(0)),
            // No notation is supported, so a critical one makes the signature unusable.
            NOTATION => self.is_strange |= is_critical,
            _ => self.is_strange |= is_critical && !KNOWN.contains(&tag),
        }
        Some(())
    }

    /// Writes the hashed bytes: the subject, followed by the signed part of the signature.
    pub(crate) fn write_message(&self, about: &[u8]) -> Vec<u8> {
        let length = u32::try_from(self.signed_part.len()).unwrap_or(u32::MAX);
        [about, &self.signed_part, &[4, 0xff], &length.to_be_bytes()].concat()
    }
}

fn take_seconds(bytes: &mut &[u8]) -> Option<i64> {
    i64::try_from(take_number(bytes, 4)?).ok()
}
