//! Credentials of a source, read from the data of a Secret.
//!
//! Supports Flux's keys of a Secret of `spec.secretRef`. No type here implements `Display`, and `Debug` shows no value. Half a credential is refused, never dropped.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::error::FetchError;
use crate::policy::Scheme;
use crate::url::RemoteUrl;

/// The data of a Kubernetes Secret, decoded.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// A text that is never printed, and is wiped from memory on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<String>);

impl SecretBytes {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the text itself, for the wire, or for writing it into a Secret.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The credentials with which a source's client authenticates to its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials.
    Anonymous,
    /// `username` and `password`, sent to the URL's own scheme, host and port only.
    Basic {
        /// The user name.
        username: String,
        /// The password or token.
        password: SecretBytes,
    },
    /// `bearerToken`, sent to the URL's own scheme, host and port only.
    Bearer(SecretBytes),
    /// An ssh key, and the trusted host keys.
    SshKey {
        /// The login; from the URL, `git` if it names none.
        user: String,
        /// The private key, `identity`, in OpenSSH, PKCS#1 or PKCS#8 form.
        identity: SecretBytes,
        /// The passphrase of the key, `password`.
        passphrase: Option<SecretBytes>,
        /// `known_hosts` in OpenSSH's form; hosts that it doesn't name are refused.
        known_hosts: String,
    },
}

/// The certificates for TLS: trusted authorities besides the system's, and the client's own certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `ca.crt` (or Flux's older `caFile`): PEM certificates believed in addition to the system's.
    pub ca: Option<Vec<u8>>,
    /// `tls.crt` and `tls.key`: PEM certificate chain and private key shown to the URL's own host.
    pub client: Option<(Vec<u8>, SecretBytes)>,
}

/// Reads the Secret of a source for this URL.
///
/// # Errors
/// [`FetchError::InvalidSecret`] when a needed key is missing, empty, or not text, or when two kinds of credential are mixed.
pub(crate) fn read_secret(
    url: &RemoteUrl,
    secret: Option<&SecretData>,
) -> Result<(Credentials, TlsOptions), FetchError> {
    let reader = Reader { data: secret };
    let tls = read_tls(secret)?;
    let credentials = if url.endpoint().scheme == Scheme::Ssh {
        read_ssh(url, &reader)?
    } else {
        read_http(url, &reader)?
    };
    Ok((credentials, tls))
}

/// Reads the entries for TLS.
///
/// # Errors
/// [`FetchError::InvalidSecret`] when half of a pair is missing, or a key is not text.
pub(crate) fn read_tls(secret: Option<&SecretData>) -> Result<TlsOptions, FetchError> {
    let reader = Reader { data: secret };
    Ok(TlsOptions {
        ca: match (reader.bytes("ca.crt"), reader.bytes("caFile")) {
            (Some(ca), _) | (None, Some(ca)) => Some(ca.to_vec()),
            (None, None) => None,
        },
        client: match (
            reader.bytes("tls.crt").or(reader.bytes("certFile")),
            reader.text("tls.key")?.or(reader.text("keyFile")?),
        ) {
            (Some(certificate), Some(key)) => Some((certificate.to_vec(), SecretBytes::new(key))),
            (None, None) => None,
            (Some(_), None) => return Err(secret_error("tls.crt is set without tls.key")),
            (None, Some(_)) => return Err(secret_error("tls.key is set without tls.crt")),
        },
    })
}

fn read_ssh(url: &RemoteUrl, reader: &Reader<'_>) -> Result<Credentials, FetchError> {
    let Some(identity) = reader.text("identity")? else {
        return Err(secret_error(
            "an ssh URL needs the key identity (a private key) and known_hosts",
        ));
    };
    let Some(known_hosts) = reader.text("known_hosts")? else {
        return Err(secret_error(
            "known_hosts is missing; without it the server's identity can't be checked: store the output of ssh-keyscan there",
        ));
    };
    Ok(Credentials::SshKey {
        user: url.user().unwrap_or("git").to_owned(),
        identity: SecretBytes::new(identity),
        passphrase: reader.text("password")?.map(SecretBytes::new),
        known_hosts: known_hosts.to_owned(),
    })
}

fn read_http(url: &RemoteUrl, reader: &Reader<'_>) -> Result<Credentials, FetchError> {
    let basic = match (reader.text("username")?, reader.text("password")?) {
        (Some(username), Some(password)) => Some((username.to_owned(), SecretBytes::new(password))),
        (Some(_), None) => return Err(secret_error("username is set without password")),
        (None, Some(_)) => return Err(secret_error("password is set without username")),
        (None, None) => url
            .password()
            .map(|password| (url.user().unwrap_or_default().to_owned(), SecretBytes::new(password))),
    };
    match (basic, reader.text("bearerToken")?) {
        (Some(_), Some(_)) => Err(secret_error(
            "bearerToken and username with password can't be used together",
        )),
        (Some((username, password)), None) => {
            if username.contains(':') {
                return Err(secret_error("username holds a colon"));
            }
            Ok(Credentials::Basic { username, password })
        }
        (None, Some(token)) => Ok(Credentials::Bearer(SecretBytes::new(token.trim_end()))),
        (None, None) => Ok(Credentials::Anonymous),
    }
}

/// The data of a Secret; empty entries count as missing.
pub(crate) struct Reader<'a> {
    data: Option<&'a SecretData>,
}

impl<'a> Reader<'a> {
    /// Reads an existing Secret.
    pub(crate) fn new(data: &'a SecretData) -> Self {
        Self { data: Some(data) }
    }

    /// Returns the value of a key.
    pub(crate) fn bytes(&self, key: &str) -> Option<&'a [u8]> {
        self.data?.get(key).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// Returns the value of a key as text.
    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&'a str>, FetchError> {
        match self.bytes(key) {
            None => Ok(None),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(secret_error(&format!("{key} is not text"))),
            },
        }
    }
}

fn secret_error(text: &str) -> FetchError {
    FetchError::InvalidSecret {
        problem: text.to_owned(),
    }
}
