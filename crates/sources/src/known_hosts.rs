//! Reads a `known_hosts` file: the keys that a host may show.
//!
//! Finds the lines of a host: patterns, hashed names, revoked keys. The crate ssh-key parses each line. A host that no line names is refused, and lines about certificate
//! authorities are ignored.

use russh::Preferred;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey};

/// Returns the name of a host in a `known_hosts` file.
pub(crate) fn name_host(host: &str, port: u16) -> String {
    match port {
        22 => host.to_owned(),
        _ => format!("[{host}]:{port}"),
    }
}

/// Returns the lines of a `known_hosts` file about one host, with the plain name of the host in place of patterns and hashes. The text is empty if no line names an
/// accepted key of the host.
pub(crate) fn select_lines(text: &str, host: &str, port: u16) -> String {
    let name = name_host(host, port);
    let found = KnownHosts::find(text, host, port);
    let mut believed = found.believed.clone();
    believed.retain(|key| found.check(key).is_ok());
    if believed.is_empty() {
        return String::new();
    }
    let accepted = believed.iter().map(|key| ("", key));
    let revoked = found.revoked.iter().map(|key| ("@revoked ", key));
    let mut lines: Vec<String> = Vec::new();
    for (marker, key) in accepted.chain(revoked) {
        if let Some(line) = write_line(&name, key).map(|line| format!("{marker}{line}"))
            && !lines.contains(&line)
        {
            lines.push(line);
        }
    }
    lines.concat()
}

/// Writes the line of a key, without a comment.
pub(crate) fn write_line(name: &str, key: &PublicKey) -> Option<String> {
    let text = key.to_openssh().ok()?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Some(format!("{name} {}\n", words.join(" ")))
}

/// The lines of a `known_hosts` file about one host.
#[derive(Debug, Default)]
pub(crate) struct KnownHosts {
    believed: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

impl KnownHosts {
    /// Reads the lines about a host; unreadable lines are ignored.
    pub(crate) fn find(text: &str, host: &str, port: u16) -> Self {
        let name = name_host(host, port);
        let mut found = Self::default();
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some(entry) = read_entry(line) else { continue };
            let keys = match entry.marker() {
                None => &mut found.believed,
                Some(Marker::Revoked) => &mut found.revoked,
                Some(Marker::CertAuthority) => continue,
            };
            if is_named(entry.host_patterns(), &name) {
                keys.push(entry.into());
            }
        }
        found
    }

    /// Returns the kinds of key to request from the server: the acceptable ones.
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
            // No key can be accepted; the server may show one, so that the error can name it.
            return Preferred::default().key.into_owned();
        }
        algorithms
    }

    /// Returns the accepted and the revoked keys.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn into_keys(self) -> (Vec<PublicKey>, Vec<PublicKey>) {
        (self.believed, self.revoked)
    }

    /// Checks whether the host may show this key. The error says why not, with the key's fingerprint.
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
            "it shows {print}, which is not the key that known_hosts names; the connection may be intercepted"
        ))
    }
}

/// Reads a line without its comment. OpenSSH allows any white space between fields, ssh-key one space.
fn read_entry(line: &str) -> Option<Entry> {
    let fields = if line.starts_with('@') { 4 } else { 3 };
    let words: Vec<&str> = line.split_whitespace().take(fields).collect();
    words.join(" ").parse().ok()
}

/// Checks whether patterns name a host: `*` and `?`, `!` in front to exclude, or a hashed name.
fn is_named(patterns: &HostPatterns, name: &str) -> bool {
    let patterns = match patterns {
        HostPatterns::Patterns(patterns) => patterns,
        HostPatterns::HashedName { salt, hash } => {
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            return ring::hmac::verify(&key, name.as_bytes(), hash).is_ok();
        }
    };
    let mut named = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_wildcard(pattern, name) => return false,
            Some(_) => {}
            None => named |= matches_wildcard(pattern, name),
        }
    }
    named
}

fn matches_wildcard(pattern: &str, name: &str) -> bool {
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
    use super::{KnownHosts, is_named, select_lines};

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9dG4kjRhQTtWTVzd2t27+t0DEHBPW7iOD23TUiYLio";
    const HASHED: &str = "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=";

    #[test]
    fn patterns_of_known_hosts() {
        for (patterns, name, named) in [
            ("github.com", "github.com", true),
            ("GitHub.com,1.2.3.4", "github.com", true),
            ("gitlab.com", "github.com", false),
            ("*.example.com", "git.example.com", true),
            ("*.example.com,!git.example.com", "git.example.com", false),
            ("git?.example.com", "git1.example.com", true),
            ("[host]:2222", "[host]:2222", true),
            ("host", "[host]:2222", false),
            (HASHED, "192.168.1.61", true),
            (HASHED, "192.168.1.62", false),
        ] {
            assert_eq!(is_named(&patterns.parse().unwrap(), name), named, "{patterns} {name}");
        }
    }

    #[test]
    fn selected_lines_have_plain_names_and_no_revoked_host() {
        let plain = format!("192.168.1.61 {KEY}\n");
        let check =
            |text: String, expected: &str| assert_eq!(select_lines(&text, "192.168.1.61", 22), expected, "{text}");
        check(format!("{HASHED} {KEY} who@where\r\n"), &plain);
        check(format!("192.168.* {KEY}\n{HASHED} {KEY}"), &plain);
        check(format!("other.example {KEY}"), "");
        check(format!("{HASHED} {KEY}\n@revoked * {KEY}"), "");
        let port = select_lines(&format!("[a.example]:2222 {KEY}"), "a.example", 2222);
        assert_eq!(port, format!("[a.example]:2222 {KEY}\n"));
    }

    #[test]
    fn lines_of_known_hosts() {
        for (line, host, port, believed, revoked) in [
            (format!("a.example {KEY}"), "a.example", 22, 1, 0),
            (format!("a.example {KEY} who@where and more"), "a.example", 22, 1, 0),
            (
                format!("  a.example\t{}  # note", KEY.replace(' ', " \t ")),
                "a.example",
                22,
                1,
                0,
            ),
            (format!("a.example {KEY}"), "a.example", 2222, 0, 0),
            (format!("[a.example]:2222 {KEY}"), "a.example", 2222, 1, 0),
            (format!("*,!a.example {KEY}"), "a.example", 22, 0, 0),
            (format!("{HASHED} {KEY}"), "192.168.1.61", 22, 1, 0),
            (format!("@revoked  a.example {KEY} gone"), "a.example", 22, 0, 1),
            (format!("@revoked {HASHED} {KEY}"), "192.168.1.61", 22, 0, 1),
            (format!("@cert-authority a.example {KEY}"), "a.example", 22, 0, 0),
            (format!("@other a.example {KEY}"), "a.example", 22, 0, 0),
            (format!("# a.example {KEY}"), "a.example", 22, 0, 0),
            ("a.example ssh-ed25519 AAAA".to_owned(), "a.example", 22, 0, 0),
            ("a.example".to_owned(), "a.example", 22, 0, 0),
            ("@revoked".to_owned(), "a.example", 22, 0, 0),
            ("|1|x a".to_owned(), "a.example", 22, 0, 0),
        ] {
            let found = KnownHosts::find(&line, host, port);
            assert_eq!(
                (found.believed.len(), found.revoked.len()),
                (believed, revoked),
                "{line}"
            );
        }
    }
}
