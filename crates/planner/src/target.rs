//! The cluster that a kubeconfig, or an address in a ConfigMap, leads to, and with what. Owns what is one cluster: its address and the authority that vouches for it, not
//! who asks it, since credentials change. It refuses to be printed: of all that it holds, the host and the port may stand in a text.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use tenure_tenancy::TokenOrder;
use zeroize::Zeroizing;

/// Where an API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// Host name, or IP address without brackets, in lower case.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What comes before every path; empty, or with a slash before it and none behind.
    pub path: String,
}

impl fmt::Display for TargetAddress {
    /// Without the path, which some hosters take for a password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "https://{}:{}", self.host, self.port)
        }
    }
}

/// What proves who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetCredentials {
    /// A bearer token.
    pub token: Option<Zeroizing<String>>,
    /// A user name and a password.
    pub basic: Option<(String, Zeroizing<String>)>,
    /// A certificate and its key, in PEM.
    pub certificate: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
    /// A token of this cluster, which is asked for when it is needed, and again before it ends.
    pub ordered: Option<TokenOrder>,
}

impl TargetCredentials {
    /// Whether there are none.
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

/// A cluster to apply to, besides this one.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub address: TargetAddress,
    /// The name that its certificate has to be for, if it isn't the host.
    pub server_name: Option<String>,
    /// The authorities that are believed, in PEM; the system's when there are none.
    pub authority: Option<Vec<u8>>,
    /// Who asks.
    pub credentials: TargetCredentials,
    /// Who the user is to act as, there.
    pub impersonated: Option<String>,
}

impl Target {
    /// Which cluster it is: the same for all credentials and all who act there. It stands in statuses.
    #[must_use]
    pub fn cluster(&self) -> String {
        format!("sha256:{}", hex::encode(self.hash_cluster().finalize()))
    }

    fn hash_cluster(&self) -> Sha256 {
        let mut hash = Sha256::new();
        add(&mut hash, self.address.host.as_bytes());
        add(&mut hash, &self.address.port.to_be_bytes());
        add(&mut hash, self.address.path.as_bytes());
        // How a text ends is up to who wrote it.
        add(&mut hash, self.authority.as_deref().unwrap_or_default().trim_ascii());
        hash
    }

    /// Which connection it is: another for each credentials.
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

/// Which connection a target is. Never printed: who knows it could try out short passwords.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TargetKey([u8; 32]);

impl fmt::Debug for TargetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TargetKey(hidden)")
    }
}

/// Adds bytes so that what follows can't be taken for a part of them.
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
