//! The keys of ssh servers, for a program that pins them: the lines of a `known_hosts` file about one server, and the key that a server shows.

use russh::keys::HashAlg;

use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::known_hosts::{name_host, select_lines, write_line};
use crate::limits::Limits;
use crate::ssh;
use crate::url::RemoteUrl;

/// The key that an ssh server shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// A line of `known_hosts`, with its line break.
    pub line: String,
    /// The fingerprint as `ssh-keygen -l` writes it: `SHA256:…`.
    pub fingerprint: String,
}

/// Returns the lines of a `known_hosts` file about the server of a URL, with its plain name in place of patterns and hashes. The text is empty if no line names an
/// accepted key of the server.
#[must_use]
pub fn select_host_keys(known_hosts: &str, url: &RemoteUrl) -> String {
    let endpoint = url.endpoint();
    select_lines(known_hosts, &endpoint.host, endpoint.port)
}

/// Returns the key that the ssh server of a URL shows now. Nothing proves that the server is the right one. The caller bounds the time.
///
/// # Errors
/// When the address is refused, no connection is possible, or the server shows no plain key.
pub async fn read_host_key(url: &RemoteUrl, reach: &Connector) -> Result<HostKey, FetchError> {
    let dialer = Dialer::new(reach.clone(), &Limits::default());
    let key = ssh::read_host_key(&dialer, url).await?;
    let name = name_host(&url.endpoint().host, url.endpoint().port);
    let line = write_line(&name, &key).ok_or_else(|| FetchError::HostKey {
        host: name,
        problem: "its key can't be written in OpenSSH's form".to_owned(),
    })?;
    Ok(HostKey {
        line,
        fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
    })
}
