//! A `known_hosts` file: which keys a host may show.
//!
//! Owns the reading of OpenSSH's format: patterns, hashed names, revoked keys. It refuses every host that is not named;
//! lines about certificate authorities are not believed.

use base64::Engine as _;
use russh::Preferred;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey};

/// What a `known_hosts` file says about one host.
#[derive(Debug, Default)]
pub(crate) struct KnownHosts {
    believed: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

impl KnownHosts {
    /// Reads the lines about a host; what can't be read is about no host.
    pub(crate) fn find(text: &str, host: &str, port: u16) -> Self {
        let name = if port == 22 {
            host.to_owned()
        } else {
            format!("[{host}]:{port}")
        };
        let mut found = Self::default();
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let mut patterns = words.next().unwrap_or_default();
            let mut revoked = false;
            if patterns.starts_with('@') {
                revoked = patterns == "@revoked";
                if !revoked {
                    continue;
                }
                patterns = words.next().unwrap_or_default();
            }
            let (kind, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let Ok(key) = PublicKey::from_openssh(&format!("{kind} {key}")) else {
                continue;
            };
            if names(patterns, &name) {
                if revoked {
                    &mut found.revoked
                } else {
                    &mut found.believed
                }
                .push(key);
            }
        }
        found
    }

    /// The kinds of key to ask the server for: those that could be accepted.
    pub(crate) fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = Vec::new();
        for key in &self.believed {
            if let KeyData::Rsa(_) = key.key_data() {
                for hash in [Some(HashAlg::Sha512), Some(HashAlg::Sha256)] {
                    algorithms.push(Algorithm::Rsa { hash });
                }
            } else {
                algorithms.push(key.algorithm());
            }
        }
        algorithms.dedup();
        if algorithms.is_empty() {
            // Nothing can be accepted; let the server show a key, so that the message can name it.
            return Preferred::default().key.into_owned();
        }
        algorithms
    }

    pub(crate) fn check(&self, shown: &PublicKey) -> Result<(), String> {
        let same = |known: &PublicKey| known.key_data() == shown.key_data();
        let print = shown.fingerprint(HashAlg::Sha256);
        if self.revoked.iter().any(same) {
            return Err(format!("known_hosts marks its key {print} as revoked"));
        }
        if self.believed.iter().any(same) {
            return Ok(());
        }
        if self.believed.is_empty() {
            return Err(format!(
                "known_hosts names no key for it; it shows {print}: if that is right, store the output of ssh-keyscan in known_hosts"
            ));
        }
        Err(format!(
            "it shows {print}, which is not the key that known_hosts names; somebody may be in between"
        ))
    }
}

/// Whether a list of patterns names a host: `*` and `?`, `!` in front to exclude, or a hashed name.
fn names(patterns: &str, name: &str) -> bool {
    let mut named = false;
    for pattern in patterns.split(',') {
        if let Some(hashed) = pattern.strip_prefix("|1|") {
            named |= hashed_name(hashed, name).unwrap_or(false);
        } else if let Some(pattern) = pattern.strip_prefix('!') {
            if wildcard(pattern, name) {
                return false;
            }
        } else {
            named |= wildcard(pattern, name);
        }
    }
    named
}

fn hashed_name(hashed: &str, name: &str) -> Option<bool> {
    let engine = base64::engine::general_purpose::STANDARD;
    let (salt, hash) = hashed.split_once('|')?;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &engine.decode(salt).ok()?);
    Some(ring::hmac::verify(&key, name.as_bytes(), &engine.decode(hash).ok()?).is_ok())
}

fn wildcard(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().map(|c| c.to_ascii_lowercase()).collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0_usize, 0_usize);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || Some(c) == name.get(in_name) => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    at = after;
                    in_name = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn patterns_of_known_hosts() {
        let hashed = "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=";
        for (patterns, name, named) in [
            ("github.com", "github.com", true),
            ("GitHub.com,1.2.3.4", "github.com", true),
            ("gitlab.com", "github.com", false),
            ("*.example.com", "git.example.com", true),
            ("*.example.com,!git.example.com", "git.example.com", false),
            ("git?.example.com", "git1.example.com", true),
            ("[host]:2222", "[host]:2222", true),
            ("host", "[host]:2222", false),
            (hashed, "192.168.1.61", true),
            (hashed, "192.168.1.62", false),
        ] {
            assert_eq!(names(patterns, name), named, "{patterns} {name}");
        }
    }
}
