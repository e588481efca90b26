//! Checks of signatures, key rings and signed objects over any bytes: for targets of cargo-fuzz, and as tests over their first inputs. The module exists only for tests
//! and under `cfg(fuzzing)`, which cargo-fuzz sets. Base64 is added here, since hardly any change of armored text is base64.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::allow_attributes,
    reason = "a check fails by a panic, and first inputs are recorded files"
)]

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openpgp_packets::armor::find_first;

use crate::{ObjectFormat, Signed, TrustedKeys, read_tag_name, split_commit, split_tag};

/// Recorded objects of OpenPGP, each with the ring that verifies it.
const OPENPGP: [(&str, &str); 7] = [
    ("rsa.commit", "rsa.asc"),
    ("rsa.tag", "rsa.asc"),
    ("p256.commit", "p256.asc"),
    ("p384.commit", "p384.asc"),
    ("subkey.commit", "subkey.asc"),
    ("prolonged.commit", "prolonged.asc"),
    ("old.commit", "old.asc"),
];
/// Recorded objects of SSH, each with its key.
const SSH: [(&str, &str); 5] = [
    ("ssh-ed25519.commit", "ssh-ed25519.sshpub"),
    ("ssh-sha256.commit", "ssh-ed25519.sshpub"),
    ("ssh-ecdsa-256.commit", "ssh-ecdsa-256.sshpub"),
    ("ssh-ecdsa-384.commit", "ssh-ecdsa-384.sshpub"),
    ("ssh-rsa-3072.commit", "ssh-rsa-3072.sshpub"),
];

/// A signature that is accepted, for a comparison with another library.
#[derive(Debug)]
pub struct Accepted {
    /// The signed bytes.
    pub payload: Vec<u8>,
    /// The signature without its armor.
    pub signature: Vec<u8>,
    /// The keys: packets of OpenPGP, or a list of SSH keys.
    pub keys: Vec<u8>,
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name),
    )
    .unwrap()
}

fn read_object(name: &str) -> Signed {
    let content = read(name);
    if name.ends_with(".tag") {
        split_tag(&content).unwrap()
    } else {
        split_commit(&content, ObjectFormat::Sha1).unwrap()
    }
}

/// Returns a time shortly after everything was made.
fn fixed_now() -> i64 {
    let content = String::from_utf8(read("rsa.commit")).unwrap();
    let line = content.lines().find(|line| line.starts_with("committer ")).unwrap();
    line.split(' ').nth_back(1).unwrap().parse::<i64>().unwrap() + 3600
}

fn decode_armor(text: &str, what: &str, is_openpgp: bool) -> Vec<u8> {
    find_first(text, what, is_openpgp).unwrap().0.to_vec()
}

fn encode_armor(bytes: &[u8], what: &str) -> String {
    format!(
        "-----BEGIN {what}-----\n\n{}\n-----END {what}-----",
        STANDARD.encode(bytes)
    )
}

/// The recorded objects and keys, which are the same for all inputs.
pub struct Recorded {
    openpgp: Vec<(Signed, Vec<u8>)>,
    ssh: Vec<(Signed, Vec<u8>)>,
    now: i64,
}

impl Default for Recorded {
    fn default() -> Self {
        let text = |name: &str| String::from_utf8(read(name)).unwrap();
        let ring = |name: &str| decode_armor(&text(name), "PGP PUBLIC KEY BLOCK", true);
        Self {
            openpgp: OPENPGP.map(|(name, key)| (read_object(name), ring(key))).to_vec(),
            ssh: SSH.map(|(name, key)| (read_object(name), read(key))).to_vec(),
            now: fixed_now(),
        }
    }
}

impl Recorded {
    /// Any bytes as the signature of a recorded object (the first byte selects which one).
    pub fn check_openpgp_signature(&self, bytes: &[u8]) -> Option<Accepted> {
        let (first, bytes) = bytes.split_first()?;
        let (object, ring) = &self.openpgp[usize::from(*first) % self.openpgp.len()];
        self.verify_openpgp(&object.payload, bytes, ring)
    }

    /// Any bytes as the ring for a recorded signature.
    pub fn check_openpgp_ring(&self, bytes: &[u8]) -> Option<Accepted> {
        let (first, bytes) = bytes.split_first()?;
        let (object, _) = &self.openpgp[usize::from(*first) % self.openpgp.len()];
        let signature = decode_armor(&object.signature, "PGP SIGNATURE", true);
        self.verify_openpgp(&object.payload, &signature, bytes)
    }

    fn verify_openpgp(&self, payload: &[u8], signature: &[u8], ring: &[u8]) -> Option<Accepted> {
        let armored = encode_armor(ring, "PGP PUBLIC KEY BLOCK").into_bytes();
        let keys = TrustedKeys::read(&BTreeMap::from([("a.asc".to_owned(), armored)])).ok()?;
        let signed = |payload: &[u8]| Signed {
            payload: payload.to_vec(),
            signature: encode_armor(signature, "PGP SIGNATURE"),
        };
        let signer = keys.verify(&signed(payload), self.now).ok()?;
        assert!(signer.len() == 16 && signer.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // A key is no reason to accept other bytes, or to accept them before the key was made.
        assert!(keys.verify(&signed(&[payload, b"x"].concat()), self.now).is_err());
        assert!(keys.verify(&signed(payload), 0).is_err());
        Some(Accepted {
            payload: payload.to_vec(),
            signature: signature.to_vec(),
            keys: ring.to_vec(),
        })
    }

    /// Any bytes as the SSH signature of a recorded object. Also returns what was not accepted, with a mark.
    pub fn check_ssh_signature(&self, bytes: &[u8]) -> Option<(Accepted, bool)> {
        let (first, bytes) = bytes.split_first()?;
        let (object, list) = &self.ssh[usize::from(*first) % self.ssh.len()];
        let keys = TrustedKeys::read(&BTreeMap::from([("a.sshpub".to_owned(), list.clone())])).unwrap();
        let signed = |payload: &[u8]| Signed {
            payload: payload.to_vec(),
            signature: encode_armor(bytes, "SSH SIGNATURE"),
        };
        let is_accepted = keys.verify(&signed(&object.payload), 0).is_ok();
        if is_accepted {
            assert!(keys.verify(&signed(b"other"), 0).is_err());
        }
        let accepted = Accepted {
            payload: object.payload.clone(),
            signature: bytes.to_vec(),
            keys: list.clone(),
        };
        Some((accepted, is_accepted))
    }

    pub fn openpgp_signature_seeds(&self) -> Vec<Vec<u8>> {
        let with = |(index, (object, _)): (usize, &(Signed, Vec<u8>))| {
            let signature = decode_armor(&object.signature, "PGP SIGNATURE", true);
            [&[index as u8], signature.as_slice()].concat()
        };
        self.openpgp.iter().enumerate().map(with).collect()
    }

    pub fn openpgp_ring_seeds(&self) -> Vec<Vec<u8>> {
        let with = |(index, (_, ring)): (usize, &(Signed, Vec<u8>))| [&[index as u8], ring.as_slice()].concat();
        self.openpgp.iter().enumerate().map(with).collect()
    }

    pub fn ssh_signature_seeds(&self) -> Vec<Vec<u8>> {
        let with = |(index, (object, _)): (usize, &(Signed, Vec<u8>))| {
            let signature = decode_armor(&object.signature, "SSH SIGNATURE", false);
            [&[index as u8], signature.as_slice()].concat()
        };
        self.ssh.iter().enumerate().map(with).collect()
    }
}

/// Any text as a list of SSH keys. Returns whether it is accepted.
pub fn check_ssh_keys(bytes: &[u8]) -> bool {
    TrustedKeys::read(&BTreeMap::from([("a.sshpub".to_owned(), bytes.to_vec())])).is_ok()
}

pub fn ssh_key_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = SSH.map(|(_, key)| read(key)).to_vec();
    seeds.push(seeds.concat());
    seeds
}

/// Any bytes as a commit and as a tag: nothing is left out of the signed bytes but the signature.
pub fn check_payload(bytes: &[u8]) {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let Some(signed) = split_commit(bytes, format) else {
            continue;
        };
        assert!(signed.payload.len() + signed.signature.len() <= bytes.len());
        let headers = signed
            .payload
            .split(|byte| *byte == b'\n')
            .take_while(|line| !line.is_empty());
        assert!(
            headers
                .clone()
                .all(|line| !line.starts_with(b"gpgsig ") && line != b"gpgsig")
        );
        // The signed bytes have no signature, and stay the same.
        let again = split_commit(&signed.payload, format).unwrap();
        assert_eq!((again.payload, again.signature.as_str()), (signed.payload.clone(), ""));
        // The signature can be put back.
        let end = signed.payload.windows(2).position(|two| two == b"\n\n");
        if let Some(end) = end
            && !signed.signature.is_empty()
            && !signed.payload.starts_with(b"\n")
        {
            let (headers, message) = signed.payload.split_at(end + 1);
            let name = if format == ObjectFormat::Sha1 {
                "gpgsig"
            } else {
                "gpgsig-sha256"
            };
            let header = format!("{name} {}\n", signed.signature.replace('\n', "\n "));
            let whole = [headers, header.as_bytes(), message].concat();
            assert_eq!(split_commit(&whole, format), Some(signed));
        }
    }
    if let Some(signed) = split_tag(bytes) {
        assert!(bytes.starts_with(&signed.payload));
        assert!(signed.payload.len() + signed.signature.len() <= bytes.len());
        if signed.payload.len() < bytes.len() {
            assert!(signed.signature.starts_with("-----BEGIN "));
        }
    }
    if let Some(name) = read_tag_name(bytes) {
        assert!(!name.contains('\n'));
    }
}

/// Returns recorded commits and tags, as first inputs of [`check_payload`].
pub fn payload_seeds() -> Vec<Vec<u8>> {
    let names = [
        "rsa.commit",
        "ssh-ed25519.commit",
        "not-signed.commit",
        "rsa.tag",
        "ssh-ed25519.tag",
    ];
    let mut seeds = names.map(read).to_vec();
    seeds.push(b"tree 1\nauthor a\ngpgsig -----BEGIN\n more\n \n end\nmergetag object\n inner\ngpgsig-sha256 other\n lines\n\nsubject\n".to_vec());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_around(seeds: &[Vec<u8>], check: impl Fn(&[u8]) -> bool) {
        assert!(!seeds.is_empty());
        for seed in seeds {
            assert!(check(seed), "a recorded input is refused");
            let step = (seed.len() / 60).max(1);
            for at in (0..seed.len()).step_by(step) {
                check(&seed[..at]);
                for flip in [0x01, 0x80, 0xff] {
                    let mut bytes = seed.clone();
                    bytes[at] ^= flip;
                    check(&bytes);
                }
            }
        }
    }

    #[test]
    fn mutated_signatures_and_keys_keep_their_promises() {
        let recorded = Recorded::default();
        check_around(&recorded.openpgp_signature_seeds(), |bytes| {
            recorded.check_openpgp_signature(bytes).is_some()
        });
        check_around(&recorded.openpgp_ring_seeds(), |bytes| {
            recorded.check_openpgp_ring(bytes).is_some()
        });
        check_around(&recorded.ssh_signature_seeds(), |bytes| {
            recorded
                .check_ssh_signature(bytes)
                .is_some_and(|(_, is_accepted)| is_accepted)
        });
        check_around(&ssh_key_seeds(), check_ssh_keys);
        check_around(&payload_seeds(), |bytes| {
            check_payload(bytes);
            true
        });
    }

    /// gpg passes over bytes after the numbers of a signature. No program writes any.
    #[test]
    fn signature_with_more_bytes_is_refused() {
        let recorded = Recorded::default();
        for seed in recorded.openpgp_signature_seeds() {
            let (object, mut packets) = seed.split_first().unwrap();
            let packet = openpgp_packets::packet::take_packet(&mut packets).unwrap();
            let check = |more: &[u8]| {
                let body = [packet.body.as_slice(), more].concat();
                let length = u32::try_from(body.len()).unwrap().to_be_bytes();
                let framed = [[*object, 0xc2, 255].as_slice(), &length, &body].concat();
                recorded.check_openpgp_signature(&framed).is_some()
            };
            assert!(check(&[]), "the control");
            assert!(!check(&[0]) && !check(&[0, 1, 1]));
        }
    }
}
