//! Serves a data directory on a loopback port: `cargo run -p tenure-apiserver --example serve -- DIR [PORT [workload-status]]`.

use std::path::PathBuf;

use tenure_apiserver::{Config, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("which data directory?")?);
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let mut config = Config::new(&directory);
    config.workload_status = arguments.next().as_deref() == Some("workload-status");
    let server = Server::open(config).await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    server.write_admin_kubeconfig(&directory.join("kubeconfig"), listener.local_addr()?)?;
    let stopping = server.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopping.shutdown();
        }
    });
    server.serve(listener).await?;
    Ok(())
}
