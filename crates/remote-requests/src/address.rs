//! The address for events, parsed strictly and once: no later code can read a part of it in another way. The address may be a secret, so it is never printed.

use std::fmt;

/// The longest address (Flux's).
const LONGEST: usize = 2048;

/// A parsed HTTP or HTTPS address. It may be a secret, so its `Debug` prints no part of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether requests use TLS.
    pub is_https: bool,
    /// Lower-case host name or IP address, without brackets.
    pub host: String,
    /// The port, if one is named.
    pub port: Option<u16>,
    /// The path, which begins with a slash.
    pub path: String,
    /// The query, without its question mark.
    pub query: Option<String>,
    /// A user and a password.
    pub user: Option<(String, String)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(an address)")
    }
}

impl Address {
    /// Parses the text of an address.
    ///
    /// # Errors
    /// The problem of the address, without any part of it.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err("it is longer than 2048 bytes");
        }
        // Parts of the address go into the head of a request, so characters that could change the head are refused.
        if !text.bytes().all(|byte| (0x21..0x7f).contains(&byte)) || text.contains(['\\', '"', '<', '>', '^', '`']) {
            return Err(
                "it holds spaces, letters that are not ASCII, or others that no address has: write them as %20",
            );
        }
        let (is_https, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err("it must begin with https:// or http://"),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (Some(read_user(user)?), server),
            None => (None, authority),
        };
        let (host, port) = read_server(server)?;
        Ok(Self {
            is_https,
            host,
            port,
            path: if path.is_empty() {
                "/".to_owned()
            } else {
                path.to_owned()
            },
            query,
            user,
        })
    }

    /// Returns the path, and the query if there is one, as a request names them.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Describes the server, without the path and query.
    pub fn describe_server(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{host}{port}")
    }

    /// Returns an address at the same server with another path and query.
    pub fn with_path(&self, path: &str, query: Option<String>) -> Self {
        Self {
            path: path.to_owned(),
            query,
            ..self.clone()
        }
    }
}

/// Parses `host` or `host:port`.
pub fn read_server(server: &str) -> Result<(String, Option<u16>), &'static str> {
    let bad_port = "its port is none";
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or("its host is none")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("its host is none");
            }
            match behind {
                "" => (host, None),
                _ => (host, Some(behind.strip_prefix(':').ok_or(bad_port)?)),
            }
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_bracketed = server.starts_with('[');
    if host.is_empty() || host.starts_with('-') || (!is_bracketed && !host.chars().all(is_known)) {
        return Err("it names no host, or one that can't be one");
    }
    let is_number = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        None | Some("") => None,
        Some(port) => {
            let number: Option<u16> = Some(port).filter(is_number).and_then(|port| port.parse().ok());
            Some(number.filter(|port| *port != 0).ok_or(bad_port)?)
        }
    };
    Ok((host.to_ascii_lowercase(), port))
}

fn read_user(text: &str) -> Result<(String, String), &'static str> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text| decode_percent(text).ok_or("the user in it can't be read");
    let user = decoded(user)?;
    if user.contains(':') {
        return Err("the user in it holds a colon");
    }
    Ok((user, decoded(password)?))
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Writes a text as one part of a path.
pub fn encode_part(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
