//! Opens connections for lanes' processes: to the API server, and to addresses that the policy of the lane's sources allows, checked here after name
//! resolution. A lane names the address, but not the source for which it connects. The hub opens connections for the processes that it has started.
//! In a Pod, the relay opens them for the lane.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_sources::{ConnectFailure, ConnectRefusal, Policy, check_connection, open_connection};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::lane::lane_references::Reference;
use crate::lane_protocol::dial_channel::{AT_ONCE, DialAnswer, DialChannel, DialRequest, DialTarget};

/// The time limit for one address, whatever limit a lane asks for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit for the whole connection, with name resolution.
const ALL: Duration = Duration::from_secs(60);

/// Opens an artifact that another lane has fetched, by its digest.
pub(crate) type OpenLent = dyn Fn(Reference, String) -> BoxFuture<'static, Result<File, ConnectRefusal>> + Send + Sync;

/// The connections and files that one lane may open: to the addresses of its sources, to the API server, and artifacts of other lanes.
pub(crate) struct DialPolicy {
    /// The lane's name, for the log.
    pub(crate) lane: String,
    /// The addresses that its sources may reach.
    pub(crate) policy: Policy,
    /// The address of the API server.
    pub(crate) server: String,
    /// Opens artifacts that other lanes lend to it.
    pub(crate) open_lent: Box<OpenLent>,
}

/// Opens the connections that a lane requests until its process ends. Returns the violation if the lane sent a forbidden message.
pub(crate) async fn serve(line: DialChannel, reachable: DialPolicy) -> Option<String> {
    let (line, reachable) = (Arc::new(line), Arc::new(reachable));
    let mut work = JoinSet::new();
    loop {
        while work.len() >= AT_ONCE {
            // Further requests wait.
            work.join_next().await;
        }
        while work.try_join_next().is_some() {}
        let request = match line.receive::<DialRequest>().await {
            Ok(Some(request)) => request,
            Ok(None) => return Some("its request for a connection can't be read".to_owned()),
            Err(error) => {
                tracing::debug!(lane = reachable.lane, %error, "a lane can't ask for connections any more");
                return std::future::pending().await;
            }
        };
        let (line, reachable) = (Arc::clone(&line), Arc::clone(&reachable));
        work.spawn(async move {
            let number = request.number;
            let opening = async {
                match request.target {
                    DialTarget::Artifact { reference, digest } => {
                        let opened = (reachable.open_lent)(reference, digest).await;
                        opened.map(|file| Some(OwnedFd::from(file)))
                    }
                    DialTarget::Check { endpoint, behind } => {
                        let checked = check_connection(&reachable.policy, &endpoint, behind.as_ref()).await;
                        checked.map(|()| None).map_err(|error| ConnectRefusal::from(&error))
                    }
                    target => hand_over(open_target(&target, &reachable.policy, &reachable.server).await?).map(Some),
                }
            };
            let opened = tokio::time::timeout(ALL, opening).await;
            let opened = opened.unwrap_or_else(|_| Err(make_unreachable("no answer in time".to_owned())));
            let handed_over = match opened {
                Ok(opened) => {
                    let answer = DialAnswer { number, refusal: None };
                    match opened {
                        Some(opened) => line.send_with(&answer, opened.as_fd()).await,
                        None => line.send(&answer).await,
                    }
                }
                Err(refusal) => {
                    let refusal = Some(refusal);
                    line.send(&DialAnswer { number, refusal }).await
                }
            };
            if let Err(error) = handed_over {
                tracing::debug!(%error, "a connection could not be handed to a lane");
            }
        });
    }
}

fn make_unreachable(message: String) -> ConnectRefusal {
    ConnectRefusal {
        failure: ConnectFailure::Unreachable,
        message,
    }
}

async fn open_target(target: &DialTarget, policy: &Policy, server: &str) -> Result<TcpStream, ConnectRefusal> {
    match target {
        DialTarget::Endpoint {
            endpoint,
            behind,
            patience,
        } => {
            let patience = (*patience).min(PATIENCE);
            let opened = open_connection(policy, endpoint, behind.as_ref(), patience).await;
            opened.map_err(|error| ConnectRefusal::from(&error))
        }
        DialTarget::Server => {
            let connecting = tokio::time::timeout(PATIENCE, connect_to_server(server)).await;
            let connected = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            connected.map_err(|error| make_unreachable(format!("the API server can't be connected to: {error}")))
        }
        DialTarget::Artifact { .. } | DialTarget::Check { .. } => {
            Err(make_unreachable("the target has no address to connect to".to_owned()))
        }
    }
}

/// Returns a connection as a descriptor to hand over.
fn hand_over(stream: TcpStream) -> Result<OwnedFd, ConnectRefusal> {
    let stream = stream.into_std();
    stream
        .map(OwnedFd::from)
        .map_err(|error| make_unreachable(error.to_string()))
}

async fn connect_to_server(url: &str) -> io::Result<TcpStream> {
    let invalid = |error: http::uri::InvalidUri| io::Error::new(io::ErrorKind::InvalidInput, error);
    let url: http::Uri = url.parse().map_err(invalid)?;
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url
        .port_u16()
        .unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tenure_sources::Endpoint;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn lane_connections_follow_policy_of_its_sources() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint: Endpoint = format!("http://{address}").parse().unwrap();
        let target = |endpoint: &Endpoint| DialTarget::Endpoint {
            endpoint: endpoint.clone(),
            behind: None,
            patience: Duration::from_secs(3600),
        };
        let (nothing, allowed) = (
            Policy::default(),
            Policy {
                allow: vec![endpoint.clone()],
                cluster: Vec::new(),
            },
        );
        let server = format!("https://{address}");
        let denied = open_target(&target(&endpoint), &nothing, &server).await.unwrap_err();
        assert_eq!(denied.failure, ConnectFailure::Denied);
        assert!(
            denied
                .message
                .contains("is a loopback address, which sources may not reach"),
            "{denied}"
        );
        let metadata: Endpoint = "http://169.254.169.254".parse().unwrap();
        let denied = open_target(&target(&metadata), &allowed, &server).await.unwrap_err();
        assert_eq!(denied.failure, ConnectFailure::Denied, "{denied}");
        // An allowed proxy leads to no forbidden target, as far as the target is known here. A forbidden proxy leads nowhere.
        let behind = |endpoint: &Endpoint, behind: &str| DialTarget::Endpoint {
            endpoint: endpoint.clone(),
            behind: Some(behind.parse().unwrap()),
            patience: Duration::from_secs(3600),
        };
        let denied = open_target(&behind(&endpoint, "http://169.254.169.254"), &allowed, &server).await;
        assert_eq!(denied.unwrap_err().failure, ConnectFailure::Denied);
        let denied = open_target(&behind(&endpoint, "https://nobody.invalid"), &nothing, &server).await;
        assert_eq!(denied.unwrap_err().failure, ConnectFailure::Denied);
        let opened = open_target(&behind(&endpoint, "https://nobody.invalid"), &allowed, &server).await;
        assert_eq!(opened.unwrap().peer_addr().unwrap(), address);
        // The controls: an address that an administrator allows, and the API server, which no source can name.
        let opened = open_target(&target(&endpoint), &allowed, &server).await.unwrap();
        assert_eq!(opened.peer_addr().unwrap(), address);
        let opened = open_target(&DialTarget::Server, &nothing, &server).await.unwrap();
        assert_eq!(opened.peer_addr().unwrap(), address);
        drop(listener);
        let gone = open_target(&DialTarget::Server, &nothing, &server).await.unwrap_err();
        assert_eq!(gone.failure, ConnectFailure::Unreachable, "{gone}");
    }

    #[tokio::test]
    async fn a_check_is_answered_without_a_connection() {
        let (hub, lane) = DialChannel::pair().unwrap();
        let lane = DialChannel::from_socket(lane.into()).unwrap();
        let allowed: Endpoint = "http://127.0.0.1:9".parse().unwrap();
        let reachable = DialPolicy {
            lane: "blue".to_owned(),
            policy: Policy {
                allow: vec![allowed.clone()],
                cluster: Vec::new(),
            },
            server: "https://127.0.0.1:9".to_owned(),
            open_lent: Box::new(|_, _| Box::pin(async { Err(make_unreachable("nothing is lent".to_owned())) })),
        };
        let serving = tokio::spawn(serve(hub, reachable));
        for (number, endpoint, failure) in [
            (1, allowed, None),
            (2, "http://127.0.0.1:10".parse().unwrap(), Some(ConnectFailure::Denied)),
        ] {
            let target = DialTarget::Check { endpoint, behind: None };
            lane.send(&DialRequest { number, target }).await.unwrap();
            let (answer, descriptor) = lane.receive_with::<DialAnswer>().await.unwrap();
            let answer = answer.unwrap();
            assert!(descriptor.is_none() && answer.number == number);
            assert_eq!(answer.refusal.map(|refusal| refusal.failure), failure);
        }
        serving.abort();
    }
}
