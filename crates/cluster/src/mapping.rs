//! Which resource a kind is: aggregated discovery (KEP-3352), kept until a kind is missed or a path turns out to be gone.
//!
//! Discovery holds nothing of any tenant, so one mapping serves all identities; it is read as the controller.
//! Owns no rule about kinds. A kind that was looked for and not found is not asked for again within two seconds, unless
//! `invalidate` says that something was installed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::ClusterError;
use crate::transport::Call;

/// How long a refreshed mapping is believed when it says that a kind does not exist.
const MISS_BELIEVED: Duration = Duration::from_secs(2);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, as `v1`.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name in paths, as `deployments`.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be watched.
    pub watchable: bool,
}

impl Resource {
    /// `group/version`, or `version` of the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The namespace to address an object with: none for a cluster-scoped kind, whatever the object says.
    #[must_use]
    pub fn scope<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (self.namespaced && !namespace.is_empty()).then_some(namespace)
    }
}

/// The resources of an API server, by group and kind.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    table: Mutex<Arc<Table>>,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    /// Every version of a kind in the server's order of preference.
    kinds: HashMap<(String, String), Vec<Resource>>,
    read: Option<Instant>,
}

impl Mapping {
    /// The resource of a kind in exactly this version, or, without one, in the version that the server prefers.
    pub(crate) fn find(&self, group: &str, version: Option<&str>, kind: &str) -> Option<Resource> {
        self.known().find(group, version, kind)
    }

    /// Held while discovery is read, so that those who miss a kind at the same time read it once.
    pub(crate) async fn refreshing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.refreshing.lock().await
    }

    /// Whether what is known was read since then, or so lately that a miss is believed.
    pub(crate) fn fresh(&self, since: Instant) -> bool {
        let read = self.known().read;
        read.is_some_and(|read| read >= since || read.elapsed() < MISS_BELIEVED)
    }

    /// The requests whose answers [`Mapping::replace`] takes.
    pub(crate) fn calls() -> [Call; 2] {
        ["/api", "/apis"].map(|path| Call {
            accept: AGGREGATED,
            ..Call::get(path.to_owned())
        })
    }

    /// Takes what discovery answered; it was asked at `read`.
    pub(crate) fn replace(&self, documents: &[Value], read: Instant) -> Result<(), ClusterError> {
        let mut kinds = HashMap::new();
        for document in documents {
            let Some(groups) = document.get("items").and_then(Value::as_array) else {
                return Err(ClusterError::Decode {
                    what: "discovery".to_owned(),
                    problem: "it is not an APIGroupDiscoveryList; Kubernetes 1.30 or newer is needed".to_owned(),
                });
            };
            groups.iter().for_each(|group| add_group(&mut kinds, group));
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(Table {
            kinds,
            read: Some(read),
        });
        Ok(())
    }

    /// Makes the next miss ask the server again: something was installed or removed.
    pub(crate) fn invalidate(&self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(Table {
            kinds: table.kinds.clone(),
            read: None,
        });
    }

    /// Forgets one resource whose path is gone.
    pub(crate) fn forget(&self, resource: &Resource) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = table.kinds.clone();
        kinds.remove(&(resource.group.clone(), resource.kind.clone()));
        *table = Arc::new(Table { kinds, read: None });
    }

    fn known(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn find(&self, group: &str, version: Option<&str>, kind: &str) -> Option<Resource> {
        let versions = self.kinds.get(&(group.to_owned(), kind.to_owned()))?;
        versions
            .iter()
            .find(|resource| version.is_none_or(|version| resource.version == version))
            .cloned()
    }
}

fn add_group(kinds: &mut HashMap<(String, String), Vec<Resource>>, group: &Value) {
    let name = text(group, "/metadata/name");
    for version in items(group, "versions") {
        for resource in items(version, "resources") {
            // A resource can answer with a kind of another group (Scale); as a top-level resource none does.
            let kind = text(resource, "/responseKind/kind");
            let plural = text(resource, "/resource");
            if kind.is_empty() || plural.is_empty() {
                continue;
            }
            let verb = |verb: &str| {
                items(resource, "verbs")
                    .iter()
                    .any(|known| known.as_str() == Some(verb))
            };
            kinds.entry((name.clone(), kind.clone())).or_default().push(Resource {
                group: name.clone(),
                version: text(version, "/version"),
                kind,
                plural,
                namespaced: text(resource, "/scope") == "Namespaced",
                watchable: verb("watch") && verb("list"),
            });
        }
    }
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
