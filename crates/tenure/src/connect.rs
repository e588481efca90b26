//! Which cluster. Owns how a kubeconfig is found; refuses to write one.

use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::failure::{Failure, chain};

/// Flags of every command that talks to a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connect {
    /// The kubeconfig to use; else $KUBECONFIG, else ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; else its current one.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

/// Flags of every command about objects in namespaces.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scope {
    /// The namespace; else the context's, else `default`.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl Scope {
    /// The namespace to look in, or none for all.
    pub(crate) fn namespace(&self, client: &kube::Client) -> Option<String> {
        if self.all_namespaces {
            None
        } else {
            Some(
                self.namespace
                    .clone()
                    .unwrap_or_else(|| client.default_namespace().to_owned()),
            )
        }
    }
}

impl Connect {
    /// The folder of the kubeconfig that is used; `tenure up` keeps what it fetched beside it.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let file = self
            .kubeconfig
            .clone()
            .or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from))?;
        file.parent().map(PathBuf::from)
    }

    /// A client for the cluster that the flags name.
    pub(crate) async fn client(&self) -> Result<kube::Client, Failure> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).map_err(|error| {
                Failure::usage(format!("{}: {}", path.display(), chain(&error)))
                    .hint("`tenure up --data DIR` writes DIR/kubeconfig")
            })?,
            None => Kubeconfig::read().map_err(|error| {
                Failure::usage(format!("no kubeconfig: {}", chain(&error))).hint(
                    "name one with --kubeconfig FILE or $KUBECONFIG; `tenure up --data DIR` writes DIR/kubeconfig",
                )
            })?,
        };
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| Failure::usage(format!("the kubeconfig can't be used: {}", chain(&error))))?;
        Ok(kube::Client::try_from(config)?)
    }
}
