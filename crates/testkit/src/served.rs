//! An embedded control plane that listens on a loopback address, for clients with a kubeconfig. The server knows
//! nothing of Tenure.

use std::net::SocketAddr;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use kube::client::Body;
use tenure_apiserver::{Config, Server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::BoxError;

use crate::admin::Admin;
use crate::front::{Answer, Front};
use crate::reduced::Reductions;
use crate::trusting::TrustingFront;

/// An embedded cluster on a loopback address, beside the cluster of a test. Dropping it ends the server.
pub struct ServedCluster {
    /// Its administrator.
    pub admin: Admin,
    server: Server,
    address: SocketAddr,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl ServedCluster {
    /// Starts a cluster.
    ///
    /// # Errors
    /// If the start fails.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = Config {
            workload_status: true,
            ..Config::new(folder.path().join("data"))
        };
        let server = Server::open(config).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn({
            let server = server.clone();
            async move {
                let _ended = server.serve(listener).await;
            }
        });
        Ok(Self {
            admin: Admin::new(kube::Client::new(server.admin_service(), "default")),
            server,
            address,
            serving,
            _folder: folder,
        })
    }

    /// Returns the address in the form that policies use.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate of the server's CA.
    #[must_use]
    pub fn authority(&self) -> String {
        self.server.ca_pem().to_owned()
    }

    /// Opens another front on this listener. It accepts tokens of the issuer's cluster for this audience.
    ///
    /// # Errors
    /// If the listener can't be opened.
    pub fn trust(
        &self,
        issuer: &Admin,
        audience: &str,
        listener: std::net::TcpListener,
    ) -> anyhow::Result<TrustingFront> {
        TrustingFront::start(self.server.admin_service(), issuer.clone(), audience, listener)
    }

    /// Opens a second listener, which leaves out these features.
    ///
    /// # Errors
    /// If the listener can't be opened.
    pub fn reduce(&self, reductions: &Reductions) -> anyhow::Result<ReducedFront> {
        let behind = kube::Client::new(self.server.service(), "default");
        let reductions = reductions.clone();
        let front = Front::start(std::net::TcpListener::bind("127.0.0.1:0")?, move |request| {
            let (reductions, behind) = (reductions.clone(), behind.clone());
            async move { answer_reduced(&reductions, behind, request).await }
        })?;
        Ok(ReducedFront(front))
    }

    /// Returns the kubeconfig of the cluster's administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.server.admin_kubeconfig(self.address)
    }
}

impl Drop for ServedCluster {
    fn drop(&mut self) {
        self.server.shutdown();
        self.serving.abort();
    }
}

/// A second listener of a cluster, which leaves out the features in [`Reductions`]. Dropping it closes the listener.
pub struct ReducedFront(Front);

impl ReducedFront {
    /// Returns the address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// Returns the certificate of the front's CA, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.0.authority
    }
}

async fn answer_reduced(reductions: &Reductions, behind: kube::Client, request: Request<Incoming>) -> Answer {
    let passed: Result<Response<Body>, BoxError> = async {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let request = Request::from_parts(head, Body::from(bytes.to_vec()));
        reductions
            .pass(request, move |request| async move { Ok(behind.send(request).await?) })
            .await
    }
    .await;
    match passed {
        Ok(answer) => answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()),
        Err(error) => {
            let body = Full::new(Bytes::from(error.to_string())).map_err(|never| match never {});
            let mut answer = Response::new(body.boxed_unsync());
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}
