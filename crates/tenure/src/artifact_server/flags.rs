//! The flags for serving artifacts. They refuse tokens over an unencrypted network, and an unauthenticated address without an explicit choice.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use tenure_planner::artifact_address::ArtifactBase;

use crate::failure::Failure;
use crate::plain_http::parse_address;

/// Flags of the listeners that serve artifacts to other programs.
#[derive(Clone, Debug, Args)]
#[group(id = "artifacts")]
pub(crate) struct Flags {
    /// Address at which other programs fetch artifacts after they prove their identity. A port alone means every address. Unset: no such listener.
    ///
    /// A client shows a token of this cluster, or a certificate of --artifact-client-ca. The client gets an artifact if its user may `get` the object.
    /// Without --artifact-tls-cert, the address has to be a loopback address.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_address)]
    artifact_address: Option<SocketAddr>,
    /// Certificate that --artifact-address shows, in PEM. A renewed file is read again.
    #[arg(long, value_name = "FILE", requires_all = ["artifact_tls_key", "artifact_address"])]
    artifact_tls_cert: Option<PathBuf>,
    /// Private key of --artifact-tls-cert, in PEM. A renewed file is read again.
    #[arg(long, value_name = "FILE", requires = "artifact_tls_cert")]
    artifact_tls_key: Option<PathBuf>,
    /// CA certificates, in PEM, by which clients prove their identity at --artifact-address.
    ///
    /// The common name of a client's certificate is the user, and its organizations are groups, as with --client-ca-file of an API server.
    #[arg(long, value_name = "FILE", requires = "artifact_tls_cert")]
    artifact_client_ca: Option<PathBuf>,
    /// Address at which other programs fetch artifacts without a proof of identity. A port alone means loopback. Unset: no such listener.
    ///
    /// A client gets an artifact if it reaches the listener and knows the address of the artifact, as with Flux's source-controller. The listener is for
    /// helm-controller, which proves no identity. A NetworkPolicy has to keep all other clients away.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_open_address)]
    artifact_open_address: Option<SocketAddr>,
    /// Base of the addresses that statuses name for artifacts [default: the address of --artifact-open-address, else of --artifact-address].
    ///
    /// The flag is required if each of these listeners is on all addresses of the machine. It is refused if neither listener is on.
    #[arg(long, value_name = "URL")]
    artifact_url: Option<ArtifactBase>,
}

/// The values of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArtifactSettings {
    /// The address with authentication.
    pub(super) proven: Option<SocketAddr>,
    pub(super) tls: Option<TlsFiles>,
    /// The address without authentication.
    pub(super) open: Option<SocketAddr>,
    pub(super) base: Option<ArtifactBase>,
}

/// The paths of a listener's certificate and key, and of the authorities of its clients.
#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_authorities: Option<PathBuf>,
}

/// Reads an address and a port, or a port alone, which means loopback.
fn parse_open_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse() {
        Ok(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Err(_) => parse_address(text),
    }
}

impl Flags {
    /// Reads the values of the flags.
    pub(crate) fn read_settings(&self) -> Result<ArtifactSettings, Failure> {
        let tls = self.artifact_tls_cert.clone().zip(self.artifact_tls_key.clone());
        let tls = tls.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_authorities: self.artifact_client_ca.clone(),
        });
        if let Some(address) = self.artifact_address
            && tls.is_none()
            && !address.ip().is_loopback()
        {
            return Err(Failure::usage(format!(
                "--artifact-address {address}: tokens would come in over a network in the clear"
            ))
            .hint("give it a certificate with --artifact-tls-cert and --artifact-tls-key, or a loopback address"));
        }
        if self.artifact_url.is_some() && self.artifact_address.is_none() && self.artifact_open_address.is_none() {
            return Err(Failure::usage("--artifact-url: no artifacts are served")
                .hint("say where, with --artifact-address or --artifact-open-address"));
        }
        Ok(ArtifactSettings {
            proven: self.artifact_address,
            tls,
            open: self.artifact_open_address,
            base: self.artifact_url.clone(),
        })
    }
}

impl ArtifactSettings {
    /// Serves artifacts on this port of loopback without authentication, unless such an address is set.
    pub(crate) fn open_on_loopback(&mut self, port: u16) {
        self.open.get_or_insert(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }

    /// Whether artifacts are served.
    pub(crate) fn is_on(&self) -> bool {
        self.proven.is_some() || self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn read(flags: &[&str]) -> Result<ArtifactSettings, String> {
        let line = std::iter::once("run").chain(flags.iter().copied());
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.flags.read_settings().map_err(|failure| failure.message)
    }

    /// Without a flag nothing is served. Flags that would serve artifacts in the clear to other machines are refused.
    #[test]
    fn artifacts_are_served_only_with_safe_flags() {
        assert!(!read(&[]).expect("settings").is_on());
        let open = read(&["--artifact-open-address", "9090"]).expect("settings").open;
        assert_eq!(open.map(|open| open.to_string()).as_deref(), Some("127.0.0.1:9090"));
        let address = read(&["--artifact-open-address", "[::]:9090"]).expect("settings").open;
        assert_eq!(address.map(|address| address.to_string()).as_deref(), Some("[::]:9090"));
        assert!(
            read(&["--artifact-address", "127.0.0.1:9443"])
                .expect("settings")
                .is_on()
        );
        let tls = ["--artifact-tls-cert=a", "--artifact-tls-key=b"];
        assert!(
            read(&[&["--artifact-address=9443"], &tls[..]].concat())
                .expect("settings")
                .tls
                .is_some()
        );
        for (flags, problem) in [
            (&["--artifact-address=9443"][..], "in the clear"),
            (&["--artifact-address=10.0.0.1:9443"], "in the clear"),
            (&["--artifact-url=http://127.0.0.1:1"], "no artifacts are served"),
            (
                &["--artifact-open-address=9090", "--artifact-url=ftp://host"],
                "no address of artifacts",
            ),
            (
                &["--artifact-address=127.0.0.1:9443", "--artifact-tls-cert=a"],
                "--artifact-tls-key",
            ),
            (&["--artifact-open-address=9090", tls[0], tls[1]], "--artifact-address"),
            (
                &["--artifact-address=127.0.0.1:9443", "--artifact-client-ca=a"],
                "--artifact-tls-cert",
            ),
        ] {
            let refused = read(flags).expect_err("refused");
            assert!(refused.contains(problem), "{flags:?}: {refused}");
        }
    }
}
