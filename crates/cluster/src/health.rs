//! Whether the controllers can work: the API server accepts their credentials, and they can watch the objects that they reconcile.
//!
//! The state of the objects doesn't count: a failing Kustomization is no fault of the controllers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the controllers can work: the API server accepts their credentials, and all their kinds can be watched. Cheap to clone;
/// all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct ControllerHealth(Arc<Facts>);

/// The known obstacles to the controllers' work.
#[derive(Debug, Default)]
struct Facts {
    /// Whether the controller's credentials were refused.
    refused: AtomicBool,
    /// The kinds that can't be watched.
    unseen: Mutex<BTreeSet<String>>,
}

impl ControllerHealth {
    /// Whether no obstacle to the controllers' work is known.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.0.refused.load(Ordering::Relaxed) && self.unseen().is_empty()
    }

    fn unseen(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records whether the API server accepts the controller's credentials.
    pub(crate) fn set_accepted(&self, accepted: bool) {
        let refused = !accepted;
        if self.0.refused.swap(refused, Ordering::Relaxed) != refused {
            if accepted {
                tracing::warn!("the controller's credentials are accepted again");
            } else {
                tracing::error!(
                    "the API server accepts none of the controller's credentials: nothing is reconciled until then"
                );
            }
        }
    }

    /// Records whether the objects of a kind can be watched. While they can't, their changes are not reconciled.
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
    fn health_is_good_when_every_part_is_good() {
        let health = ControllerHealth::default();
        let reporter = health.clone();
        assert!(health.is_good());
        reporter.set_accepted(false);
        reporter.set_seen("Tenant", false);
        reporter.set_seen("Tenant", false);
        assert!(!health.is_good());
        reporter.set_accepted(true);
        assert!(!health.is_good());
        reporter.set_seen("Kustomization", true);
        assert!(!health.is_good());
        reporter.set_seen("Tenant", true);
        assert!(health.is_good());
    }
}
