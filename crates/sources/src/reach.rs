//! Who opens connections, and what may be reached: this process, as far as its policy allows; or another one, which has a policy of its own and
//! hands over what it has opened. Refuses to choose between the two: whoever starts a process says it once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::error::FetchError;
use crate::policy::{Endpoint, Policy};

/// Opens connections on behalf of a process that can't.
pub trait Connect: Send + Sync + fmt::Debug {
    /// A connection to an endpoint, if whoever opens it may. `behind` is the server that a proxy at the endpoint is going to be asked for,
    /// and is checked as far as it is known there. An address is given up after `patience`.
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
        patience: Duration,
    ) -> BoxFuture<'a, Result<TcpStream, ConnectRefusal>>;
}

/// What may be reached, and by whom.
#[derive(Clone, Debug)]
pub enum Reach {
    /// By this process: what the policy allows.
    Here(Policy),
    /// By another one: what it allows.
    Through(Arc<dyn Connect>),
}

impl From<&Policy> for Reach {
    fn from(policy: &Policy) -> Self {
        Self::Here(policy.clone())
    }
}

impl From<&Self> for Reach {
    fn from(reach: &Self) -> Self {
        reach.clone()
    }
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectFailure {
    /// The policy refuses it.
    Denied,
    /// The host has no address, no address answers, or nobody opens connections now.
    Unreachable,
}

/// Why another process opened no connection, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ConnectRefusal {
    /// What kind of failure it was.
    pub failure: ConnectFailure,
    /// What it said.
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
    use tenure_planner::source::FetchReason;

    use super::*;

    /// What another process says of a connection is told as if it had been tried here.
    #[tokio::test]
    async fn a_refusal_is_told_in_the_same_words() {
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
            (there.reason(), there.transient()),
            (FetchReason::GitOperationFailed, false)
        );
        let unreachable = FetchError::Resolve {
            host: "git.example".to_owned(),
            source: std::io::Error::other("no such host"),
        };
        let there = FetchError::from(ConnectRefusal::from(&unreachable));
        assert_eq!((there.to_string(), there.transient()), (unreachable.to_string(), true));
    }
}
