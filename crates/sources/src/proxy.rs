//! A proxy between a source and its server, from the Secret of `spec.proxySecretRef`.
//!
//! The Secret has Flux's keys `address`, `username` and `password`. The policy checks the proxy's own address like any other; the proxy resolves the address of its
//! target. The credentials go to the proxy alone, and errors never quote its answer.

use std::fmt;

use base64::Engine as _;
use http::header::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use url::Url;

use crate::error::FetchError;
use crate::policy::{Endpoint, Scheme};
use crate::secret::{Reader, SecretBytes, SecretData};
use crate::url::{decode_percent, read_host};

/// The longest address in bytes (Flux's).
const LONGEST_ADDRESS: usize = 2048;
/// The longest head of a proxy's answer in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// An HTTP proxy for the connections of a source, with the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    endpoint: Endpoint,
    /// The value of the header `Proxy-Authorization`.
    authorization: Option<SecretBytes>,
    /// PEM certificates that are trusted for a proxy over https, besides the system's.
    pub(crate) ca: Option<Vec<u8>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.endpoint)
    }
}

impl Proxy {
    /// Reads a proxy from the data of a Secret.
    ///
    /// # Errors
    /// [`FetchError::InvalidProxy`], which names the unusable key, and never a value.
    pub fn read(secret: &SecretData) -> Result<Self, FetchError> {
        let invalid = |problem: &str| FetchError::InvalidProxy {
            problem: problem.to_owned(),
        };
        let reader = Reader::new(secret);
        let text = |key: &'static str| reader.text(key).map_err(|_| invalid(&format!("{key} is not text")));
        let address =
            text("address")?.ok_or_else(|| invalid("address is missing: the proxy's URL, http://host:port"))?;
        if address.len() > LONGEST_ADDRESS {
            return Err(invalid("address is longer than 2048 bytes"));
        }
        let url = Url::parse(address.trim()).map_err(|_| invalid("address is no URL: write http://host:port"))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "socks5" | "socks5h" => {
                return Err(invalid(
                    "address begins with socks5, which is not supported; http and https are",
                ));
            }
            _ => return Err(invalid("address must begin with http:// or https://")),
        };
        let host = read_host(&url).filter(|host| !host.is_empty() && !host.starts_with('-'));
        let host = host.ok_or_else(|| invalid("address names no host"))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("address has more than a host and a port"));
        }
        let decoded = |text: &str| decode_percent(text).ok_or_else(|| invalid("the user in address can't be read"));
        let username = match text("username")? {
            Some(username) => Some((username.to_owned(), text("password")?.unwrap_or_default().to_owned())),
            None if text("password")?.is_some() => return Err(invalid("password is set without username")),
            None if url.username().is_empty() => None,
            None => Some((decoded(url.username())?, decoded(url.password().unwrap_or_default())?)),
        };
        if username.as_ref().is_some_and(|(username, _)| username.contains(':')) {
            return Err(invalid("username holds a colon"));
        }
        let authorization = username.map(|(username, password)| {
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
            SecretBytes::new(format!("Basic {pair}"))
        });
        Ok(Self {
            endpoint: Endpoint {
                scheme,
                port: url.port().unwrap_or(scheme.default_port()),
                host,
            },
            authorization,
            ca: reader.bytes("ca.crt").map(<[u8]>::to_vec),
        })
    }

    /// Reads a Secret if it is named. A named proxy is never skipped.
    pub(crate) fn read_if_named(is_named: bool, secret: Option<&SecretData>) -> Result<Option<Self>, FetchError> {
        match secret {
            Some(secret) => Self::read(secret).map(Some),
            None if is_named => Err(FetchError::InvalidProxy {
                problem: "it was not read".to_owned(),
            }),
            None => Ok(None),
        }
    }

    /// Returns the proxy's endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the value of the header `Proxy-Authorization`.
    pub(crate) fn write_authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(self.authorization.as_ref()?.reveal()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Requests a connection to a server, on a connection to the proxy.
    pub(crate) async fn ask_for(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        target: &Endpoint,
    ) -> Result<(), FetchError> {
        let broken = |problem: String| FetchError::Broken {
            url: format!("the proxy {}", self.endpoint),
            problem,
        };
        let host = if target.host.contains(':') {
            format!("[{}]:{}", target.host, target.port)
        } else {
            format!("{}:{}", target.host, target.port)
        };
        let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.reveal()));
        }
        request.push_str("\r\n");
        let written = async {
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await
        };
        written.await.map_err(|error| broken(error.to_string()))?;
        // Byte by byte, because the bytes after the head belong to the server.
        let mut head = Vec::with_capacity(256);
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_BYTES {
                return Err(broken("its answer has no end".to_owned()));
            }
            let byte = stream.read_u8().await;
            head.push(byte.map_err(|_| broken("it closed the connection in the middle of its answer".to_owned()))?);
        }
        match read_status(&head) {
            Some(status) if (200..300).contains(&status) => Ok(()),
            Some(status) => Err(self.explain_status(status)),
            None => Err(broken("it does not answer as an HTTP proxy".to_owned())),
        }
    }

    /// Explains a status of the proxy itself.
    pub(crate) fn explain_status(&self, status: u16) -> FetchError {
        let url = format!("the proxy {}", self.endpoint);
        if status == 407 {
            let problem = match self.authorization {
                None => "HTTP 407: it wants credentials: username and password of the Secret of spec.proxySecretRef",
                Some(_) => "HTTP 407: it does not accept username and password of the Secret of spec.proxySecretRef",
            };
            return FetchError::Unauthorized {
                url,
                problem: problem.to_owned(),
            };
        }
        FetchError::HttpStatus {
            url,
            status,
            problem: "it does not connect to the server",
            retry_after: None,
        }
    }
}

/// Reads the status in the first line of an answer.
fn read_status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    let (_, rest) = rest.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    matches!(rest.as_bytes().get(3), None | Some(b' ')).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<Proxy, String> {
        let secret = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        Proxy::read(&secret).map_err(|error| error.to_string())
    }

    /// A proxy Secret in Flux's form is read. An error names the wrong entry without its value.
    #[test]
    fn invalid_proxy_secret_is_reported_without_its_value() {
        let proxy = read(&[
            ("address", "http://Proxy.example:3128"),
            ("username", "me"),
            ("password", "hush"),
        ]);
        let proxy = proxy.unwrap();
        assert_eq!(proxy.endpoint.to_string(), "http://proxy.example:3128");
        assert_eq!(proxy.write_authorization().unwrap(), "Basic bWU6aHVzaA==");
        assert_eq!(format!("{proxy:?}"), "Proxy(http://proxy.example:3128)");
        let inside = read(&[("address", "https://me:hu%73h@[2001:db8::1]/")]).unwrap();
        assert_eq!(inside.endpoint.to_string(), "https://[2001:db8::1]:443");
        assert_eq!(inside.authorization, proxy.authorization);
        let outside = read(&[
            ("address", "http://me:other@proxy.example:3128"),
            ("username", "me"),
            ("password", "hush"),
        ]);
        assert_eq!(outside.unwrap(), proxy);
        assert_eq!(read(&[("address", "http://p")]).unwrap().write_authorization(), None);

        let long = format!("http://{}", "hush".repeat(1000));
        for (entries, expected) in [
            (vec![], "address is missing"),
            (vec![("address", "hush")], "address is no URL"),
            (
                vec![("address", "socks5://hush:1080")],
                "socks5, which is not supported",
            ),
            (vec![("address", "ftp://hush")], "must begin with http"),
            (vec![("address", "http://p/hush")], "more than a host and a port"),
            (vec![("address", "http://p?hush")], "more than a host and a port"),
            (vec![("address", long.as_str())], "longer than 2048"),
            (
                vec![("address", "http://p"), ("password", "hush")],
                "password is set without username",
            ),
            (
                vec![("address", "http://p"), ("username", "hush:"), ("password", "x")],
                "username holds a colon",
            ),
        ] {
            let message = read(&entries).unwrap_err();
            assert!(message.contains(expected) && !message.contains("hush"), "{message}");
            assert!(
                message.starts_with("the Secret of spec.proxySecretRef can't be used"),
                "{message}"
            );
        }
    }

    #[test]
    fn proxy_status_has_three_digits() {
        assert_eq!(read_status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(read_status(b"HTTP/1.0 407\r\n\r\n"), Some(407));
        for strange in [
            b"HTTP/2 200\r\n".as_slice(),
            b"HTTP/1.1 2000 x\r\n",
            b"HTTP/1.1 \r\n",
            b"\r\n",
            b"SSH-2.0-x\r\n",
        ] {
            assert_eq!(read_status(strange), None);
        }
    }
}
