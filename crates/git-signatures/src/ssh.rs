//! Signatures of SSH keys as `ssh-keygen -Y sign` makes them (PROTOCOL.sshsig of OpenSSH), and the trusted keys.
//!
//! A signature must be made for git, with a hash of the SHA-2 family, by exactly a trusted key. Certificates and hardware keys are refused. So are options in front of a
//! key, because their meaning would be ignored.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::arithmetic::{Hash, PublicKey};
use crate::openpgp::Failure;

const BLOCK: &str = "SSH SIGNATURE";
const MAGIC: &[u8] = b"SSHSIG";
/// The namespace of git's signatures.
const NAMESPACE: &[u8] = b"git";
/// The supported kinds of keys, by their names in lists.
const KINDS: [&str; 4] = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ssh-rsa"];
/// The most lines of all lists of keys.
const MOST_KEYS: usize = 1000;

/// A trusted SSH public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshKey {
    /// The key in its wire format.
    blob: Vec<u8>,
    key: PublicKey,
}

impl SshKey {
    /// Returns the fingerprint in the form of `ssh-keygen -l`.
    fn fingerprint(&self) -> String {
        let digest = Hash::Sha256.digest(&self.blob);
        format!("SHA256:{}", STANDARD_NO_PAD.encode(digest.as_ref()))
    }

    fn read(blob: &[u8]) -> Option<Self> {
        let mut rest = blob;
        let kind = take_string(&mut rest)?;
        let key = match kind {
            b"ssh-ed25519" => PublicKey::ed25519(take_string(&mut rest)?),
            b"ssh-rsa" => {
                let exponent = take_mpint(&mut rest)?;
                PublicKey::rsa(take_mpint(&mut rest)?, exponent)
            }
            b"ecdsa-sha2-nistp256" if take_string(&mut rest)? == b"nistp256" => {
                PublicKey::p256(take_string(&mut rest)?)
            }
            b"ecdsa-sha2-nistp384" if take_string(&mut rest)? == b"nistp384" => {
                PublicKey::p384(take_string(&mut rest)?)
            }
            _ => None,
        }?;
        rest.is_empty().then(|| Self {
            blob: blob.to_vec(),
            key,
        })
    }

    /// Verifies a signature of a message; the signature has its kind in front.
    fn verify(&self, message: &[u8], signature: &[u8]) -> Option<bool> {
        let mut rest = signature;
        let kind = take_string(&mut rest)?;
        let mut value = take_string(&mut rest)?;
        if !rest.is_empty() {
            return None;
        }
        Some(match kind {
            b"ssh-ed25519" => self.key.verify_ed25519(message, value),
            b"rsa-sha2-256" => self.key.verify_rsa(Hash::Sha256, message, value),
            b"rsa-sha2-512" => self.key.verify_rsa(Hash::Sha512, message, value),
            b"ecdsa-sha2-nistp256" | b"ecdsa-sha2-nistp384" => {
                let hash = if kind == b"ecdsa-sha2-nistp256" {
                    Hash::Sha256
                } else {
                    Hash::Sha384
                };
                let (r, s) = (take_mpint(&mut value)?, take_mpint(&mut value)?);
                value.is_empty() && self.key.verify_ecdsa(hash, message, (r, s))
            }
            _ => return None,
        })
    }
}

/// Reads a list of keys: each line has a kind, the key and perhaps a comment, as in `authorized_keys` and in files that end in `.pub`.
///
/// # Errors
/// The number of the wrong line, and the problem.
pub(crate) fn read_list(text: &str) -> Result<Vec<SshKey>, String> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = |problem: &str| Err(format!("line {} {problem}", index + 1));
        if keys.len() == MOST_KEYS {
            return Err(format!("there are more than {MOST_KEYS} keys"));
        }
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().unwrap_or_default();
        if !KINDS.contains(&kind) {
            return refuse(
                "does not begin with one of ssh-ed25519, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384 and ssh-rsa; options, certificates \
                 and other kinds of keys are not supported",
            );
        }
        let blob = words
            .next()
            .and_then(|word| STANDARD.decode(word).ok())
            .unwrap_or_default();
        let inner = take_string(&mut blob.as_slice()).unwrap_or_default().to_vec();
        match SshKey::read(&blob) {
            Some(key) if inner == kind.as_bytes() => keys.push(key),
            _ => return refuse("holds no such key, or a key of RSA of less than 2048 bits"),
        }
    }
    Ok(keys)
}

/// Verifies a signature and returns the key that made it.
pub(crate) fn verify(armored: &str, payload: &[u8], keys: &[SshKey]) -> Result<String, Failure> {
    let malformed = || Failure("the SSH signature is malformed".to_owned());
    let (bytes, _) = openpgp_packets::armor::find_first(armored, BLOCK, false).ok_or_else(malformed)?;
    let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(malformed)?;
    let version = openpgp_packets::packet::take_number(&mut rest, 4);
    let mut next = || take_string(&mut rest);
    let parts = (next(), next(), next(), next(), next());
    let (Some(blob), Some(namespace), Some(reserved), Some(hash), Some(signature)) = parts else {
        return Err(malformed());
    };
    if version != Some(1) || !rest.is_empty() {
        return Err(malformed());
    }
    if namespace != NAMESPACE {
        let namespace: String = String::from_utf8_lossy(namespace)
            .chars()
            .filter(|c| !c.is_control())
            .take(40)
            .collect();
        return Err(Failure(format!(
            "the SSH signature was made for {namespace:?}, not for \"git\""
        )));
    }
    let digest = match hash {
        b"sha256" => Hash::Sha256.digest(payload),
        b"sha512" => Hash::Sha512.digest(payload),
        _ => {
            return Err(Failure(
                "the hash of the SSH signature is neither sha256 nor sha512".to_owned(),
            ));
        }
    };
    let Some(key) = keys.iter().find(|key| key.blob == blob) else {
        return Err(Failure("no trusted SSH key made the signature".to_owned()));
    };
    let mut message = MAGIC.to_vec();
    for part in [namespace, reserved, hash, digest.as_ref()] {
        let length = u32::try_from(part.len()).map_err(|_| malformed())?;
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(part);
    }
    match key.verify(&message, signature) {
        Some(true) => Ok(key.fingerprint()),
        Some(false) => Err(Failure(format!("the signature is not good for the SSH key {}", key.fingerprint()))),
        None => Err(Failure(
            "the SSH signature is of a kind that is not supported: ssh-ed25519, ecdsa-sha2-nistp256 and -384, rsa-sha2-256 and -512 are".to_owned(),
        )),
    }
}

fn take_string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = openpgp_packets::packet::take_number(bytes, 4)?;
    openpgp_packets::packet::take_bytes(bytes, length)
}

/// Takes a positive number (`mpint` of RFC 4251, section 5). A number with its first bit set is negative, and zeros in front of a number that needs none are forbidden.
fn take_mpint<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    match take_string(bytes)? {
        [0, rest @ ..] => Some(rest).filter(|rest| rest.first().is_some_and(|first| *first >= 0x80)),
        number => Some(number).filter(|number| number.first().is_some_and(|first| *first < 0x80)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_string(content: &[u8]) -> Vec<u8> {
        [&u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
    }

    /// Other readers refuse a number in another form, and so a key or a signature with it.
    #[test]
    fn a_number_has_one_form() {
        let take = |content: &[u8]| take_mpint(&mut write_string(content).as_slice()).map(<[u8]>::to_vec);
        assert_eq!(take(&[0x7f, 1]), Some(vec![0x7f, 1]));
        assert_eq!(take(&[0, 0x80]), Some(vec![0x80]));
        for content in [[].as_slice(), &[0], &[0, 1], &[0, 0, 0x80], &[0x80], &[0xff, 0]] {
            assert_eq!(take(content), None, "{content:?}");
        }
        let list = |exponent: &[u8], modulus: &[u8]| {
            let blob = [write_string(b"ssh-rsa"), write_string(exponent), write_string(modulus)].concat();
            read_list(&format!("ssh-rsa {}", STANDARD.encode(blob)))
        };
        let modulus = [0xc1; 256];
        let with_zero = [[0].as_slice(), &modulus].concat();
        assert_eq!(list(&[1, 0, 1], &with_zero).unwrap().len(), 1);
        for (exponent, modulus) in [
            ([1, 0, 1].as_slice(), modulus.as_slice()),
            (&[1, 0, 1], &[[0].as_slice(), &with_zero].concat()),
            (&[0, 1, 0, 1], &with_zero),
        ] {
            assert!(list(exponent, modulus).is_err());
        }
    }

    /// OpenSSH and the crate ssh-key refuse a longer one, too.
    #[test]
    fn a_signature_is_not_longer_than_its_key() {
        let recorded = crate::fuzzing::Recorded::default();
        let whole = recorded.ssh_signature_seeds().pop().unwrap();
        let is_accepted = |bytes: &[u8]| recorded.check_ssh_signature(bytes).unwrap().1;
        assert!(is_accepted(&whole));
        let (head, mut rest) = whole.split_at(1 + MAGIC.len() + 4);
        let mut parts: Vec<Vec<u8>> = (0..5).map(|_| take_string(&mut rest).unwrap().to_vec()).collect();
        let signature = parts.pop().unwrap();
        let mut inside = signature.as_slice();
        let (kind, value) = (take_string(&mut inside).unwrap(), take_string(&mut inside).unwrap());
        let write = |value: &[u8]| {
            let signature = write_string(&[write_string(kind), write_string(value)].concat());
            let parts: Vec<u8> = parts.iter().flat_map(|part| write_string(part)).collect();
            [head, &parts, &signature].concat()
        };
        assert_eq!(write(value), whole);
        assert!(!is_accepted(&write(&[[0].as_slice(), value].concat())));
    }
}
