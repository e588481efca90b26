//! The URL of a Git repository, read once and strictly.
//!
//! Everything that a program or a shell could read as something else is refused: hosts and paths that look like options, control characters, other schemes. The display
//! form contains no credentials.

use std::fmt;

use url::{Host, Url};

use crate::error::FetchError;
use crate::policy::{Endpoint, Scheme};

/// A parsed repository URL. `Display` leaves out user information, query and fragment, so it is safe in any message.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    endpoint: Endpoint,
    path: String,
    user: Option<String>,
    password: Option<String>,
}

impl RemoteUrl {
    /// Reads `http://`, `https://` and `ssh://` URLs, as Flux's source-controller accepts them.
    ///
    /// # Errors
    /// [`FetchError::InvalidUrl`] for any other scheme (`file`, `git`, `git::`, the scp form), for a missing host, for
    /// a path or host that starts with a dash, and for control characters or spaces anywhere.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(invalid_url(
                "(not shown)",
                "it holds spaces, backslashes or control characters",
            ));
        }
        if !text.contains("://") && text.contains('@') && text.contains(':') {
            return Err(invalid_url(
                "(not shown)",
                "write the scp form user@host:path as ssh://user@host/path",
            ));
        }
        let url = Url::parse(text)
            .map_err(|problem| invalid_url("(not shown)", &format!("{problem}; write https://host/path")))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "ssh" => Scheme::Ssh,
            other => {
                return Err(invalid_url(
                    "(not shown)",
                    &format!("scheme {other:?} is not one of http, https, ssh"),
                ));
            }
        };
        let host = read_host(&url).ok_or_else(|| invalid_url("(not shown)", "it names no host"))?;
        let endpoint = Endpoint {
            scheme,
            port: url.port().unwrap_or(scheme.default_port()),
            host,
        };
        let path = url.path().to_owned();
        let shown = format!("{endpoint}{path}");
        if endpoint.host.is_empty() || endpoint.host.starts_with('-') || endpoint.host.contains('%') {
            return Err(invalid_url(&shown, "its host is not a host name"));
        }
        if endpoint.port == 0 {
            return Err(invalid_url(&shown, "port 0 can't be connected to"));
        }
        if path.is_empty() || path == "/" {
            return Err(invalid_url(&shown, "it names no repository"));
        }
        if path.starts_with("/-") {
            return Err(invalid_url(&shown, "its path starts with a dash"));
        }
        if url.fragment().is_some() || url.query().is_some() {
            return Err(invalid_url(&shown, "it has a query or fragment"));
        }
        let decode = |text: &str| decode_percent(text).filter(|text| !text.chars().any(char::is_control));
        let user = match url.username() {
            "" => None,
            user => Some(decode(user).ok_or_else(|| invalid_url(&shown, "its user name can't be read"))?),
        };
        let password = match url.password() {
            None => None,
            Some(password) => Some(decode(password).ok_or_else(|| invalid_url(&shown, "its password can't be read"))?),
        };
        if user.as_deref().is_some_and(|user| user.starts_with('-')) {
            return Err(invalid_url(&shown, "its user name starts with a dash"));
        }
        Ok(Self {
            endpoint,
            path,
            user,
            password,
        })
    }

    /// Returns scheme, host and port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the path as written, percent-encoded, starting with a slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the user of the URL, for ssh the login (`git` if there is none).
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password of the URL; a secret.
    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

/// Returns the host of a URL, in lower case and without brackets; an address in its usual form.
pub(crate) fn read_host(url: &Url) -> Option<String> {
    Some(match url.host()? {
        Host::Domain(domain) => normalize_domain(domain),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    })
}

/// Normalizes a domain. The parser treats hosts of `ssh:` URLs as opaque, so an address there comes as a domain.
fn normalize_domain(domain: &str) -> String {
    domain
        .parse::<std::net::Ipv4Addr>()
        .map_or_else(|_| domain.to_ascii_lowercase(), |address| address.to_string())
}

fn invalid_url(url: &str, problem: &str) -> FetchError {
    FetchError::InvalidUrl {
        url: url.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Decodes `%41`; `None` if the escapes or the result are malformed.
pub(crate) fn decode_percent(text: &str) -> Option<String> {
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

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { scheme, host, port } = &self.endpoint;
        write!(f, "{}://", scheme.as_str())?;
        if host.contains(':') {
            write!(f, "[{host}]")?;
        } else {
            write!(f, "{host}")?;
        }
        if *port != scheme.default_port() {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({self})")
    }
}
