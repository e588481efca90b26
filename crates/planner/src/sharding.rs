//! Shards: when an instance of the controllers begins with its new part, and when it has released the part that left it. No two instances act for one tenant at once,
//! however a label is moved and however late an instance learns of the move.
//!
//! The instance follows from Tenants and namespaces alone (`tenure_tenancy::instance`). So an instance must know of another one only up to which revision it has seen
//! these. A leader writes revisions into its Lease: it has seen the objects up to there, *and* has no work in progress any more for what is not its by then. An
//! instance that takes something over notes the revisions of the change, and waits until every other leader has reached them. It also waits while it lags behind the
//! last change that a peer knows: what it takes for its own may have moved back to that peer. A move to and fro between two looks counts as a new move. A Lease that is
//! not renewed is no leader's: its previous holder has stopped before (`crate::election`).
//!
//! Revisions of different kinds are never compared, because a server may count them separately.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use tenure_tenancy::{Instance, ShardUnit};

/// The revisions up to which an instance has seen the Tenants and the namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The revision of the Tenants.
    pub tenants: u64,
    /// The revision of the namespaces.
    pub namespaces: u64,
}

impl Progress {
    /// Checks whether this progress has reached the other one, in both revisions.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.tenants >= other.tenants && self.namespaces >= other.namespaces
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "tenants={},namespaces={}", self.tenants, self.namespaces)
    }
}

/// The error for a text that is no valid [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it doesn't report which Tenants and namespaces it has seen")]
pub struct InvalidProgress;

impl FromStr for Progress {
    type Err = InvalidProgress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tenants, namespaces) = text.split_once(',').ok_or(InvalidProgress)?;
        let read = |part: &str, name: &str| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        match (read(tenants, "tenants"), read(namespaces, "namespaces")) {
            (Some(tenants), Some(namespaces)) => Ok(Self { tenants, namespaces }),
            _ => Err(InvalidProgress),
        }
    }
}

/// The progress that a leader writes into its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseRecord {
    /// The progress up to which the leader has released every part that is no longer its own.
    pub seen: Progress,
    /// The last change that the leader knows of. A peer that has not seen this change may be wrong about its own parts.
    pub changed: Progress,
}

impl fmt::Display for ReleaseRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{};{}", self.seen, self.changed)
    }
}

impl FromStr for ReleaseRecord {
    type Err = InvalidProgress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seen, changed) = text.split_once(';').ok_or(InvalidProgress)?;
        Ok(Self {
            seen: seen.parse()?,
            changed: changed.parse()?,
        })
    }
}

/// A leading instance other than this one, as its Lease describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name of the Lease.
    pub lease: String,
    /// The holder of the Lease.
    pub holder: String,
    /// The progress that the peer reports. Unset if the peer reconciles everything, or has not reported yet.
    pub released: Option<ReleaseRecord>,
}

/// The phase of one part of the tenants: whether this instance waits for it, reconciles it, or releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The part belongs to this instance since this change, and work has not begun.
    Due(Progress),
    /// Work has begun.
    Begun,
    /// The part belongs to this instance no longer, and some work is still in progress.
    Leaving,
}

/// The parts that one instance reconciles.
#[derive(Clone, Debug, Default)]
pub struct OwnedParts {
    instance: Instance,
    parts: BTreeMap<ShardUnit, Phase>,
    /// The progress up to which the instance has seen all changes, and the progress up to which it has released parts.
    seen: Option<ReleaseRecord>,
    released: Option<ReleaseRecord>,
    /// True after work has begun. Then an instance that reconciles everything no longer waits for peers.
    is_alone: bool,
}

impl OwnedParts {
    /// Creates the state of an instance that has seen no objects yet.
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            ..Self::default()
        }
    }

    /// Takes the instance's own parts from what was seen: `changed` is the last change that was seen, and up to `seen` no other change exists. Returns the parts to
    /// release. [`OwnedParts::take_left`] reports when no work on a part is in progress any more.
    #[must_use]
    pub fn take_own(&mut self, own: &BTreeSet<ShardUnit>, changed: Progress, seen: Progress) -> Vec<ShardUnit> {
        let mut leaving = Vec::new();
        self.parts.retain(|part, phase| match phase {
            _ if own.contains(part) => true,
            Phase::Due(_) => false,
            Phase::Leaving => true,
            Phase::Begun => {
                *phase = Phase::Leaving;
                leaving.push(part.clone());
                true
            }
        });
        for part in own {
            let phase = self.parts.entry(part.clone()).or_insert(Phase::Due(changed));
            if let Phase::Due(since) = phase {
                // The part may have belonged to another instance between two looks.
                *since = changed;
            }
        }
        self.seen = Some(ReleaseRecord { seen, changed });
        self.update_released();
        leaving
    }

    /// Notes that no work on the part is in progress any more. If the part has come back meanwhile, it is taken over as from any other instance.
    pub fn take_left(&mut self, part: &ShardUnit) {
        if self.parts.get(part) == Some(&Phase::Leaving) {
            self.parts.remove(part);
        }
        self.update_released();
    }

    /// Updates the released revisions, unless a part is still being released: then they stay as they were.
    fn update_released(&mut self) {
        if !self.parts.values().any(|phase| *phase == Phase::Leaving) {
            self.released = self.seen;
        }
    }

    /// Returns the record for the instance's Lease. An instance that reconciles everything releases nothing, and has no record.
    #[must_use]
    pub fn release_record(&self) -> Option<ReleaseRecord> {
        self.released.filter(|_| self.instance != Instance::Only)
    }

    /// Returns the parts that can begin now, given the reports of all other leaders.
    #[must_use]
    pub fn take_ready(&mut self, peers: &[Peer]) -> Vec<ShardUnit> {
        let is_only = self.instance == Instance::Only;
        if is_only && !self.is_alone && !peers.is_empty() {
            return Vec::new();
        }
        self.is_alone = true;
        let mut ready = Vec::new();
        // An instance that lags behind a peer could claim a part that has meanwhile moved back to that peer.
        let is_behind = |seen: &ReleaseRecord| peers.iter().any(|peer| is_ahead(peer, &seen.seen));
        if !is_only && self.seen.as_ref().is_none_or(is_behind) {
            return ready;
        }
        for (part, phase) in &mut self.parts {
            if let Phase::Due(since) = phase
                && (is_only || peers.iter().all(|peer| has_released(peer, since)))
            {
                *phase = Phase::Begun;
                ready.push(part.clone());
            }
        }
        ready
    }

    /// Checks whether the instance has a part on which work has not begun.
    #[must_use]
    pub fn has_waiting_parts(&self) -> bool {
        self.parts.values().any(|phase| matches!(phase, Phase::Due(_)))
    }

    /// Describes the peers that the instance waits for; `None` if it doesn't wait.
    #[must_use]
    pub fn describe_wait(&self, peers: &[Peer]) -> Option<String> {
        let due = self.parts.values().filter_map(|phase| match phase {
            Phase::Due(since) => Some(since),
            Phase::Begun | Phase::Leaving => None,
        });
        let due: Vec<&Progress> = due.collect();
        let is_only = self.instance == Instance::Only;
        let is_slow = |peer: &&Peer| (is_only && !self.is_alone) || due.iter().any(|since| !has_released(peer, since));
        let peer = peers.iter().find(is_slow)?;
        let (lease, holder) = (&peer.lease, &peer.holder);
        Some(match (&self.instance, &peer.released) {
            (Instance::Only, _) => format!(
                "{holder} holds {lease} and reconciles a part of the cluster, and this instance would reconcile all of it: nothing begins here. \
                 Start this one with --watch-label-selector '!sharding.fluxcd.io/key', or end that one"
            ),
            (_, None) => format!(
                "{holder} holds {lease} and doesn't report its shard; it may reconcile everything: nothing begins here. Start that \
                 one with --watch-label-selector '!sharding.fluxcd.io/key'"
            ),
            (_, Some(_)) => format!(
                "{} of this instance's objects wait until {holder}, which holds {lease}, has released them",
                due.len()
            ),
        })
    }
}

/// Checks whether a peer has released the parts that moved away from it up to this change.
fn has_released(peer: &Peer, since: &Progress) -> bool {
    peer.released.is_some_and(|released| released.seen.covers(since))
}

/// Checks whether a peer knows a change that this instance has not seen.
fn is_ahead(peer: &Peer, seen: &Progress) -> bool {
    peer.released.is_some_and(|released| !seen.covers(&released.changed))
}

/// Lists the shard keys that objects have and that no leader reconciles.
#[must_use]
pub fn list_unserved(keys: &BTreeSet<String>, peers: &[Peer]) -> Vec<String> {
    let served: BTreeSet<&str> = peers
        .iter()
        .filter_map(|peer| Instance::find_key_of_lease(&peer.lease).flatten())
        .collect();
    keys.iter()
        .filter(|key| !served.contains(key.as_str()))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
