//! Opens connections within a policy: in this process, or by another process with a policy of its own that hands over open connections. The program that starts a process
//! chooses between the two, once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::dialer::check_connection;
use crate::error::FetchError;
use crate::policy::{Endpoint, Policy};

/// Opens connections on behalf of a process that can't.
pub trait Connect: Send + Sync + fmt::Debug {
    /// Connects to an endpoint, if the opening process allows it. `behind` is the server that a proxy at the endpoint will connect to; the opening process checks it as
    /// far as it can. An address without an answer is given up after `patience`.
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
        patience: Duration,
    ) -> BoxFuture<'a, Result<TcpStream, ConnectRefusal>>;

    /// Checks whether [`Connect::connect`] would find an allowed address. No connection is opened.
    fn check<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
    ) -> BoxFuture<'a, Result<(), ConnectRefusal>>;
}

/// How this process gets connections: it opens them itself, or another process opens them. The policy of the opening process decides which are allowed.
#[derive(Clone, Debug)]
pub enum Connector {
    /// Connections of this process, within the policy.
    Here(Policy),
    /// Connections that another process opens, within its own policy.
    Through(Arc<dyn Connect>),
}

impl Connector {
    /// Checks whether a connection would be allowed. No connection is opened.
    pub(crate) async fn check(&self, endpoint: &Endpoint, behind: Option<&Endpoint>) -> Result<(), FetchError> {
        match self {
            Self::Here(policy) => check_connection(policy, endpoint, behind).await,
            Self::Through(other) => Ok(other.check(endpoint, behind).await?),
        }
    }
}

impl From<&Policy> for Connector {
    fn from(policy: &Policy) -> Self {
        Self::Here(policy.clone())
    }
}

impl From<&Self> for Connector {
    fn from(reach: &Self) -> Self {
        reach.clone()
    }
}

/// Why no connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectFailure {
    /// The policy refuses it.
    Denied,
    /// The host has no address, no address answers, or the opening process is not available.
    Unreachable,
}

/// The opening process' reason why it refused or could not open a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ConnectRefusal {
    /// The kind of failure.
    pub failure: ConnectFailure,
    /// The message.
    pub message: String,
}

impl From<&FetchError> for ConnectRefusal {
    fn from(error: &FetchError) -> Self {
        Self {
            failure: match error {
                FetchError::AddressDenied(_) => ConnectFailure::Denied,
                _ => ConnectFailure::Unreachable,
            },
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_remote_requests::fetch::FetchReason;

    use super::*;

    /// A refusal of another process has the same message as a local one.
    #[tokio::test]
    async fn a_refusal_is_reported_in_the_same_words() {
        let endpoint: Endpoint = "http://127.0.0.1:9".parse().unwrap();
        let policy = Policy::default();
        let patience = Duration::from_secs(1);
        let here = crate::dialer::open_connection(&policy, &endpoint, None, patience).await;
        let here = here.expect_err("loopback is denied");
        let refusal = ConnectRefusal::from(&here);
        assert_eq!(refusal.failure, ConnectFailure::Denied);
        let there = FetchError::from(refusal);
        assert_eq!(there.to_string(), here.to_string());
        assert_eq!(
            (there.reason(), there.is_transient()),
            (FetchReason::GitOperationFailed, false)
        );
        let unreachable = FetchError::Resolve {
            host: "git.example".to_owned(),
            source: std::io::Error::other("no such host"),
        };
        let there = FetchError::from(ConnectRefusal::from(&unreachable));
        assert_eq!(
            (there.to_string(), there.is_transient()),
            (unreachable.to_string(), true)
        );
    }
}
