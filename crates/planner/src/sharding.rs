//! Shards: when an instance of the controllers begins with what has come to be its, and when it has let go of what has left it. No two act for
//! one tenant at once, however a label is moved and however late anybody hears of it.
//!
//! Which instance sees to what follows from Tenants and namespaces alone (`tenure_tenancy::instance`), so all that an instance has to know
//! of another one is how far that one has seen these: a leader writes in its Lease up to which revisions it has seen them *and* has nothing
//! under way any more for what is not its by then. Whoever takes something over notes the revisions at which that came to be its, and waits until
//! every other leader has come so far. It also waits while it is behind any of them, by the last change that one knows of: what it takes for
//! its own may have come back to that one since. What moved to and fro between two looks counts as moved anew. A Lease that nobody renews is no leader's: who had it has stopped before (`crate::election`).
//!
//! Refuses to compare revisions of different kinds, which a server may count apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use tenure_tenancy::{Estate, Instance};

/// How far the Tenants and the namespaces were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The revision of the Tenants.
    pub tenants: u64,
    /// The revision of the namespaces.
    pub namespaces: u64,
}

impl Progress {
    /// Whether all that was to be seen at another one was seen at this.
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

/// A text that says of no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it doesn't say how far Tenants and namespaces were seen")]
pub struct NoProgress;

impl FromStr for Progress {
    type Err = NoProgress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tenants, namespaces) = text.split_once(',').ok_or(NoProgress)?;
        let read = |part: &str, name: &str| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        match (read(tenants, "tenants"), read(namespaces, "namespaces")) {
            (Some(tenants), Some(namespaces)) => Ok(Self { tenants, namespaces }),
            _ => Err(NoProgress),
        }
    }
}

/// What a leader says in its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// Up to where it has let go of what is not its.
    pub seen: Progress,
    /// The last change that it knows of. Who has not seen that doesn't know what may have come to be its meanwhile, for a moment that
    /// nobody else has seen.
    pub changed: Progress,
}

impl fmt::Display for LetGo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{};{}", self.seen, self.changed)
    }
}

impl FromStr for LetGo {
    type Err = NoProgress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seen, changed) = text.split_once(';').ok_or(NoProgress)?;
        Ok(Self {
            seen: seen.parse()?,
            changed: changed.parse()?,
        })
    }
}

/// Another instance that leads, by its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name of the Lease.
    pub lease: String,
    /// Who holds it.
    pub holder: String,
    /// Up to where it has let go of what is not its; nothing of one that sees to everything, or has not said so yet.
    pub let_go: Option<LetGo>,
}

/// Where something is that this instance sees to, or saw to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is its since then, and has not begun.
    Due(Progress),
    /// It is worked on.
    Begun,
    /// It is no longer its, and something is under way still.
    Leaving,
}

/// What one instance sees to.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    instance: Instance,
    estates: BTreeMap<Estate, Phase>,
    /// Up to where it has seen everything, and up to where it has let go.
    seen: Option<LetGo>,
    let_go: Option<LetGo>,
    /// The only instance has begun, and doesn't look at others any more.
    is_alone: bool,
}

impl Holdings {
    /// Those of an instance that has seen nothing yet.
    #[must_use]
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            ..Self::default()
        }
    }

    /// Takes what is its by what was seen: `changed` up to the last change that was seen, `seen` up to where it is known that there was no other.
    /// What is to be let go of is returned, and told by [`Holdings::take_left`] when nothing of it is under way any more.
    #[must_use]
    pub fn take_own(&mut self, own: &BTreeSet<Estate>, changed: Progress, seen: Progress) -> Vec<Estate> {
        let mut leaving = Vec::new();
        self.estates.retain(|estate, phase| match phase {
            _ if own.contains(estate) => true,
            Phase::Due(_) => false,
            Phase::Leaving => true,
            Phase::Begun => {
                *phase = Phase::Leaving;
                leaving.push(estate.clone());
                true
            }
        });
        for estate in own {
            let phase = self.estates.entry(estate.clone()).or_insert(Phase::Due(changed));
            if let Phase::Due(since) = phase {
                // It may have been another's between two looks.
                *since = changed;
            }
        }
        self.seen = Some(LetGo { seen, changed });
        self.settle();
        leaving
    }

    /// Nothing of it is under way any more. If it has come back meanwhile, it is taken over as from anybody else.
    pub fn take_left(&mut self, estate: &Estate) {
        if self.estates.get(estate) == Some(&Phase::Leaving) {
            self.estates.remove(estate);
        }
        self.settle();
    }

    /// While something is being let go of, no more is claimed than before.
    fn settle(&mut self) {
        if !self.estates.values().any(|phase| *phase == Phase::Leaving) {
            self.let_go = self.seen;
        }
    }

    /// Up to where it has let go of what is not its, as its Lease says. Who sees to everything lets go of nothing, and doesn't say so.
    #[must_use]
    pub fn let_go(&self) -> Option<LetGo> {
        self.let_go.filter(|_| self.instance != Instance::Only)
    }

    /// What can begin now, by what all other leaders say.
    #[must_use]
    pub fn take_ready(&mut self, peers: &[Peer]) -> Vec<Estate> {
        let is_only = self.instance == Instance::Only;
        if is_only && !self.is_alone && !peers.is_empty() {
            return Vec::new();
        }
        self.is_alone = true;
        let mut ready = Vec::new();
        // Who is behind another one may take for his own what has come back to that one since.
        let is_behind = |seen: &LetGo| peers.iter().any(|peer| is_ahead(peer, &seen.seen));
        if !is_only && self.seen.as_ref().is_none_or(is_behind) {
            return ready;
        }
        for (estate, phase) in &mut self.estates {
            if let Phase::Due(since) = phase
                && (is_only || peers.iter().all(|peer| has_let_go(peer, since)))
            {
                *phase = Phase::Begun;
                ready.push(estate.clone());
            }
        }
        ready
    }

    /// Whether something is its and hasn't begun.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.estates.values().any(|phase| matches!(phase, Phase::Due(_)))
    }

    /// For whom it waits, in words; nothing when it doesn't.
    #[must_use]
    pub fn describe_wait(&self, peers: &[Peer]) -> Option<String> {
        let due = self.estates.values().filter_map(|phase| match phase {
            Phase::Due(since) => Some(since),
            Phase::Begun | Phase::Leaving => None,
        });
        let due: Vec<&Progress> = due.collect();
        let is_only = self.instance == Instance::Only;
        let is_slow = |peer: &&Peer| (is_only && !self.is_alone) || due.iter().any(|since| !has_let_go(peer, since));
        let peer = peers.iter().find(is_slow)?;
        let (lease, holder) = (&peer.lease, &peer.holder);
        Some(match (&self.instance, &peer.let_go) {
            (Instance::Only, _) => format!(
                "{holder} holds {lease} and sees to a part of the cluster, and this instance would see to all of it: nothing begins here. \
                 Start this one with --watch-label-selector '!sharding.fluxcd.io/key', or end that one"
            ),
            (_, None) => format!(
                "{holder} holds {lease} and has not said what it leaves to others; it may see to everything: nothing begins here. Start that \
                 one with --watch-label-selector '!sharding.fluxcd.io/key'"
            ),
            (_, Some(_)) => format!(
                "{} of what is this instance's wait until {holder}, which holds {lease}, has let go of what is not its",
                due.len()
            ),
        })
    }
}

fn has_let_go(peer: &Peer, since: &Progress) -> bool {
    peer.let_go.is_some_and(|let_go| let_go.seen.covers(since))
}

fn is_ahead(peer: &Peer, seen: &Progress) -> bool {
    peer.let_go.is_some_and(|let_go| !seen.covers(&let_go.changed))
}

/// The keys that something has and that no leader sees to.
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
