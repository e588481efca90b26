//! Checks of files, data keys and private keys over any bytes: for targets of cargo-fuzz, and as tests over their first inputs. The module exists only for tests and
//! under `cfg(fuzzing)`, which cargo-fuzz sets. Base64 is added here, since hardly any change of armored text is base64.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::allow_attributes,
    reason = "a check fails by a panic, and first inputs are recorded files"
)]

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::tries::Tries;
use crate::{Format, Keys, Limits, MacVerdict, age, armor, decrypt, decrypt_within, pgp};

const AGE: &str = "AGE ENCRYPTED FILE";
const MESSAGE: &str = "PGP MESSAGE";
const PRIVATE: &str = "PGP PRIVATE KEY BLOCK";
const FORMATS: [Format; 5] = [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary];
/// The bytes and steps that one file may take.
pub const ALLOWANCE: (u64, u64) = (64 << 20, 20_000_000);

fn read_data(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)).unwrap()
}

fn armor_bytes(bytes: &[u8], what: &str) -> String {
    // OpenPGP has an empty line before the base64, and age has none; both are read without it.
    format!(
        "-----BEGIN {what}-----\n{}\n-----END {what}-----\n",
        STANDARD.encode(bytes)
    )
}

/// The recorded keys.
pub struct Recorded {
    pub keys: Keys,
    ages: Vec<age::Identity>,
    secrets: Vec<pgp::SecretKey>,
}

impl Default for Recorded {
    fn default() -> Self {
        let mut keys = Keys::new();
        keys.add_age(&read_data("keys/first.agekey")).unwrap();
        keys.add_age(&read_data("keys/second.agekey")).unwrap();
        keys.add_pgp(&read_data("keys/rsa.asc")).unwrap();
        keys.add_pgp(&read_data("keys/curve.asc")).unwrap();
        let text = |name: &str| String::from_utf8(read_data(name)).unwrap();
        let mut secrets = pgp::read_keys(&text("keys/rsa.asc"), 64).unwrap();
        secrets.extend(pgp::read_keys(&text("keys/curve.asc"), 64).unwrap());
        Self {
            keys,
            ages: age::read_identities(&text("keys/first.agekey"), 64).unwrap(),
            secrets,
        }
    }
}

/// A file that was decrypted.
pub struct Clear {
    pub format: Format,
    pub bytes: Vec<u8>,
    pub mac: MacVerdict,
}

impl Recorded {
    /// Any bytes as a file. The first byte selects the formats to read and to write.
    pub fn check_file(&self, bytes: &[u8]) -> Option<Clear> {
        let (first, bytes) = bytes.split_first()?;
        let from = FORMATS[usize::from(first % 5)];
        let to = if first & 0x80 == 0 {
            from
        } else {
            FORMATS[usize::from(first / 5 % 5)]
        };
        let limits = Limits {
            tries: 32,
            ..Limits::default()
        };
        let open = || decrypt_within(ALLOWANCE, || decrypt(bytes, (from, to), &self.keys, None, &limits));
        match open() {
            Ok(clear) => {
                let again = open().unwrap();
                assert_eq!((&*clear.bytes, clear.mac), (&*again.bytes, again.mac));
                Some(Clear {
                    format: to,
                    bytes: clear.bytes.to_vec(),
                    mac: clear.mac,
                })
            }
            Err(error) => {
                // No message repeats a value.
                assert!(!error.to_string().contains("sesame"), "{error}");
                None
            }
        }
    }

    /// Any bytes as a data key for age.
    pub fn open_age(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        age::decrypt_data_key(&armor_bytes(bytes, AGE), &self.ages, &mut Tries::new(32))
    }

    /// Any bytes as a data key for OpenPGP.
    pub fn open_pgp(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        decrypt_within(ALLOWANCE, || {
            pgp::decrypt_data_key(&armor_bytes(bytes, MESSAGE), &self.secrets, &mut Tries::new(8))
        })
        .ok()
        .flatten()
    }

    pub fn file_seeds(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encrypted");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let with = |name: String| {
            let format = match name.rsplit_once('.').unwrap().1 {
                "json" => 1,
                "env" => 2,
                "ini" => 3,
                "bin" => 4,
                _ => 0,
            };
            [&[format], read_data(&format!("encrypted/{name}")).as_slice()].concat()
        };
        names.into_iter().map(with).collect()
    }

    pub fn age_seeds(&self) -> Vec<Vec<u8>> {
        self.read_sealed(&["secret.yaml", "two-recipients.yaml", "stranger.yaml"], AGE, false)
    }

    pub fn pgp_seeds(&self) -> Vec<Vec<u8>> {
        self.read_sealed(&["rsa.yaml", "curve.yaml", "both.yaml"], MESSAGE, true)
    }

    fn read_sealed(&self, names: &[&str], what: &str, is_openpgp: bool) -> Vec<Vec<u8>> {
        let find = |name: &&str| {
            let text = String::from_utf8(read_data(&format!("encrypted/{name}"))).unwrap();
            Some(armor::decode_first(&text, what, is_openpgp)?.0.to_vec())
        };
        names.iter().filter_map(find).collect()
    }
}

/// Any bytes as the packets inside an encrypted message.
pub fn read_literal(bytes: &[u8]) -> Option<Vec<u8>> {
    let read = pgp::read_literal(bytes)?;
    assert!(
        read.len() <= bytes.len().max(4096),
        "a message unpacks to more than its bound"
    );
    Some(read.to_vec())
}

/// Any bytes as private keys: packets of OpenPGP, or a text with identities of age.
pub fn check_keys(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut keys = Keys::new();
    let added = if first & 1 == 0 {
        keys.add_pgp(armor_bytes(bytes, PRIVATE).as_bytes())
    } else {
        keys.add_age(bytes)
    };
    assert_eq!(added.is_ok(), !keys.is_empty());
    for recipient in keys.age_recipients() {
        assert!(recipient.starts_with("age1") && recipient.len() == 62);
    }
}

pub fn key_seeds() -> Vec<Vec<u8>> {
    let text = |name: &str| String::from_utf8(read_data(name)).unwrap();
    let names = ["rsa", "curve", "locked"].map(|name| text(&format!("keys/{name}.asc")));
    let mut seeds: Vec<Vec<u8>> = names
        .iter()
        .map(|text| [&[0], armor::decode_first(text, PRIVATE, true).unwrap().0.as_slice()].concat())
        .collect();
    let ages = ["first", "second"].map(|name| read_data(&format!("keys/{name}.agekey")));
    seeds.extend(ages.into_iter().map(|text| [&[1], text.as_slice()].concat()));
    seeds
}

pub fn literal_seeds() -> Vec<Vec<u8>> {
    use std::io::Write as _;
    let literal = [&[0xcb, 9, b'b', 1, b'x', 0, 0, 0, 0], b"k1".as_slice()].concat();
    let compress = |kind: u8, body: &[u8]| [&[0xa3, kind], body].concat();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(&literal).unwrap();
    let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    deflate.write_all(&literal).unwrap();
    vec![
        compress(0, &literal),
        compress(2, &zlib.finish().unwrap()),
        compress(1, &deflate.finish().unwrap()),
        literal,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_around(seeds: &[Vec<u8>], steps: usize, check: impl Fn(&[u8])) {
        assert!(!seeds.is_empty());
        for seed in seeds {
            check(seed);
            let step = (seed.len() / steps).max(1);
            for at in (0..seed.len()).step_by(step) {
                check(&seed[..at]);
                let mut bytes = seed.clone();
                bytes[at] ^= 0x81;
                check(&bytes);
            }
        }
    }

    #[test]
    fn mutated_files_and_keys_keep_their_promises() {
        let recorded = Recorded::default();
        check_around(&recorded.file_seeds(), 6, |bytes| drop(recorded.check_file(bytes)));
        check_around(&recorded.age_seeds(), 40, |bytes| drop(recorded.open_age(bytes)));
        check_around(&recorded.pgp_seeds(), 10, |bytes| drop(recorded.open_pgp(bytes)));
        check_around(&literal_seeds(), 40, |bytes| drop(read_literal(bytes)));
        check_around(&key_seeds(), 40, check_keys);
        assert!(
            recorded
                .age_seeds()
                .iter()
                .any(|bytes| recorded.open_age(bytes).is_some())
        );
        assert!(
            recorded
                .pgp_seeds()
                .iter()
                .any(|bytes| recorded.open_pgp(bytes).is_some())
        );
        for seed in literal_seeds() {
            assert_eq!(read_literal(&seed).as_deref(), Some(b"k1".as_slice()));
        }
    }
}
