//! The RBAC index over the store. The index is never behind the store, as each query catches up first.
//!
//! No query runs under the index's lock. The time of a query depends on roles that tenants write, and all requests
//! need this lock.

use std::sync::Arc;

use parking_lot::RwLock;
use tenure_auth::authorization::{Attributes, Authorizer, Decision, Rbac, RbacKind};
use tenure_auth::identity::UserInfo;
use tenure_store::{Event, EventKind, Store};

use crate::keys;
use crate::stored::decode_stored;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The RBAC index over the stored roles and bindings. Each query sees every acknowledged write.
#[derive(Debug)]
pub(crate) struct Rights {
    store: Store,
    index: RwLock<Arc<Index>>,
}

/// The RBAC index, and the store's revision up to which it has all writes.
#[derive(Debug, Default, Clone)]
struct Index {
    revision: u64,
    rbac: Rbac,
}

impl Rights {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            index: RwLock::default(),
        }
    }

    /// Calls `ask` with an index that contains every acknowledged write.
    pub(crate) fn with_index<T>(&self, ask: impl FnOnce(&Rbac) -> T) -> T {
        let revision = self.store.revision();
        let present = self.index.read().clone();
        if present.revision >= revision {
            return ask(&present.rbac);
        }
        // A running query keeps its old index. Changes go into a copy, which shares the unchanged parts.
        drop(present);
        let present = {
            let mut index = self.index.write();
            if index.revision < revision {
                Arc::make_mut(&mut index).catch_up(&self.store);
            }
            index.clone()
        };
        ask(&present.rbac)
    }
}

impl Index {
    fn catch_up(&mut self, store: &Store) {
        if self.revision > 0
            && let Ok((position, events)) = store.events_after(&keys::group_prefix(GROUP), self.revision, usize::MAX)
        {
            for event in events {
                self.apply_event(&event);
            }
            self.revision = position;
            return;
        }
        let snapshot = store.snapshot();
        self.rbac = Rbac::default();
        for (key, entry) in snapshot.range(&keys::group_prefix(GROUP), None) {
            if let (Some((kind, _, _)), Ok(object)) = (parse(key), decode_stored(entry)) {
                self.rbac.apply(kind, &object);
            }
        }
        self.revision = snapshot.revision();
    }

    fn apply_event(&mut self, event: &Event) {
        let Some((kind, namespace, name)) = parse(&event.key) else {
            return;
        };
        match event.kind {
            EventKind::Put => {
                if let Ok(object) = decode_stored(&event.entry) {
                    self.rbac.apply(kind, &object);
                }
            }
            EventKind::Delete => self.rbac.remove(kind, namespace, name),
        }
    }
}

/// Returns kind, namespace and name from a key of the store.
fn parse(key: &str) -> Option<(RbacKind, &str, &str)> {
    let parts = keys::read(key).filter(|parts| parts.group == GROUP)?;
    let kind = RbacKind::of_resource(parts.plural)?;
    Some((kind, parts.namespace.unwrap_or_default(), parts.name))
}

impl Authorizer for Rights {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.with_index(|rbac| rbac.authorize(user, attributes))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tenure_store::{Change, Expect, Limits, Payload, Write};

    use super::*;

    #[tokio::test]
    async fn long_rights_query_does_not_block_other_queries() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path(), Limits::default()).expect("a store");
        let rights = Arc::new(Rights::new(store.clone()));
        let (began, asks) = tokio::sync::oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let long = tokio::task::spawn_blocking({
            let rights = rights.clone();
            move || {
                rights.with_index(|_| {
                    began.send(()).expect("somebody listens");
                    released.recv().expect("somebody lets go");
                });
            }
        });
        asks.await.expect("it asks");
        // A concurrent write of a role, so that the next query has to update the index.
        let role = json!({"metadata": {"name": "a", "namespace": "n"}, "rules": [{"verbs": ["get"]}]});
        let written = store
            .write(Write {
                key: "/rbac.authorization.k8s.io/roles/n/a".into(),
                expect: Expect::Absent,
                change: Change::Put(Payload::plain(role.to_string())),
                frees: false,
            })
            .await;
        assert!(written.is_ok());
        let asking = tokio::task::spawn_blocking(move || rights.with_index(|_| ()));
        // The query must not wait for the long query, which ends only after this.
        let answered = tokio::time::timeout(Duration::from_secs(60), asking).await;
        release.send(()).expect("it waits");
        long.await.expect("it ended");
        assert!(answered.is_ok_and(|asked| asked.is_ok()));
    }
}
