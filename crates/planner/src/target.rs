//! Another cluster as a target of applies, from a kubeconfig or a ConfigMap: its address and the credentials. The address and the trusted authority identify a
//! cluster. The credentials don't, since they change. A target is never printed: only the host and the port may appear in a text.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use tenure_tenancy::TokenOrder;
use zeroize::Zeroizing;

/// The address of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// Host name, or IP address without brackets, in lower case.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The prefix of every path: empty, or with a slash in front and none at the end.
    pub path: String,
}

impl fmt::Display for TargetAddress {
    /// Prints the address without its path, which some hosters use as a password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "https://{}:{}", self.host, self.port)
        }
    }
}

/// The credentials for the target.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetCredentials {
    /// A bearer token.
    pub token: Option<Zeroizing<String>>,
    /// A user name and a password.
    pub basic: Option<(String, Zeroizing<String>)>,
    /// A certificate and its key, in PEM.
    pub certificate: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
    /// A token of this cluster, which is requested when it is needed, and again before it expires.
    pub ordered: Option<TokenOrder>,
}

impl TargetCredentials {
    /// Checks whether there are no credentials.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.token.is_none() && self.basic.is_none() && self.certificate.is_none() && self.ordered.is_none()
    }
}

impl fmt::Debug for TargetCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TargetCredentials(hidden)")
    }
}

/// A cluster to apply to, other than this one.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The address of the API server.
    pub address: TargetAddress,
    /// The name to expect in the API server's certificate, if it isn't the host.
    pub server_name: Option<String>,
    /// The trusted authorities, in PEM. Unset: the system's authorities.
    pub authority: Option<Vec<u8>>,
    /// The credentials.
    pub credentials: TargetCredentials,
    /// The user to impersonate in the target cluster.
    pub impersonated: Option<String>,
}

impl Target {
    /// Returns the identity of the cluster, which doesn't depend on credentials and users. Statuses show it.
    #[must_use]
    pub fn cluster(&self) -> String {
        format!("sha256:{}", hex::encode(self.hash_cluster().finalize()))
    }

    fn hash_cluster(&self) -> Sha256 {
        let mut hash = Sha256::new();
        add(&mut hash, self.address.host.as_bytes());
        add(&mut hash, &self.address.port.to_be_bytes());
        add(&mut hash, self.address.path.as_bytes());
        // The authority is hashed without white space around it, which depends on the author of the text.
        add(&mut hash, self.authority.as_deref().unwrap_or_default().trim_ascii());
        hash
    }

    /// Returns the identity of the connection, which differs for each set of credentials.
    #[must_use]
    pub fn key(&self) -> TargetKey {
        let mut hash = self.hash_cluster();
        let texts = [
            self.server_name.as_deref(),
            self.impersonated.as_deref(),
            self.credentials.token.as_ref().map(|token| token.as_str()),
            self.credentials.basic.as_ref().map(|(user, _)| user.as_str()),
            self.credentials.basic.as_ref().map(|(_, password)| password.as_str()),
        ];
        for text in texts {
            add(&mut hash, &[u8::from(text.is_some())]);
            add(&mut hash, text.unwrap_or_default().as_bytes());
        }
        let (certificate, key) = match &self.credentials.certificate {
            Some((certificate, key)) => (certificate.as_slice(), key.as_slice()),
            None => (&[][..], &[][..]),
        };
        add(&mut hash, certificate);
        add(&mut hash, key);
        if let Some(order) = &self.credentials.ordered {
            add(&mut hash, order.account().to_string().as_bytes());
            for audience in order.audiences() {
                add(&mut hash, audience.as_bytes());
            }
        }
        TargetKey(hash.finalize().into())
    }
}

/// The identity of a target's connection. It is never printed, since short passwords could be guessed with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TargetKey([u8; 32]);

impl fmt::Debug for TargetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TargetKey(hidden)")
    }
}

/// Adds bytes so that the following ones can't be taken for a part of them.
fn add(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Target({self})")
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
