//! The relay in a lane's Pod: it finds the controllers, authenticates, and lets them run the lane's process (`tenure_controllers::LaneRelay`). The relay retries with
//! pauses. It shows its token only to a server with a certificate of the controllers' authority.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_controllers::{LaneRelay, RelayEnd};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::controllers;
use crate::failure::Failure;
use crate::health_server::serve_probes;
use crate::plain_http::parse_address;
use crate::{allocator, interruption};

/// The timeout for a connection, and the timeout for the handshake after it.
const CONNECTING: Duration = Duration::from_secs(10);
/// The shortest and the longest pause before a retry.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(8);

/// Flags of a lane's process in a Pod.
#[derive(Debug, Args)]
#[group(id = "lane-in-a-pod")]
pub(crate) struct Flags {
    /// Address of the controllers, for a lane in a Pod.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_hub, requires_all = ["hub_authority", "hub_token", "api_token", "data"])]
    hub: Option<Hub>,
    /// CA certificates of the controllers, in PEM.
    #[arg(long, value_name = "FILE", requires = "hub")]
    hub_authority: Option<PathBuf>,
    /// Token that proves the lane's identity to the controllers.
    #[arg(long, value_name = "FILE", requires = "hub")]
    hub_token: Option<PathBuf>,
    /// Token for the API server.
    #[arg(long, value_name = "FILE", requires = "hub")]
    api_token: Option<PathBuf>,
    /// Folder for fetched content.
    #[arg(long, value_name = "DIR", requires = "hub")]
    data: Option<PathBuf>,
    /// Address of the probes GET /livez and /readyz.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_address, requires = "hub")]
    health_address: Option<std::net::SocketAddr>,
}

impl Flags {
    /// Whether this is the first process of a Pod.
    pub(super) fn is_in_pod(&self) -> bool {
        self.hub.is_some()
    }

    /// Returns the settings, in a Pod.
    pub(super) fn read_settings(self) -> Option<LaneInPod> {
        Some(LaneInPod {
            hub: self.hub?,
            hub_authority: self.hub_authority?,
            hub_token: self.hub_token?,
            api_token: self.api_token?,
            data: self.data?,
            health_address: self.health_address,
        })
    }
}

/// The relay in a lane's Pod, with the address of the controllers and the paths of its tokens.
#[derive(Debug)]
pub(super) struct LaneInPod {
    hub: Hub,
    hub_authority: PathBuf,
    hub_token: PathBuf,
    api_token: PathBuf,
    data: PathBuf,
    health_address: Option<std::net::SocketAddr>,
}

/// The address of the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hub {
    host: String,
    port: u16,
}

fn parse_hub(text: &str) -> Result<Hub, String> {
    let refuse = || "write HOST:PORT, such as tenure-lanes.tenure-system.svc:9643".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port.parse() {
        Ok(port) if ServerName::try_from(host).is_ok() => Ok(Hub {
            host: host.to_owned(),
            port,
        }),
        _ => Err(refuse()),
    }
}

impl LaneInPod {
    /// Relays until a signal ends it.
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let api_token = self.api_token.clone();
        let program = controllers::describe_lane_program();
        let relay = LaneRelay::new(&program, self.data.clone(), move || read_token(&api_token));
        let probes = match self.health_address {
            Some(address) => {
                let works = relay.works();
                let probes = serve_probes(address, move || works.load(Ordering::Acquire)).await?;
                futures::future::Either::Left(probes)
            }
            None => futures::future::Either::Right(std::future::pending()),
        };
        let end = CancellationToken::new();
        let ending = async {
            let signalled = interruption::wait_for_signal().await;
            end.cancel();
            match signalled {
                Ok(()) => std::future::pending().await,
                Err(failure) => failure,
            }
        };
        tokio::select! {
            () = self.work(&relay, &end) => Ok(ExitCode::SUCCESS),
            failure = ending => Err(failure),
            () = probes => Ok(ExitCode::SUCCESS),
            () = allocator::give_back_freed_memory() => Ok(ExitCode::SUCCESS),
        }
    }

    /// Serves the leading controllers until a signal ends the relay.
    async fn work(&self, relay: &LaneRelay, end: &CancellationToken) {
        let mut pause = SOON;
        while !end.is_cancelled() {
            let connecting = end.run_until_cancelled(self.connect()).await;
            match connecting {
                Some(Ok((stream, token))) => match relay.serve(stream, token, end).await {
                    RelayEnd::LaneEnded => pause = SOON,
                    RelayEnd::NotTakenIn => {
                        tracing::info!("the controllers did not take this Pod in; it tries again");
                    }
                },
                Some(Err(problem)) => tracing::warn!(problem, hub = self.hub.host, "the controllers can't be reached"),
                None => return,
            }
            let _or_to_end = end.run_until_cancelled(tokio::time::sleep(pause)).await;
            pause = pause.saturating_mul(2).min(LATE);
        }
    }

    /// Connects to the controllers, and returns the connection and the token. Both files are read each time, since both are renewed.
    async fn connect(&self) -> Result<(TlsStream<TcpStream>, String), String> {
        let (authority, token) = (self.hub_authority.clone(), self.hub_token.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let token = read_token(&token).map_err(|error| format!("{}: {error}", token.display()))?;
            Ok::<_, String>((read_authorities(&authority)?, token))
        });
        let (roots, token) = reading.await.map_err(|error| error.to_string())??;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(self.hub.host.clone()).map_err(|error| error.to_string())?;
        let opening = async {
            let stream = TcpStream::connect((self.hub.host.as_str(), self.hub.port)).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(Arc::new(config)).connect(name, stream).await
        };
        let opened = tokio::time::timeout(CONNECTING, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        Ok((opened.map_err(|error| error.to_string())?, token))
    }
}

fn read_token(path: &Path) -> std::io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

fn read_authorities(path: &Path) -> Result<RootCertStore, String> {
    let refuse = |problem: &str| format!("{}: {problem}", path.display());
    let text = std::fs::read(path).map_err(|error| refuse(&error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| refuse("it is no PEM"))?;
        roots
            .add(certificate)
            .map_err(|_| refuse("it holds something that is not a certificate"))?;
    }
    match roots.is_empty() {
        true => Err(refuse("there is no certificate in it")),
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_are_a_host_and_a_port() {
        let hub = |host: &str, port| {
            Ok(Hub {
                host: host.to_owned(),
                port,
            })
        };
        assert_eq!(
            parse_hub("tenure-lanes.tenure-system.svc:9643"),
            hub("tenure-lanes.tenure-system.svc", 9643)
        );
        assert_eq!(parse_hub("127.0.0.1:1"), hub("127.0.0.1", 1));
        assert_eq!(parse_hub("[::1]:1"), hub("::1", 1));
        for text in ["host", "host:", ":1", "https://host:1", "host:65536", ""] {
            assert!(parse_hub(text).is_err(), "{text}");
        }
    }

    #[test]
    fn missing_or_invalid_authority_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.crt");
        assert!(read_authorities(&path).is_err());
        for text in [
            "",
            "sesame",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&path, text).expect("write");
            let problem = read_authorities(&path).expect_err("nobody");
            assert!(!problem.contains("sesame"), "{problem}");
        }
    }
}
