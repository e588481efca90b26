//! A public key of OpenPGP with its owner's statements about it: names, subkeys, expiry, revocation.
//!
//! The module decides which of its keys may sign now. A statement counts only with a signature of the primary key; signatures of other keys are ignored. A revocation
//! that can't be verified still counts, since it could be genuine. Nothing else that can't be verified counts.

use openpgp_packets::packet::{self, take_byte, take_bytes, take_mpi, take_number};

use crate::arithmetic::{Hash, PublicKey, pad_number};
use crate::subpackets::{Numbers, Signature};

/// Kinds of packets.
const SIGNATURE: u8 = 2;
const PUBLIC_KEY: u8 = 6;
const USER_ID: u8 = 13;
const PUBLIC_SUBKEY: u8 = 14;
const USER_ATTRIBUTE: u8 = 17;
/// Kinds of signatures.
const CERTIFICATIONS: std::ops::RangeInclusive<u8> = 0x10..=0x13;
const SUBKEY_BINDING: u8 = 0x18;
const PRIMARY_KEY_BINDING: u8 = 0x19;
const DIRECT_KEY: u8 = 0x1f;
const KEY_REVOCATION: u8 = 0x20;
const SUBKEY_REVOCATION: u8 = 0x28;
const CERTIFICATION_REVOCATION: u8 = 0x30;
/// The flag of a key that may sign data.
const MAY_SIGN: u8 = 2;
/// The most packets of all keys of one text. Well-known keys have many signatures of others.
const MOST_PACKETS: usize = 20_000;
/// The most signatures of its owner that one key may have, with its names and subkeys. Each check of the key verifies all of them.
const MOST_SIGNATURES: usize = 256;
/// How far the clocks of others may be ahead, in seconds.
pub(crate) const SKEW: i64 = 300;
/// Curves by their identifiers in keys: Ed25519, P-256, P-384.
const ED25519: &[u8] = &[0x2b, 6, 1, 4, 1, 0xda, 0x47, 0x0f, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];

/// An OpenPGP public key: a primary key, or a subkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// The bytes of the key that are hashed, with their prefix.
    hashed: Vec<u8>,
    id: [u8; 8],
    created: i64,
    algorithm: u8,
    /// `None` if the key can't verify, or its kind is not supported.
    public: Option<PublicKey>,
}

/// A name, picture or subkey of a primary key, with the primary key's signatures about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound<T> {
    what: T,
    signatures: Vec<Signature>,
}

/// An OpenPGP primary key, with its names and subkeys and the signatures about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    primary: Key,
    direct: Vec<Signature>,
    /// The hashed bytes of each identity.
    identities: Vec<Bound<Vec<u8>>>,
    subkeys: Vec<Bound<Key>>,
    /// The number of signatures of all of these.
    signatures: usize,
}

/// The result of checking a signature with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Good,
    Bad,
    /// The key, the hash or the form is not supported.
    Unknown,
}

impl Key {
    fn read(body: &[u8]) -> Result<Self, String> {
        let broken = || "a key is broken".to_owned();
        let mut rest = body;
        let version = take_byte(&mut rest).ok_or_else(broken)?;
        if version != 4 {
            return Err(format!(
                "a key of version {version} of OpenPGP is not supported; version 4 is"
            ));
        }
        let created = take_number(&mut rest, 4).and_then(|seconds| i64::try_from(seconds).ok());
        let created = created.ok_or_else(broken)?;
        let algorithm = take_byte(&mut rest).ok_or_else(broken)?;
        let length = u16::try_from(body.len()).map_err(|_| broken())?;
        let hashed = [&[0x99], length.to_be_bytes().as_slice(), body].concat();
        let fingerprint = Hash::Sha1.digest(&hashed);
        let id = fingerprint
            .as_ref()
            .get(12..)
            .and_then(|id| id.try_into().ok())
            .ok_or_else(broken)?;
        Ok(Self {
            hashed,
            id,
            created,
            algorithm,
            public: read_public(algorithm, rest),
        })
    }

    /// Checks whether this key has made a signature. `about`: the hashed bytes of the subject.
    pub(crate) fn check(&self, signature: &Signature, about: &[u8]) -> Checked {
        let (Some(public), Some(hash), Some(numbers)) = (&self.public, signature.hash, &signature.numbers) else {
            return Checked::Unknown;
        };
        let same_kind =
            signature.algorithm == self.algorithm || matches!((signature.algorithm, self.algorithm), (1, 3) | (3, 1));
        if !same_kind {
            return Checked::Unknown;
        }
        let message = signature.write_message(about);
        let is_good = match (public, numbers) {
            (PublicKey::Rsa { .. }, Numbers::One(number)) => public.verify_rsa(hash, &message, number),
            (PublicKey::Ed25519(_), Numbers::One(both)) => public.verify_ed25519(hash.digest(&message).as_ref(), both),
            (PublicKey::Ed25519(_), Numbers::Two(r, s)) => match (pad_number(r, 32), pad_number(s, 32)) {
                (Some(r), Some(s)) => public.verify_ed25519(hash.digest(&message).as_ref(), &[r, s].concat()),
                _ => false,
            },
            // Other hashes for these curves are not supported.
            (PublicKey::P256(_), Numbers::Two(r, s)) if hash == Hash::Sha256 => {
                public.verify_ecdsa(hash, &message, (r, s))
            }
            (PublicKey::P384(_), Numbers::Two(r, s)) if hash == Hash::Sha384 => {
                public.verify_ecdsa(hash, &message, (r, s))
            }
            _ => return Checked::Unknown,
        };
        if is_good { Checked::Good } else { Checked::Bad }
    }

    /// Checks whether the key is not valid at `now`: it was created in the future, or has expired `after` this many seconds since its creation.
    fn has_expired(&self, after: Option<i64>, now: i64) -> bool {
        self.created > now.saturating_add(SKEW) || after.is_some_and(|after| self.created.saturating_add(after) <= now)
    }

    /// Returns the id in GnuPG's form.
    fn describe(&self) -> String {
        hex::encode_upper(self.id)
    }
}

fn read_public(algorithm: u8, mut rest: &[u8]) -> Option<PublicKey> {
    match algorithm {
        1 | 3 => {
            let modulus = take_mpi(&mut rest)?;
            PublicKey::rsa(modulus, take_mpi(&mut rest)?)
        }
        19 | 22 => {
            let length = usize::from(take_byte(&mut rest)?);
            let curve = take_bytes(&mut rest, length)?;
            let point = take_mpi(&mut rest)?;
            match (algorithm, curve) {
                (19, P256) => PublicKey::p256(point),
                (19, P384) => PublicKey::p384(point),
                (22, ED25519) => PublicKey::ed25519(point.strip_prefix(&[0x40])?),
                _ => None,
            }
        }
        27 => PublicKey::ed25519(take_bytes(&mut rest, 32)?),
        _ => None,
    }
}

/// Checks whether a signature is valid now, by its own dates.
pub(crate) fn is_current(signature: &Signature, now: i64) -> bool {
    let Some(created) = signature.created else { return false };
    let expired = signature
        .expires_after
        .is_some_and(|after| created.saturating_add(after) <= now);
    !signature.is_strange && !expired && created <= now.saturating_add(SKEW)
}

impl Certificate {
    /// Reads the certificates in the packets of one armored block.
    ///
    /// # Errors
    /// The problem of a key.
    pub(crate) fn read_all(mut bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut certificates: Vec<Self> = Vec::new();
        for _ in 0..MOST_PACKETS {
            if bytes.is_empty() {
                return Ok(certificates);
            }
            let packet = packet::take_packet(&mut bytes).ok_or("a packet is broken")?;
            if packet.tag == PUBLIC_KEY {
                certificates.push(Self {
                    primary: Key::read(&packet.body)?,
                    direct: Vec::new(),
                    identities: Vec::new(),
                    subkeys: Vec::new(),
                    signatures: 0,
                });
                continue;
            }
            if let Some(certificate) = certificates.last_mut() {
                certificate.add_packet(packet.tag, &packet.body)?;
            }
        }
        Err(format!("it has more than {MOST_PACKETS} packets"))
    }

    fn add_packet(&mut self, tag: u8, body: &[u8]) -> Result<(), String> {
        match tag {
            USER_ID | USER_ATTRIBUTE => {
                let length = u32::try_from(body.len()).map_err(|_| "a name is too long")?;
                let mark = if tag == USER_ID { 0xb4 } else { 0xd1 };
                self.identities.push(Bound {
                    what: [&[mark], length.to_be_bytes().as_slice(), body].concat(),
                    signatures: Vec::new(),
                });
            }
            PUBLIC_SUBKEY => self.subkeys.push(Bound {
                what: Key::read(body)?,
                signatures: Vec::new(),
            }),
            SIGNATURE => {
                let Some(signature) = Signature::read(body) else {
                    // A signature of another version is ignored.
                    return Ok(());
                };
                if signature.issuer.is_some_and(|issuer| issuer != self.primary.id) {
                    return Ok(());
                }
                let place = match (self.subkeys.last_mut(), self.identities.last_mut()) {
                    (Some(subkey), _) => &mut subkey.signatures,
                    (None, Some(identity)) => &mut identity.signatures,
                    (None, None) => &mut self.direct,
                };
                self.signatures += 1;
                if self.signatures > MOST_SIGNATURES {
                    return Err(format!(
                        "holds a key with more than {MOST_SIGNATURES} signatures of its owner"
                    ));
                }
                place.push(signature);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the id of the primary key, which identifies the whole certificate.
    pub(crate) fn describe(&self) -> String {
        self.primary.describe()
    }

    /// Finds the key of this id, if it may sign now; `None` if no key has this id.
    ///
    /// # Errors
    /// The reason why the key may not sign.
    pub(crate) fn find_signer(&self, id: [u8; 8], now: i64) -> Option<Result<&Key, String>> {
        if self.primary.id == id {
            return Some(self.admit_primary(now, true).map(|()| &self.primary));
        }
        let subkey = self.subkeys.iter().find(|subkey| subkey.what.id == id)?;
        let admitted = self
            .admit_primary(now, false)
            .and_then(|()| self.admit_subkey(subkey, now));
        Some(admitted.map(|()| &subkey.what))
    }

    /// Checks whether the primary key is valid now, and with `to_sign`, whether it may sign data.
    fn admit_primary(&self, now: i64, to_sign: bool) -> Result<(), String> {
        let name = self.describe();
        let about = &self.primary.hashed;
        if self.primary.public.is_none() {
            return Err(format!("the key {name} is of a kind that is not supported"));
        }
        if self.is_revoked(&self.direct, KEY_REVOCATION, about) {
            return Err(format!("the key {name} is revoked"));
        }
        let Some(self_signature) = self.find_self_signature(now) else {
            return Err(format!("the key {name} has no signature of its own that is good now"));
        };
        if self.primary.has_expired(self_signature.key_expires_after, now) {
            return Err(format!("the key {name} has expired"));
        }
        if to_sign && self_signature.flags.is_some_and(|flags| flags & MAY_SIGN == 0) {
            return Err(format!("the key {name} is not for signatures"));
        }
        Ok(())
    }

    /// Finds the newest self-signature of the primary key: on one of its names that is not revoked, or directly on the key if it has no such name.
    fn find_self_signature(&self, now: i64) -> Option<&Signature> {
        let of_names = self.identities.iter().flat_map(|identity| {
            let about = [self.primary.hashed.as_slice(), &identity.what].concat();
            let revocations = identity
                .signatures
                .iter()
                .filter(|it| it.kind == CERTIFICATION_REVOCATION);
            let revoked = revocations
                .filter(|it| self.primary.check(it, &about) != Checked::Bad)
                .filter_map(|it| it.created)
                .max();
            identity.signatures.iter().filter(move |signature| {
                CERTIFICATIONS.contains(&signature.kind)
                    && is_current(signature, now)
                    && signature.created > revoked
                    && self.primary.check(signature, &about) == Checked::Good
            })
        });
        let direct = self.direct.iter().filter(|signature| {
            signature.kind == DIRECT_KEY
                && is_current(signature, now)
                && self.primary.check(signature, &self.primary.hashed) == Checked::Good
        });
        let newest = of_names.max_by_key(|signature| signature.created);
        newest.or_else(|| direct.max_by_key(|signature| signature.created))
    }

    /// Checks whether one of the signatures is a revocation of this kind. A revocation that can't be verified counts as well.
    fn is_revoked(&self, signatures: &[Signature], kind: u8, about: &[u8]) -> bool {
        let mut revocations = signatures.iter().filter(|signature| signature.kind == kind);
        revocations.any(|signature| self.primary.check(signature, about) != Checked::Bad)
    }

    /// Checks whether a subkey and the primary key are bound in both directions, and whether the subkey may sign.
    fn admit_subkey(&self, subkey: &Bound<Key>, now: i64) -> Result<(), String> {
        let key = &subkey.what;
        let name = key.describe();
        let about = [self.primary.hashed.as_slice(), &key.hashed].concat();
        if self.is_revoked(&subkey.signatures, SUBKEY_REVOCATION, &about) {
            return Err(format!("the subkey {name} is revoked"));
        }
        let bindings = subkey.signatures.iter().filter(|signature| {
            signature.kind == SUBKEY_BINDING
                && is_current(signature, now)
                && self.primary.check(signature, &about) == Checked::Good
        });
        let Some(binding) = bindings.max_by_key(|signature| signature.created) else {
            return Err(format!("the subkey {name} is not bound to the key {}", self.describe()));
        };
        if key.has_expired(binding.key_expires_after, now) {
            return Err(format!("the subkey {name} has expired"));
        }
        if binding.flags.is_none_or(|flags| flags & MAY_SIGN == 0) {
            return Err(format!("the subkey {name} is not for signatures"));
        }
        // Without this check, an attacker could bind a foreign key here and claim its signatures.
        let back = binding.embedded.as_deref().and_then(Signature::read);
        let agrees = back.is_some_and(|back| {
            back.kind == PRIMARY_KEY_BINDING && is_current(&back, now) && key.check(&back, &about) == Checked::Good
        });
        if !agrees {
            return Err(format!(
                "the subkey {name} does not say that it belongs to the key {}",
                self.describe()
            ));
        }
        Ok(())
    }
}
