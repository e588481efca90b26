//! Artifacts for commands that show file and line: from a folder of this machine, or from the artifact server that the kubeconfig names. The server answers a caller that
//! may `get` the source.
//!
//! The server gets the kubeconfig's token or client certificate. So nothing that others write decides about its address (`artifact_extension`), a redirect is not
//! followed, and no error contains a credential. The archive is untrusted: its size is bounded, and its digest is verified before it is unpacked.

use std::error::Error as StdError;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tenure_api::{Kustomization, ObjectMeta, ObjectView};
use tenure_controllers::{RebuiltObjects, build_applied, check_applied, render_applied};
use tenure_planner::artifact_address::{ArtifactAddress, ArtifactBase};
use tenure_sources::{Limits, StorageError, Tree, read_archive};

use crate::acting_account::describe_impersonation;
use crate::artifact_extension::{self, ArtifactExtension, check_transport};
use crate::connect::Connect;
use crate::connection_failure::ConnectionFailure;
use crate::failure::Failure;

/// The longest download without --request-timeout.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(300);

/// Flags of commands that show file and line.
#[derive(Clone, Debug, Args)]
pub(crate) struct ArtifactFlags {
    /// Folder with the fetched artifacts [default: `artifacts` beside the kubeconfig, where `tenure up` stores them].
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// Server with the artifacts, if there is no folder [default: the cluster's extension `tenure.dev/artifacts` in the kubeconfig].
    ///
    /// The command shows this server the token or the certificate of the kubeconfig. The address is an https or a loopback address.
    #[arg(long, value_name = "URL", conflicts_with = "artifacts")]
    artifact_server: Option<ArtifactBase>,
    /// CA certificates of the server with the artifacts, in PEM [default: those of the extension or, with --artifact-server, of the cluster].
    #[arg(long, value_name = "FILE", conflicts_with = "artifacts")]
    artifact_ca: Option<PathBuf>,
}

/// The folder or server from which a command reads artifacts.
pub(crate) enum ArtifactAccess {
    /// A folder of this machine.
    Folder(PathBuf),
    /// The artifact server.
    Server(Box<ArtifactClient>),
    /// The command has neither a folder nor a server, for this reason.
    Missing(String),
}

impl ArtifactFlags {
    /// Finds the folder or the server with the artifacts. A folder needs no network, so a folder comes before the server of the kubeconfig. A missing server is no
    /// failure, since commands have more to show than file and line.
    pub(crate) async fn open(&self, connect: &Connect) -> Result<ArtifactAccess, Failure> {
        if let Some(folder) = &self.artifacts {
            return Ok(ArtifactAccess::Folder(folder.clone()));
        }
        let named = match &self.artifact_server {
            Some(server) => {
                check_transport(server).map_err(|why| Failure::usage(format!("--artifact-server {why}")))?;
                Ok(ArtifactExtension {
                    server: server.clone(),
                    authority: None,
                })
            }
            None => {
                let beside = connect.folder().map(|folder| folder.join("artifacts"));
                if let Some(folder) = beside.filter(|folder| folder.is_dir()) {
                    return Ok(ArtifactAccess::Folder(folder));
                }
                find_named(connect)
            }
        };
        let authority = self.artifact_ca.as_deref().map(read_authority).transpose()?;
        let opened = match named {
            Err(why) => Err(why),
            Ok(mut named) => {
                named.authority = authority.or(named.authority);
                ArtifactClient::open(connect.read_config().await?, named)
            }
        };
        Ok(match opened {
            Ok(client) => ArtifactAccess::Server(Box::new(client)),
            Err(why) => ArtifactAccess::Missing(why),
        })
    }
}

/// Finds the server that the kubeconfig names.
fn find_named(connect: &Connect) -> Result<ArtifactExtension, String> {
    let cluster = connect.find_cluster().map_err(|failure| failure.message)?;
    let named = cluster.as_ref().map(ArtifactExtension::find).transpose()?.flatten();
    named.ok_or_else(|| {
        format!(
            "the kubeconfig names no artifact server (extension {}): ask an administrator for one, or name a server with --artifact-server URL or a folder with --artifacts DIR",
            artifact_extension::NAME
        )
    })
}

fn read_authority(file: &Path) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, Failure> {
    let fail = |problem: &str| Failure::usage(format!("--artifact-ca {}: {problem}", file.display()));
    let pem = std::fs::read(file).map_err(|error| fail(&error.to_string()))?;
    artifact_extension::read_certificates(&pem).ok_or_else(|| fail("the file has no certificates in PEM"))
}

impl ArtifactAccess {
    /// Returns the objects of a Kustomization as it applied them from its source, or the reason why they are unknown.
    pub(crate) async fn rebuild(&self, kustomization: &Value, source: &Value) -> Result<RebuiltObjects, String> {
        let kustomization: Kustomization =
            serde_json::from_value(kustomization.clone()).map_err(|error| error.to_string())?;
        match self {
            Self::Missing(why) => Err(why.clone()),
            Self::Folder(folder) if !folder.is_dir() => Err(format!(
                "{} holds no artifacts; name the folder with --artifacts DIR",
                folder.display()
            )),
            Self::Folder(folder) => {
                let metadata = source.get("metadata").cloned().unwrap_or_default();
                let metadata: ObjectMeta = serde_json::from_value(metadata).map_err(|error| error.to_string())?;
                build_applied(folder, (&kustomization, &metadata)).map_err(|error| error.to_string())
            }
            Self::Server(client) => {
                let address = find_address(&kustomization, source)?;
                let tree = client.load(&address).await?;
                render_applied(&kustomization, &tree).map_err(|error| error.to_string())
            }
        }
    }
}

/// Returns the address of the artifact that a Kustomization applied. The status of the source gives the digest, and never the server.
fn find_address(kustomization: &Kustomization, source: &Value) -> Result<ArtifactAddress, String> {
    let view = ObjectView::new(source);
    let kind = kustomization.spec.source_ref.kind.as_str();
    let (namespace, name) = (view.read_text("/metadata/namespace"), view.read_text("/metadata/name"));
    let missing = || format!("{kind} {namespace}/{name} has no artifact");
    let digest = view.find_text("/status/artifact/digest").ok_or_else(missing)?;
    check_applied(kustomization, view.read_text("/status/artifact/revision")).map_err(|error| error.to_string())?;
    ArtifactAddress::new(kind, (namespace, name), digest)
        .ok_or_else(|| format!("the status of {kind} {namespace}/{name} names no artifact with a sha256 digest"))
}

/// A client of the artifact server, with the credentials of the kubeconfig.
pub(crate) struct ArtifactClient {
    client: kube::Client,
    server: ArtifactBase,
    timeout: Duration,
    limits: Limits,
    /// The last artifact: several Kustomizations of one source follow each other.
    last: Mutex<Option<(ArtifactAddress, Arc<Tree>)>>,
}

impl ArtifactClient {
    /// Makes a client from the configuration of the cluster.
    fn open(mut config: kube::Config, named: ArtifactExtension) -> Result<Self, String> {
        let ArtifactExtension { server, authority } = named;
        check_transport(&server)?;
        // The artifact server would answer the user behind the kubeconfig, since the server ignores impersonation.
        if let Some(user) = describe_impersonation(&config) {
            return Err(format!(
                "the requests impersonate {user}, and the artifact server {server} knows no impersonation"
            ));
        }
        let unusable =
            || format!("the credentials of the kubeconfig, or the CA certificates, can't be used at {server}");
        config.cluster_url = server.to_string().parse().map_err(|_| unusable())?;
        // These settings of the kubeconfig must not reach the artifact server.
        config.tls_server_name = None;
        config.accept_invalid_certs = false;
        config.auth_info.username = None;
        config.auth_info.password = None;
        config.default_retry = false;
        if config.cluster_url.scheme_str() != Some("https") {
            // Without TLS, a proxy would see the token.
            config.proxy_url = None;
        }
        if let Some(authority) = authority {
            config.root_cert = Some(authority.iter().map(|certificate| certificate.to_vec()).collect());
        }
        let timeout = config.read_timeout.take().unwrap_or(LONGEST_DOWNLOAD);
        // The error can quote the output of a credential plugin.
        let client = kube::Client::try_from(config).map_err(|_| unusable())?;
        Ok(Self {
            client,
            server,
            timeout,
            limits: Limits::default(),
            last: Mutex::default(),
        })
    }

    /// Returns the files of an artifact.
    async fn load(&self, address: &ArtifactAddress) -> Result<Arc<Tree>, String> {
        let last = self.last.lock().clone();
        if let Some((_, tree)) = last.filter(|(last, _)| last == address) {
            return Ok(tree);
        }
        let archive = tokio::time::timeout(self.timeout, self.download(address)).await;
        let archive = archive.map_err(|_| format!("{} did not answer in time", self.server))??;
        let tree = read_archive(&archive, &address.digest, &self.limits).map_err(|error| match error {
            StorageError::DigestMismatch { expected, found } => {
                format!("{} sent an artifact with digest {found}, not {expected}", self.server)
            }
            other => other.to_string(),
        })?;
        let tree = Arc::new(tree);
        *self.last.lock() = Some((address.clone(), Arc::clone(&tree)));
        Ok(tree)
    }

    /// Downloads an archive into a file without a name, which the system removes.
    async fn download(&self, address: &ArtifactAddress) -> Result<File, String> {
        let request = Request::get(address.to_string()).body(Body::empty());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.send(request).await;
        let (head, mut body) = answer.map_err(|error| self.explain(error))?.into_parts();
        if head.status != StatusCode::OK {
            return Err(self.describe_refusal(head.status, address));
        }
        let fail = |error: std::io::Error| format!("a temporary file can't be written: {error}");
        let mut file = tempfile::tempfile().map_err(fail)?;
        // An archive is compressed, so the limit for its unpacked content also bounds the download.
        let mut left = self.limits.unpacked_bytes;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.explain(error))?;
            let Ok(piece) = frame.into_data() else { continue };
            left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
                let limit = self.limits.unpacked_bytes;
                format!("{} sent more than {limit} bytes for one artifact", self.server)
            })?;
            file.write_all(&piece).map_err(fail)?;
        }
        Ok(file)
    }

    /// Explains a request without an answer.
    fn explain(&self, error: kube::Error) -> String {
        let server = &self.server;
        // The error can quote the output of a credential plugin.
        if is_of_credentials(&error) {
            return format!("the credentials of the kubeconfig can't be used at {server}");
        }
        ConnectionFailure::new(&server.to_string(), error.into()).to_string()
    }

    /// Explains an answer without an artifact. The text of the answer is not printed, since a server could repeat the token in it.
    fn describe_refusal(&self, status: StatusCode, address: &ArtifactAddress) -> String {
        let server = &self.server;
        let ArtifactAddress {
            kind, namespace, name, ..
        } = address;
        let source = format!("{kind} {namespace}/{name}");
        match status.as_u16() {
            401 => format!(
                "the artifact server {server} accepts no credential of the kubeconfig (401): it wants a token of this cluster or, with https, a certificate of an authority that it knows"
            ),
            403 => format!(
                "you may not get the artifact of {source} at {server} (403): that takes the right to get the {kind}"
            ),
            404 => format!(
                "the artifact server {server} has this artifact of {source} no longer, or is another cluster's (404): ask again after the next fetch"
            ),
            429 | 503 => format!(
                "the artifact server {server} is busy, or not ready ({}): ask again later",
                status.as_u16()
            ),
            300..=399 => format!(
                "the artifact server {server} redirects to another address ({}), and no credential is sent there",
                status.as_u16()
            ),
            other => format!("the artifact server {server} answered {other}"),
        }
    }
}

/// Whether a request failed because of the kubeconfig's credentials.
fn is_of_credentials(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<kube::client::AuthError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
