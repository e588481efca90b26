//! The parts of a Secret besides the value of its credential.

use std::sync::Arc;

use tenure_git_access::delivery::Form;

/// The parts of a Secret besides the value.
pub(super) struct FoundSecretParts {
    pub(super) form: Form,
    pub(super) registry: Option<String>,
    pub(super) known_hosts: Option<String>,
    pub(super) authority: Option<Arc<Vec<u8>>>,
    pub(super) host: Option<String>,
}

impl FoundSecretParts {
    pub(super) fn borrow(&self) -> SecretParts<'_> {
        SecretParts {
            form: self.form,
            registry: self.registry.as_deref(),
            known_hosts: self.known_hosts.as_deref(),
            authority: self.authority.as_deref().map(Vec::as_slice),
            host: self.host.as_deref(),
        }
    }
}

/// Host and port of an address.
pub(super) fn find_host(address: &str) -> Option<String> {
    let uri: http::Uri = address.parse().ok()?;
    uri.authority().map(|authority| authority.as_str().to_owned())
}

/// Returns the name of an address's host in lower case, without the port.
pub(super) fn find_host_name(address: &str) -> Option<String> {
    let uri: http::Uri = address.parse().ok()?;
    uri.host().map(str::to_ascii_lowercase)
}

/// The parts of a Secret besides the value, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretParts<'a> {
    pub(super) form: Form,
    /// Where images are.
    pub(super) registry: Option<&'a str>,
    /// Host keys.
    pub(super) known_hosts: Option<&'a str>,
    /// Certificates of the host's authority, as PEM.
    pub(super) authority: Option<&'a [u8]>,
    /// The host's own address, where tokens of its registry come from.
    pub(super) host: Option<&'a str>,
}
