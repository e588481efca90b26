//! The rules for names, parts of labels, and ports, with Kubernetes' error messages.

use super::validate_name;
use crate::schema::{FieldError, FieldPath};

/// The rule for the names of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Lower-case letters, digits, `-` and `.`, up to 253.
    Subdomain,
    /// Lower-case letters, digits and `-`, up to 63.
    Label,
    /// Any text that can be a segment of a URL's path.
    PathSegment,
}

impl NameRule {
    /// Returns the errors in a name; `prefix` when it is a `generateName`.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        // A prefix may end in `-`, as something follows.
        let masked = match name.strip_suffix('-') {
            Some(rest) if prefix && name.len() > 1 => format!("{rest}a"),
            _ => name.to_owned(),
        };
        match self {
            Self::Subdomain => find_subdomain_errors(&masked),
            Self::Label => find_label_errors(&masked),
            Self::PathSegment => path_segment(name, prefix),
        }
    }
}

const LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Returns the errors in an RFC 1123 label.
pub fn find_label_errors(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 63 {
        complaints.push(too_long(63));
    }
    if !is_label(name) {
        let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
        if is_subdomain(name) {
            complaints.push("must not contain dots".to_owned());
        } else {
            complaints.push(format!(
                "{words} (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_REGEX}')"
            ));
        }
    }
    complaints
}

/// Returns the errors in an RFC 1035 label, which begins with a letter.
pub fn service_label(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 63 {
        complaints.push(too_long(63));
    }
    if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        complaints.push("a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned());
    }
    complaints
}

/// Returns the errors in an RFC 1123 subdomain.
pub fn find_subdomain_errors(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 253 {
        complaints.push(too_long(253));
    }
    if !is_subdomain(name) {
        complaints.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{LABEL_REGEX}(\\.{LABEL_REGEX})*')"
        ));
    }
    complaints
}

/// Like [`find_subdomain_errors`], but `_` is valid at the start and inside of each part.
pub(crate) fn subdomain_with_underscores(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 253 {
        complaints.push("must be no more than 253 characters".to_owned());
    }
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let sound = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|byte| edge(Some(byte)) || matches!(byte, b'-' | b'_'))
    };
    if !name.split('.').all(sound) {
        let part = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        complaints.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{part}(\\.{part})*')"
        ));
    }
    complaints
}

/// Returns the errors in a name as one segment of a path, or as the beginning of one.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Returns the errors in a port's name.
pub fn port_name(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 15 {
        complaints.push(too_long(15));
    }
    let letters = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if name.is_empty() || !letters {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

/// Returns the error in a port's number.
pub fn port_number(port: i64) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| "must be between 1 and 65535, inclusive".to_owned())
}

/// Returns the errors in a key of a ConfigMap or Secret.
pub fn data_key(key: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if key.len() > 253 {
        complaints.push(too_long(253));
    }
    if key.is_empty()
        || !key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        complaints.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => complaints.push("must not be '.'".to_owned()),
        ".." => complaints.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Returns the error for long names. Labels have another wording in the real server.
fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

fn is_label(name: &str) -> bool {
    let middle = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    middle && !name.is_empty() && !name.starts_with('-') && !name.ends_with('-')
}

pub(crate) fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// Checks the name of a controller: a domain, a slash, and more.
pub(crate) fn prefixed_path(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    match name.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            validate_name(find_subdomain_errors, domain, at, errors);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(allowed) {
                let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(at, path, why));
            }
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(at, name, why));
        }
    }
}
