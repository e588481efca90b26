//! Connections of a user's own command. It may connect to any server that the user names: the policy for the addresses of sources applies to controllers.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_sources::{Connect, ConnectRefusal, Connector, Endpoint, Policy, open_connection};
use tokio::net::TcpStream;

/// Connects to each address that the command needs.
#[derive(Debug)]
struct AnyAddress;

impl Connect for AnyAddress {
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        _behind: Option<&'a Endpoint>,
        patience: Duration,
    ) -> BoxFuture<'a, Result<TcpStream, ConnectRefusal>> {
        async move {
            let policy = Policy {
                allow: vec![endpoint.clone()],
                ..Policy::default()
            };
            let opened = open_connection(&policy, endpoint, None, patience).await;
            opened.map_err(|error| ConnectRefusal::from(&error))
        }
        .boxed()
    }

    fn check<'a>(&'a self, _: &'a Endpoint, _: Option<&'a Endpoint>) -> BoxFuture<'a, Result<(), ConnectRefusal>> {
        async { Ok(()) }.boxed()
    }
}

/// Returns the connector of a user's own command.
pub(crate) fn make_connector() -> Connector {
    Connector::Through(Arc::new(AnyAddress))
}
