//! Whether the controllers can do their work, as far as they know: the API server accepts what they authenticate with, and they see the
//! objects that they reconcile. Refuses to judge the objects themselves: a Kustomization that fails is nothing that ails the controllers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the controllers can do their work. Cheap to clone; all clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct ControllerHealth(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    /// The controller's credentials were refused.
    refused: AtomicBool,
    /// The kinds that can't be watched.
    unseen: Mutex<BTreeSet<String>>,
}

impl ControllerHealth {
    /// Whether nothing is known to keep them from their work.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.0.refused.load(Ordering::Relaxed) && self.unseen().is_empty()
    }

    fn unseen(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes whether the API server accepts the controller's credentials.
    pub(crate) fn set_accepted(&self, accepted: bool) {
        let refused = !accepted;
        if self.0.refused.swap(refused, Ordering::Relaxed) != refused {
            if accepted {
                tracing::warn!("the controller's credentials are accepted again");
            } else {
                tracing::error!(
                    "the controller has no credentials that are accepted: nothing is reconciled until it has"
                );
            }
        }
    }

    /// Takes whether the objects of a kind can be seen: while they can't, what changes of them is not reconciled.
    pub fn set_seen(&self, kind: &str, seen: bool) {
        let mut unseen = self.unseen();
        if seen {
            unseen.remove(kind);
        } else {
            unseen.insert(kind.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_good_when_all_is() {
        let health = ControllerHealth::default();
        let told = health.clone();
        assert!(health.is_good());
        told.set_accepted(false);
        told.set_seen("Tenant", false);
        told.set_seen("Tenant", false);
        assert!(!health.is_good());
        told.set_accepted(true);
        assert!(!health.is_good());
        told.set_seen("Kustomization", true);
        assert!(!health.is_good());
        told.set_seen("Tenant", true);
        assert!(health.is_good());
    }
}
