//! The progress of the watches of Tenants and namespaces, as two revisions. The first is the last seen change, recorded before the change counts
//! here. The second is the revision up to which everything is known, recorded after.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_cluster::WatchEvent;
use tenure_planner::sharding::Progress;

use crate::cluster_view::cache::parse_revision;

/// The kinds that decide whose an object is.
const KINDS: [&str; 2] = ["Tenant", "Namespace"];

/// The progress of the watches of Tenants and of namespaces, in the order of `KINDS`.
#[derive(Debug, Default)]
pub(crate) struct WatchProgress {
    /// The revisions of the last seen changes.
    changed: [AtomicU64; 2],
    /// The revisions up to which everything was handled.
    known: [AtomicU64; 2],
    /// Whether a list is being delivered.
    listing: [AtomicBool; 2],
}

impl WatchProgress {
    /// Records the progress of a watch event around its handling by `go_on`.
    pub(crate) fn track_event(&self, kind: &str, event: WatchEvent, go_on: impl FnOnce(WatchEvent)) {
        let Some(at) = KINDS.iter().position(|known| *known == kind) else {
            go_on(event);
            return;
        };
        let (is_change, revision) = match &event {
            WatchEvent::Changed(object) => (true, parse_revision(&object.revision)),
            WatchEvent::Deleted { revision, .. } => (true, parse_revision(revision)),
            WatchEvent::Synced { revision } | WatchEvent::Progress { revision } => (false, parse_revision(revision)),
            WatchEvent::Listing | WatchEvent::Resumed | WatchEvent::Failed(_) => (false, 0),
        };
        match &event {
            WatchEvent::Listing => self.set_listing(at, true),
            WatchEvent::Synced { .. } => self.set_listing(at, false),
            _ => {}
        }
        if is_change {
            raise_counter(&self.changed, at, revision);
        }
        go_on(event);
        // A list has no order: only its end says that everything was delivered.
        if !self.is_listing(at) {
            raise_counter(&self.known, at, revision);
        }
    }

    fn set_listing(&self, at: usize, is_listing: bool) {
        if let Some(listing) = self.listing.get(at) {
            listing.store(is_listing, Ordering::SeqCst);
        }
    }

    fn is_listing(&self, at: usize) -> bool {
        self.listing
            .get(at)
            .is_none_or(|listing| listing.load(Ordering::SeqCst))
    }

    fn read(&self, of: &[AtomicU64; 2], at: usize) -> u64 {
        of.get(at).map_or(0, |number| number.load(Ordering::SeqCst))
    }

    /// Returns the revision of the last seen change.
    pub(crate) fn last_change(&self) -> Progress {
        self.write(&self.changed)
    }

    /// Returns the revision up to which everything is known.
    pub(crate) fn known(&self) -> Progress {
        self.write(&self.known)
    }

    fn write(&self, of: &[AtomicU64; 2]) -> Progress {
        Progress {
            tenants: self.read(of, 0),
            namespaces: self.read(of, 1),
        }
    }
}

fn raise_counter(of: &[AtomicU64; 2], at: usize, revision: u64) {
    if let Some(number) = of.get(at) {
        number.fetch_max(revision, Ordering::SeqCst);
    }
}
