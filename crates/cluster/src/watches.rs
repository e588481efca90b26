//! The watches that are open: one for each identity, kind and namespace, while somebody holds it.
//! Refuses to share a watch between identities: what one tenant may see never passes through another's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use crate::clients::Clients;
use crate::error::ClusterError;
use crate::mapping::Resource;
use crate::watch::{WatchEvent, watch};
use tenure_tenancy::Identity;

/// What is watched, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// Who watches.
    pub identity: Identity,
    /// The resource.
    pub resource: Resource,
    /// The namespace; all of them when absent.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
}

/// What a watch says.
#[derive(Debug)]
pub struct Signal {
    /// Which watch.
    pub key: Arc<WatchKey>,
    /// What it saw.
    pub event: WatchEvent,
}

/// The open watches.
pub struct Watches {
    clients: Clients,
    sink: Arc<dyn Fn(Signal) + Send + Sync>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    tasks: HashMap<WatchKey, Task>,
    held: HashMap<String, HashSet<WatchKey>>,
}

struct Task {
    handle: JoinHandle<()>,
    holders: usize,
}

impl Watches {
    /// No watches yet; `sink` is called with everything that they will see and must return quickly.
    pub fn new(clients: Clients, sink: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Self {
            clients,
            sink: Arc::new(sink),
            open: Mutex::new(Open::default()),
        }
    }

    /// Sets what a holder wants watched: opens what is new, and closes what nobody holds any more. Must be called inside a tokio
    /// runtime. Resources that can't be watched are left out.
    pub fn hold(&self, holder: &str, wanted: HashSet<WatchKey>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let before = open.held.remove(holder).unwrap_or_default();
        for key in wanted.difference(&before) {
            if let Some(task) = open.tasks.get_mut(key) {
                task.holders += 1;
            } else if key.resource.watchable {
                open.tasks.insert(
                    key.clone(),
                    Task {
                        handle: self.spawn(key),
                        holders: 1,
                    },
                );
            }
        }
        for key in before.difference(&wanted) {
            let unused = open.tasks.get_mut(key).is_some_and(|task| {
                task.holders -= 1;
                task.holders == 0
            });
            if unused && let Some(task) = open.tasks.remove(key) {
                task.handle.abort();
            }
        }
        if !wanted.is_empty() {
            open.held.insert(holder.to_owned(), wanted);
        }
    }

    /// How many watches are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).tasks.len()
    }

    fn spawn(&self, key: &WatchKey) -> JoinHandle<()> {
        let clients = self.clients.clone();
        let sink = Arc::clone(&self.sink);
        let key = Arc::new(key.clone());
        tokio::spawn(async move {
            let client = loop {
                match clients.for_identity(&key.identity).await {
                    Ok(client) => break client,
                    Err(error) => {
                        let missing = matches!(error, ClusterError::IdentityMissing { .. });
                        sink(Signal {
                            key: Arc::clone(&key),
                            event: WatchEvent::Failed(error),
                        });
                        tokio::time::sleep(std::time::Duration::from_secs(if missing { 30 } else { 2 })).await;
                    }
                }
            };
            let event = |event| {
                sink(Signal {
                    key: Arc::clone(&key),
                    event,
                })
            };
            watch(
                &client,
                &key.resource,
                key.namespace.as_deref(),
                key.labels.as_deref(),
                event,
            )
            .await;
        })
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        open.tasks.values().for_each(|task| task.handle.abort());
    }
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Watches")
            .field("open", &self.count())
            .finish_non_exhaustive()
    }
}
