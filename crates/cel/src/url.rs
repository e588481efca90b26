//! URLs as Go's `net/url` reads absolute URIs and paths. Only the parts that expressions can read are stored.

use std::collections::BTreeMap;

use go_words::quote::quote;

/// A URL's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
    text: String,
}

impl Url {
    /// Reads an absolute URI or an absolute path.
    ///
    /// # Errors
    /// If the text is no such URL, with Go's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |reason: String| Err(format!("parse {}: {reason}", quote(text)));
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return refuse("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return refuse("empty url".to_owned());
        }
        if text == "*" {
            return Ok(Self {
                scheme: String::new(),
                host: String::new(),
                path: "*".to_owned(),
                query: String::new(),
                text: text.to_owned(),
            });
        }
        let (scheme, rest) = match split_scheme(text) {
            Ok(found) => found,
            Err(reason) => return refuse(reason),
        };
        let without_fragment = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (before_query, query) = without_fragment.split_once('?').unwrap_or((without_fragment, ""));
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return refuse("invalid URI for request".to_owned());
            }
            return Ok(Self {
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
                text: text.to_owned(),
            });
        }
        let (authority, path) = match before_query.strip_prefix("//") {
            Some(after) if !scheme.is_empty() || !before_query.starts_with("///") => {
                let end = after.find('/').unwrap_or(after.len());
                after.split_at(end)
            }
            _ => ("", before_query),
        };
        let host = match parse_host(authority) {
            Ok(host) => host,
            Err(reason) => return refuse(reason),
        };
        if let Err(reason) = check_escapes(path) {
            return refuse(reason);
        }
        Ok(Self {
            scheme,
            host,
            path: escaped_path(path),
            query: query.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Returns the host without port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let host = split_port(&self.host).0;
        host.strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        split_port(&self.host).1
    }

    /// Returns the query's values by name, decoded.
    pub(crate) fn query_values(&self) -> BTreeMap<String, Vec<String>> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(name), Some(value)) = (decode(name, true), decode(value, true)) {
                values.entry(name).or_default().push(value);
            }
        }
        values
    }
}

fn split_scheme(text: &str) -> Result<(String, &str), String> {
    for (at, letter) in text.char_indices() {
        match letter {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => {
                let (scheme, rest) = text.split_at(at);
                return Ok((scheme.to_ascii_lowercase(), rest.get(1..).unwrap_or_default()));
            }
            _ => break,
        }
    }
    // Text before a colon in the first segment would have to be a scheme.
    Ok((String::new(), text))
}

fn parse_host(authority: &str) -> Result<String, String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        host.get(end + 1..).unwrap_or_default()
    } else {
        match host.rfind(':') {
            Some(colon) => host.get(colon..).unwrap_or_default(),
            None => "",
        }
    };
    let digits = port.strip_prefix(':');
    if !port.is_empty() && !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    let bad = host
        .chars()
        .find(|letter| matches!(letter, ' ' | '\\' | '^' | '`' | '{' | '|' | '}'));
    if let Some(letter) = bad {
        return Err(format!("invalid character {} in host name", quote(&letter.to_string())));
    }
    check_escapes(host)?;
    Ok(decode(host, false).unwrap_or_default())
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            if name.contains(':') && !name.ends_with(']') {
                (host, "")
            } else {
                (name, port)
            }
        }
        _ => (host, ""),
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'%' {
            continue;
        }
        let digits = bytes.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = text.get(at..).unwrap_or_default().chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        }
    }
    Ok(())
}

/// Escapes each character of a path that is not allowed there. Existing escapes stay.
fn escaped_path(path: &str) -> String {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte);
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if fine(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn decode(text: &str, plus: bool) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                decoded.push(u8::from_str_radix(digits, 16).ok()?);
            }
            b'+' if plus => decoded.push(b' '),
            other => decoded.push(other),
        }
    }
    Some(String::from_utf8_lossy(&decoded).into_owned())
}
