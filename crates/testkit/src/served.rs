//! An embedded control plane that listens on a loopback address, for whoever reaches it by a kubeconfig. It knows nothing of Tenure.

use std::net::SocketAddr;

use tenure_apiserver::{Config, Server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::admin::Admin;
use crate::trusting::TrustingFront;

/// Another cluster. It ends when it is dropped.
pub struct ServedCluster {
    /// Its administrator.
    pub admin: Admin,
    server: Server,
    address: SocketAddr,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl ServedCluster {
    /// Starts one.
    ///
    /// # Errors
    /// Whatever keeps it from starting.
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

    /// Its address, as policies name it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> String {
        self.server.ca_pem().to_owned()
    }

    /// Another way in, on this listener, for who bears a token of the issuer's cluster that is meant for this audience.
    ///
    /// # Errors
    /// Whatever keeps it from listening.
    pub fn trust(
        &self,
        issuer: &Admin,
        audience: &str,
        listener: std::net::TcpListener,
    ) -> anyhow::Result<TrustingFront> {
        TrustingFront::start(self.server.admin_service(), issuer.clone(), audience, listener)
    }

    /// The kubeconfig of its administrator.
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
