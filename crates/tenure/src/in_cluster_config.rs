//! The configuration of the cluster in which a Pod runs, as its ServiceAccount. Incomplete files are an error. The token and the authority are read again while the
//! process runs: a kubelet renews the token, and an authority can change.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::failure::{Failure, write_chain};

/// The folder where a kubelet mounts the files.
pub(crate) const MOUNTED: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the configuration for the API server at `host` and `port`, with the files in `folder`.
pub(crate) async fn read_config(folder: &Path, host: &str, port: &str) -> Result<kube::Config, Failure> {
    let refuse =
        |problem: String| Failure::environment(format!("the ServiceAccount of this Pod can't be used: {problem}"));
    let (token, authority) = (folder.join("token"), folder.join("ca.crt"));
    for file in [&token, &authority] {
        let content = std::fs::read(file).map_err(|error| {
            refuse(format!("{}: {error}", file.display()))
                .hint("set automountServiceAccountToken: true, or name a kubeconfig")
        })?;
        if content.trim_ascii().is_empty() {
            return Err(refuse(format!("{} is empty", file.display())));
        }
    }
    let number: u16 = port
        .parse()
        .map_err(|_| refuse(format!("KUBERNETES_SERVICE_PORT={port:?} is not a port")))?;
    let server = match host.parse::<IpAddr>() {
        Ok(address) => format!("https://{}", SocketAddr::new(address, number)),
        Err(_) => format!("https://{host}:{number}"),
    };
    let name = "pod";
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": name, "user": {"tokenFile": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}]
    });
    let kubeconfig: Kubeconfig =
        serde_json::from_value(kubeconfig).map_err(|error| Failure::internal(error.to_string()))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| refuse(write_chain(&error)))?;
    config.root_cert_file = Some(authority);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate without a known private key.
    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    async fn check(files: &[(&str, &str)], host: &str, port: &str) -> Result<kube::Config, String> {
        let folder = tempfile::tempdir().expect("folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("write");
        }
        read_config(folder.path(), host, port)
            .await
            .map_err(|failure| failure.message)
    }

    #[tokio::test]
    async fn a_pod_finds_its_cluster() {
        let whole = [("token", "secret"), ("ca.crt", AUTHORITY)];
        for (host, port, url) in [
            ("10.96.0.1", "443", "https://10.96.0.1:443/"),
            ("fd00::1", "6443", "https://[fd00::1]:6443/"),
            ("kubernetes.example", "443", "https://kubernetes.example:443/"),
        ] {
            let config = check(&whole, host, port).await.expect("a config");
            assert_eq!(config.cluster_url.to_string(), url);
            assert!(config.auth_info.token.is_none() && config.auth_info.token_file.is_some());
            assert!(config.root_cert_file.is_some() && config.root_cert.is_some());
        }
        for (files, port, problem) in [
            (&whole[..1], "443", "ca.crt"),
            (&whole[1..], "443", "token"),
            (&[("token", " \n"), ("ca.crt", AUTHORITY)][..], "443", "is empty"),
            (&whole[..], "https", "is not a port"),
        ] {
            let message = check(files, "10.96.0.1", port).await.expect_err("half of it");
            assert!(message.contains(problem), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
