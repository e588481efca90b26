//! A public key of OpenPGP with all that its owner says of it: names, subkeys, expiry, revocation.
//!
//! Owns which key of it may sign now. Whatever is to be believed of a key must be signed by its primary key; what others say of it is passed
//! over. A revocation that can't be verified counts, since it could be true; anything else that can't be verified doesn't.

use openpgp_packets::packet::{self, take_byte, take_bytes, take_mpi, take_number};

use crate::arithmetic::{Hash, PublicKey, pad};
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
/// A key may sign data.
const MAY_SIGN: u8 = 2;
/// Packets of all keys of one text: others' signatures on well known keys are many.
const MOST_PACKETS: usize = 20_000;
/// Signatures that one key, with its names and subkeys, may have of its owner's: each is verified whenever the key is asked about.
const MOST_SIGNATURES: usize = 256;
/// How far the clocks of others may be ahead.
pub(crate) const SKEW: i64 = 300;
/// Names of curves, as they stand in keys: Ed25519, P-256, P-384.
const ED25519: &[u8] = &[0x2b, 6, 1, 4, 1, 0xda, 0x47, 0x0f, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// What is hashed of it, with what stands before.
    hashed: Vec<u8>,
    id: [u8; 8],
    created: i64,
    algorithm: u8,
    /// Nothing if it can't verify, or is of a kind that is not understood.
    public: Option<PublicKey>,
}

/// A name or a picture, or a subkey, with its owner's signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound<T> {
    what: T,
    signatures: Vec<Signature>,
}

/// A key and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    primary: Key,
    direct: Vec<Signature>,
    /// What is hashed of each.
    identities: Vec<Bound<Vec<u8>>>,
    subkeys: Vec<Bound<Key>>,
    /// How many signatures there are of all these.
    signatures: usize,
}

/// What a look at a signature told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Good,
    Bad,
    /// The key, the hash or the form is not understood.
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

    /// Looks at a signature that this key is said to have made.
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
            (PublicKey::Ed25519(_), Numbers::Two(r, s)) => match (pad(r, 32), pad(s, 32)) {
                (Some(r), Some(s)) => public.verify_ed25519(hash.digest(&message).as_ref(), &[r, s].concat()),
                _ => false,
            },
            // Other hashes for these curves are not understood.
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

    fn has_expired(&self, after: Option<i64>, now: i64) -> bool {
        self.created > now.saturating_add(SKEW) || after.is_some_and(|after| self.created.saturating_add(after) <= now)
    }

    /// As GnuPG writes it.
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

/// Whether a signature holds now, by its own words.
pub(crate) fn is_current(signature: &Signature, now: i64) -> bool {
    let Some(created) = signature.created else { return false };
    let expired = signature
        .expires_after
        .is_some_and(|after| created.saturating_add(after) <= now);
    !signature.is_strange && !expired && created <= now.saturating_add(SKEW)
}

impl Certificate {
    /// Reads the keys of a block.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn read_all(mut bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut certificates: Vec<Self> = Vec::new();
        for _ in 0..MOST_PACKETS {
            if bytes.is_empty() {
                return Ok(certificates);
            }
            let packet = packet::take(&mut bytes).ok_or("a packet is broken")?;
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
                certificate.take(packet.tag, &packet.body)?;
            }
        }
        Err(format!("it has more than {MOST_PACKETS} packets"))
    }

    fn take(&mut self, tag: u8, body: &[u8]) -> Result<(), String> {
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
                    // Of another version: nobody's word here.
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

    /// The id of the primary key, which stands for all of it.
    pub(crate) fn describe(&self) -> String {
        self.primary.describe()
    }

    /// The key of this id, if it may sign now; nothing if it is none of these.
    ///
    /// # Errors
    /// Why it may not.
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

    /// Whether the primary key is good now, and may sign data if that is asked.
    fn admit_primary(&self, now: i64, to_sign: bool) -> Result<(), String> {
        let name = self.describe();
        let about = &self.primary.hashed;
        if self.primary.public.is_none() {
            return Err(format!("the key {name} is of a kind that is not supported"));
        }
        if self.is_revoked(&self.direct, KEY_REVOCATION, about) {
            return Err(format!("the key {name} is revoked"));
        }
        let Some(words) = self.find_own_words(now) else {
            return Err(format!("the key {name} has no signature of its own that is good now"));
        };
        if self.primary.has_expired(words.key_expires_after, now) {
            return Err(format!("the key {name} has expired"));
        }
        if to_sign && words.flags.is_some_and(|flags| flags & MAY_SIGN == 0) {
            return Err(format!("the key {name} is not for signatures"));
        }
        Ok(())
    }

    /// The newest that the primary key says of itself: to one of its names that is not revoked, or directly if there is no such name.
    fn find_own_words(&self, now: i64) -> Option<&Signature> {
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

    fn is_revoked(&self, signatures: &[Signature], kind: u8, about: &[u8]) -> bool {
        let mut revocations = signatures.iter().filter(|signature| signature.kind == kind);
        revocations.any(|signature| self.primary.check(signature, about) != Checked::Bad)
    }

    /// Whether a subkey is bound to the primary key, in both directions, and may sign.
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
        // Else a foreign key could be bound here, and its signatures be taken for this owner's.
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
