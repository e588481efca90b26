//! Any text as a `known_hosts` file. The lines are independent: the keys of a file are the keys of its lines.

use russh::keys::PublicKey;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns};

use crate::known_hosts::KnownHosts;

const HOSTS: [(&str, u16); 3] = [("git.example.com", 22), ("git.example.com", 2222), ("10.0.0.7", 22)];

pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for (host, port) in HOSTS {
        let whole = KnownHosts::find(text, host, port);
        let mut parts = (Vec::new(), Vec::new());
        for line in text.lines() {
            let (believed, revoked) = KnownHosts::find(line, host, port).into_keys();
            check_line(line, (host, port), &believed);
            parts.0.extend(believed);
            parts.1.extend(revoked);
        }
        assert!(!whole.algorithms().is_empty());
        for key in &parts.0 {
            let is_revoked = parts.1.iter().any(|other| other.key_data() == key.key_data());
            assert_eq!(whole.check(key).is_ok(), !is_revoked);
        }
        for key in &parts.1 {
            assert!(whole.check(key).is_err(), "a revoked key is accepted");
        }
        assert_eq!(whole.into_keys(), parts);
    }
}

/// Compares a line without wildcards with the crate ssh-key: the name must be one of the listed names.
fn check_line(line: &str, (host, port): (&str, u16), believed: &[PublicKey]) {
    // OpenSSH allows any white space between fields, and ssh-key one space.
    if line.trim().contains(|c: char| c.is_whitespace() && c != ' ') || line.trim().contains("  ") {
        return;
    }
    // The crate ssh-key reads a comment alone as an entry. In a file it is none.
    let line = line.trim();
    if line.starts_with('#') {
        return;
    }
    let Ok(entry) = line.parse::<Entry>() else {
        return;
    };
    let HostPatterns::Patterns(patterns) = entry.host_patterns() else {
        return;
    };
    if entry.marker().is_some() || patterns.iter().any(|pattern| pattern.contains(['*', '?', '!'])) {
        return;
    }
    let name = if port == 22 {
        host.to_owned()
    } else {
        format!("[{host}]:{port}")
    };
    let is_named = patterns.iter().any(|pattern| pattern.eq_ignore_ascii_case(&name));
    assert_eq!(!believed.is_empty(), is_named, "{line:?} for {name}");
    if let [key] = believed {
        assert_eq!(key.key_data(), entry.public_key().key_data());
    }
}

/// Returns the first inputs: patterns, hashed names, marks.
pub fn seeds() -> Vec<Vec<u8>> {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHeGAJOqEMB3rYBtsnOLqzVkVZPgBJWCnwfXRuhvQQkm";
    let texts = [
        format!("git.example.com,10.0.0.7 {key}\n[git.example.com]:2222 {key} a comment\n"),
        format!("# comment\n*.example.com,!git.example.com {key}\ngit.?xample.com {key}\n"),
        format!("@revoked * {key}\n@cert-authority *.example.com {key}\ngit.example.com\t {key}\n"),
        format!("|1|eYb4Lp/cZ5jMqLYnvRSXoCkt3Ag=|1Zk9AQJmlVTyWxDYWxPlpWJcVGk= {key}\n"),
    ];
    texts.map(String::into_bytes).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_files_are_read_line_by_line() {
        super::super::check_around(&seeds(), check);
    }
}
