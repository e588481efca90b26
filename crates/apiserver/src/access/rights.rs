//! The RBAC index over the store, never behind it: it catches up whenever it is asked.

use parking_lot::RwLock;
use tenure_store::{Event, EventKind, Store};

use crate::authentication::UserInfo;
use crate::authorization::{Attributes, Authorizer, Decision, Rbac, RbacKind};
use crate::registry::decode_stored;

const PREFIX: &str = "/rbac.authorization.k8s.io/";

/// Roles and bindings as of the store's present revision.
#[derive(Debug)]
pub(crate) struct Rights {
    store: Store,
    index: RwLock<Index>,
}

#[derive(Debug, Default)]
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
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&Rbac) -> T) -> T {
        let revision = self.store.revision();
        {
            let index = self.index.read();
            if index.revision >= revision {
                return ask(&index.rbac);
            }
        }
        let mut index = self.index.write();
        if index.revision < revision {
            index.catch_up(&self.store);
        }
        ask(&index.rbac)
    }
}

impl Index {
    fn catch_up(&mut self, store: &Store) {
        if self.revision > 0
            && let Ok((position, events)) = store.events_after(PREFIX, self.revision, usize::MAX)
        {
            for event in events {
                self.take(&event);
            }
            self.revision = position;
            return;
        }
        let snapshot = store.snapshot();
        self.rbac = Rbac::default();
        for (key, entry) in snapshot.range(PREFIX, None) {
            if let (Some((kind, _, _)), Ok(object)) = (parse(key), decode_stored(entry)) {
                self.rbac.apply(kind, &object);
            }
        }
        self.revision = snapshot.revision();
    }

    fn take(&mut self, event: &Event) {
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

/// Kind, namespace and name in a key of the store.
fn parse(key: &str) -> Option<(RbacKind, &str, &str)> {
    let mut parts = key.strip_prefix(PREFIX)?.split('/');
    let kind = RbacKind::of_resource(parts.next()?)?;
    match (parts.next(), parts.next()) {
        (Some(namespace), Some(name)) => Some((kind, namespace, name)),
        (Some(name), None) => Some((kind, "", name)),
        _ => None,
    }
}

impl Authorizer for Rights {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.with(|rbac| rbac.authorize(user, attributes))
    }
}
