//! Selects the cluster, and finds its kubeconfig. The module never writes a kubeconfig.

use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::client::open_client;
use crate::failure::{Failure, chain};
use crate::in_cluster_config;

/// Flags of every command that connects to a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connect {
    /// Kubeconfig to use [default: $KUBECONFIG, else ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

/// Flags of every command about objects in namespaces.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scope {
    /// Namespace of the objects [default: the context's namespace, else `default`].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl Scope {
    /// Returns the selected namespace; `None` for all namespaces.
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
    /// Reads the flags from an incomplete command line.
    pub(crate) fn of_words(words: &[String]) -> Self {
        let value = |flag: &str| {
            let index = words.iter().position(|word| word == flag)?;
            words.get(index + 1).cloned()
        };
        Self {
            kubeconfig: value("--kubeconfig").map(PathBuf::from),
            context: value("--context"),
        }
    }

    /// Returns the folder of the current kubeconfig; `tenure up` stores its artifacts beside the kubeconfig.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let (_, file) = self.read().ok()?;
        file?.parent().map(PathBuf::from)
    }

    /// Returns a client for the selected cluster.
    pub(crate) async fn client(&self) -> Result<kube::Client, Failure> {
        Ok(open_client(self.read_config().await?)?)
    }

    /// Returns the configuration of the cluster that the flags or $KUBECONFIG name; else, in a Pod, that of the Pod's cluster, as its ServiceAccount.
    pub(crate) async fn read_config_of_cluster(&self) -> Result<kube::Config, Failure> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let named = self.kubeconfig.is_some() || self.context.is_some() || is_set("KUBECONFIG");
        if named || !is_set("KUBERNETES_SERVICE_HOST") {
            return self.read_config().await;
        }
        let read = |name| std::env::var(name).unwrap_or_default();
        let (host, port) = (read("KUBERNETES_SERVICE_HOST"), read("KUBERNETES_SERVICE_PORT"));
        in_cluster_config::read_config(std::path::Path::new(in_cluster_config::MOUNTED), &host, &port).await
    }

    /// Returns the configuration of the kubeconfig's cluster.
    async fn read_config(&self) -> Result<kube::Config, Failure> {
        let (kubeconfig, _) = self.read()?;
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| Failure::usage(format!("the kubeconfig can't be used: {}", chain(&error))))
    }

    /// Returns the kubeconfig, and the file that has the current context.
    fn read(&self) -> Result<(Kubeconfig, Option<PathBuf>), Failure> {
        if let Some(path) = &self.kubeconfig {
            return Ok((read_file(path)?, Some(path.clone())));
        }
        let files = match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
            Some(value) => std::env::split_paths(&value)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            None => home()
                .into_iter()
                .map(|home| home.join(".kube/config"))
                .collect::<Vec<_>>(),
        };
        merge(&files, self.context.as_deref())
    }
}

/// Merges several kubeconfigs as kubectl does. The first definition counts for each cluster, user and context, and for the current context. Missing files are skipped,
/// as long as one exists.
fn merge(files: &[PathBuf], context: Option<&str>) -> Result<(Kubeconfig, Option<PathBuf>), Failure> {
    let mut merged: Option<Kubeconfig> = None;
    let mut read = Vec::new();
    for path in files.iter().filter(|path| path.exists()) {
        let mut file = read_file(path)?;
        file.current_context = file.current_context.filter(|context| !context.is_empty());
        read.push((path, file.clone()));
        merged = Some(match merged {
            None => file,
            Some(before) => before.merge(file).map_err(|error| {
                Failure::usage(format!("{}: {}", path.display(), chain(&error)))
                    .hint("$KUBECONFIG names several files, which don't go together")
            })?,
        });
    }
    let Some(merged) = merged else {
        let named: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        return Err(
            Failure::usage(format!("no kubeconfig: there is no {}", named.join(", no ")))
                .hint("name one with --kubeconfig FILE or $KUBECONFIG; `tenure up --data DIR` writes DIR/kubeconfig"),
        );
    };
    let used = context.or(merged.current_context.as_deref());
    let has_it = |file: &Kubeconfig| file.contexts.iter().any(|context| Some(context.name.as_str()) == used);
    let from = read
        .iter()
        .find(|(_, file)| has_it(file))
        .map(|(path, _)| (*path).clone());
    Ok((merged, from))
}

fn read_file(path: &std::path::Path) -> Result<Kubeconfig, Failure> {
    Kubeconfig::read_from(path).map_err(|error| {
        Failure::usage(format!("{}: {}", path.display(), chain(&error)))
            .hint("`tenure up --data DIR` writes DIR/kubeconfig")
    })
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(current: &str, contexts: &[&str]) -> String {
        let contexts: String = contexts
            .iter()
            .map(|name| format!("- name: {name}\n  context: {{cluster: {name}, user: {name}}}\n"))
            .collect();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: \"{current}\"\ncontexts:\n{contexts}clusters: []\nusers: []\n"
        )
    }

    #[test]
    fn several_files_are_read_as_kubectl_reads_them() {
        let folder = tempfile::tempdir().expect("folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("write");
            path
        };
        let a = file("a", &kubeconfig("", &["one"]));
        let b = file("b", &kubeconfig("two", &["one", "two"]));
        let missing = folder.path().join("missing");
        let (merged, from) = merge(&[missing.clone(), a.clone(), b.clone()], None).expect("merged");
        assert_eq!(merged.current_context.as_deref(), Some("two"));
        assert_eq!(merged.contexts.len(), 2);
        assert_eq!(from, Some(b.clone()));
        let (_, from) = merge(&[a.clone(), b], Some("one")).expect("merged");
        assert_eq!(from, Some(a));
        let failure = merge(&[missing], None).expect_err("no file");
        assert!(failure.message.contains("missing") && failure.hint.is_some());
    }
}
