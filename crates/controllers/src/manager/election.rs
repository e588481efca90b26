//! Runs the controllers only while this process leads: reads and writes the Leases that `tenure_planner::election` decides about, as the controller.
//! It does not begin while other programs reconcile the same kinds. It stops when another program gets a Lease for them, and when its own Lease may
//! have ended.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::metadata::LET_GO;
use tenure_cluster::{Client, ClientPool, ClusterError, ControllerHealth};
use tenure_planner::election::{
    ElectionAction, LOOK_AT_OTHERS, LeaseRecord, RETRY, WatchedLease, decide_action, must_stop, write_spec,
};
use tenure_planner::sharding::ReleaseRecord;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::config::Config;
use crate::manager::lease_name::LeaseName;
use crate::manager::{RunError, run};
use crate::sharding::ShardPeers;

/// The kind of the Lease.
const API_VERSION: &str = "coordination.k8s.io/v1";
const KIND: &str = "Lease";
/// The field manager of writes to the Lease.
const MANAGER: &str = "tenure-leader-election";

/// The settings of the leader election: the leader's Lease, the name of this process in it, and the Leases of other programs that must have ended.
#[derive(Clone, Debug)]
pub struct Election {
    /// The leader's Lease.
    pub lease: LeaseName,
    /// The name of this process in the Lease. It must be unique.
    pub candidate: String,
    /// The Leases of other programs for the same kinds. While another program holds one, no candidate begins, and a leader stops.
    pub others: Vec<LeaseName>,
}

/// Runs all controllers while this process leads, until `shutdown`.
///
/// # Errors
/// [`RunError`] when they can't start, [`RunError::Deposed`] when another process may lead from now on, and [`RunError::OtherController`]
/// when another program began to reconcile the same kinds. Everything has stopped by then, and the process should end and be started again.
pub fn run_as_leader(
    config: Config,
    election: Election,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(lead(config, election, shutdown))
}

async fn lead(mut config: Config, election: Election, shutdown: CancellationToken) -> Result<(), RunError> {
    let client = ClientPool::new(config.connection.clone()).for_leadership();
    let shard_peers = ShardPeers::new(config.instance.clone(), client.clone());
    let released = shard_peers.follow();
    config.shards = Some(shard_peers);
    let mut campaign = Campaign {
        client,
        health: config.connection.health(),
        others: vec![WatchedLease::default(); election.others.len()],
        election,
        began: Instant::now(),
        own: WatchedLease::default(),
        released,
        last_warning: String::new(),
    };
    let Some(()) = shutdown.run_until_cancelled(campaign.win()).await else {
        return Ok(());
    };
    tracing::info!(candidate = campaign.election.candidate, "this process leads");
    let end = CancellationToken::new();
    let mut running = run(config, end.clone());
    let loss = tokio::select! {
        ended = &mut running => return ended,
        loss = campaign.keep_leadership(true) => Some(loss),
        () = shutdown.cancelled() => None,
    };
    // Dropped without a farewell: running work must not go on beside another leader's.
    match loss {
        Some(LeadershipLoss::Lease) => return Err(RunError::Deposed),
        Some(LeadershipLoss::Other(HeldLease { lease, holder })) => {
            drop(running);
            tracing::error!(
                lease = lease.name,
                namespace = lease.namespace,
                holder,
                "another controller reconciles the same kinds: everything stops here"
            );
            campaign.give_back().await;
            return Err(RunError::OtherController { lease, holder });
        }
        None => {}
    }
    end.cancel();
    // The Lease is held until the last reconciliation has ended. Otherwise another process would begin beside it.
    let ended = tokio::select! {
        ended = &mut running => ended,
        _ = campaign.keep_leadership(false) => return Err(RunError::Deposed),
    };
    campaign.give_back().await;
    ended
}

/// Why a leader stops.
enum LeadershipLoss {
    /// The leader's own Lease was taken, or may have ended.
    Lease,
    /// A program other than Tenure reconciles the same kinds.
    Other(HeldLease),
}

/// A held Lease of another program.
struct HeldLease {
    lease: LeaseName,
    holder: String,
}

/// The state of this process as a candidate and then as the leader: its client, and the Leases as last seen.
struct Campaign {
    client: Client,
    health: ControllerHealth,
    election: Election,
    /// The Leases of other programs, as last seen.
    others: Vec<WatchedLease>,
    began: Instant,
    own: WatchedLease,
    /// Up to where this instance has released what other instances reconcile.
    released: watch::Receiver<Option<ReleaseRecord>>,
    /// The last message about waiting, so that each message is logged once.
    last_warning: String,
}

impl Campaign {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until no other program reconciles the same kinds, and until the Lease belongs to this process.
    async fn win(&mut self) {
        loop {
            let tried = self.try_to_win().await;
            self.report_health(&tried);
            match tried {
                Ok(None) => return,
                Ok(Some(wait)) => self.warn_once(wait),
                // Another candidate was faster. The next check finds its name.
                Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. }) => {}
                Err(error @ ClusterError::Forbidden { .. }) => self.warn_once(format!(
                    "the Leases can't be read and written: {error}; `tenure install` gives the right to that"
                )),
                Err(error) => self.warn_once(format!("the Leases can't be read and written: {error}")),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Tries once. Returns the reason for waiting.
    async fn try_to_win(&mut self) -> Result<Option<String>, ClusterError> {
        if let Some(HeldLease { lease, holder }) = self.find_other().await? {
            return Ok(Some(format!(
                "Lease {} in namespace {} is held by {holder}, which reconciles the same kinds: these controllers wait until it is released. Scale the Deployment of that controller to 0",
                lease.name, lease.namespace
            )));
        }
        self.read_own_lease().await?;
        match decide_action(&self.own, &self.election.candidate, self.now()) {
            ElectionAction::Wait { holder } => Ok(Some(format!("{holder} leads; this process waits"))),
            next => self.write(&next).await.map(|()| None),
        }
    }

    /// Returns the first held Lease of another program.
    async fn find_other(&mut self) -> Result<Option<HeldLease>, ClusterError> {
        let names = self.election.others.clone();
        for (index, lease) in names.into_iter().enumerate() {
            let record = self.read(&lease).await?.as_ref().map(LeaseRecord::read);
            let now = self.now();
            let Some(watched) = self.others.get_mut(index) else {
                continue;
            };
            watched.take_lease(record, now);
            if let Some(holder) = watched.find_holder(now).map(str::to_owned) {
                return Ok(Some(HeldLease { lease, holder }));
            }
        }
        Ok(None)
    }

    /// Reads the Leases of other programs within this time. Without an answer the leader goes on, because it has its own Lease.
    async fn look_at_others(&mut self, patience: Duration) -> Option<HeldLease> {
        match tokio::time::timeout(patience, self.find_other()).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                self.warn_once(format!(
                    "whether other controllers reconcile the same kinds is unknown: {error}"
                ));
                None
            }
            Err(_) => {
                self.warn_once("whether other controllers reconcile the same kinds is unknown: no answer".to_owned());
                None
            }
        }
    }

    /// Renews the Lease until that fails for too long, or until another program reconciles the same kinds, if that is checked.
    async fn keep_leadership(&mut self, looks_at_others: bool) -> LeadershipLoss {
        let mut renewed = self.now();
        let mut looked = renewed;
        while !must_stop(renewed, self.now()) {
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                // Other instances wait until the Lease says how far this instance has released, so the Lease is written immediately.
                Ok(()) = self.released.changed() => {}
            }
            let begun = self.now();
            let left = (renewed + tenure_planner::election::RENEWAL).saturating_sub(begun);
            let Ok(renewal) = tokio::time::timeout(left, self.renew()).await else {
                self.health.set_seen(KIND, false);
                tracing::warn!("the Lease could not be renewed: no answer");
                continue;
            };
            self.report_health(&renewal);
            match renewal {
                Ok(true) => renewed = begun,
                Ok(false) => return LeadershipLoss::Lease,
                Err(error) => tracing::warn!(%error, "the Lease could not be renewed"),
            }
            let now = self.now();
            if looks_at_others && now.saturating_sub(looked) >= LOOK_AT_OTHERS {
                looked = now;
                // The look has a time limit, so that it doesn't delay the next renewal.
                if let Some(other) = self.look_at_others(RETRY).await {
                    return LeadershipLoss::Other(other);
                }
            }
        }
        LeadershipLoss::Lease
    }

    /// Renews the Lease. Returns whether it still belongs to this process.
    async fn renew(&mut self) -> Result<bool, ClusterError> {
        self.read_own_lease().await?;
        match decide_action(&self.own, &self.election.candidate, self.now()) {
            next @ ElectionAction::Take { renewal: true, .. } => self.write(&next).await.map(|()| true),
            ElectionAction::Create | ElectionAction::Take { .. } | ElectionAction::Wait { .. } => Ok(false),
        }
    }

    /// Gives the Lease up, so that the next process need not wait until it ends.
    async fn give_back(&mut self) {
        let given = async {
            self.read_own_lease().await?;
            if let ElectionAction::Take {
                version, renewal: true, ..
            } = decide_action(&self.own, &self.election.candidate, self.now())
            {
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
                self.patch(&patch).await?;
            }
            Ok::<(), ClusterError>(())
        };
        if let Err(error) = given.await {
            tracing::warn!(%error, "the Lease could not be released; it ends by itself");
        }
    }

    async fn read(&self, lease: &LeaseName) -> Result<Option<Value>, ClusterError> {
        let resource = self.client.resource(API_VERSION, KIND).await?;
        self.client.find(&resource, &lease.namespace, &lease.name).await
    }

    async fn read_own_lease(&mut self) -> Result<(), ClusterError> {
        let lease = self.read(&self.election.lease).await?;
        self.own.take_lease(lease.as_ref().map(LeaseRecord::read), self.now());
        Ok(())
    }

    async fn write(&mut self, next: &ElectionAction) -> Result<(), ClusterError> {
        let candidate = &self.election.candidate;
        let spec = |transitions, renewal| write_spec(candidate, transitions, Timestamp::now(), renewal);
        match next {
            ElectionAction::Wait { .. } => Ok(()),
            ElectionAction::Create => {
                let LeaseName { namespace, name } = &self.election.lease;
                let lease = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"namespace": namespace, "name": name},
                    "spec": spec(0, false)});

                self.client.create(&lease, MANAGER).await.map(drop)
            }
            ElectionAction::Take {
                version,
                transitions,
                renewal,
            } => {
                // An annotation of the previous leader does not apply to this process, which has seen nothing yet.
                let released = self.released.borrow_and_update().map(|released| released.to_string());
                let annotations = json!({ LET_GO: released });
                let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations},
                    "spec": spec(*transitions, *renewal)});
                self.patch(&patch).await
            }
        }
    }

    async fn patch(&self, patch: &Value) -> Result<(), ClusterError> {
        let LeaseName { namespace, name } = &self.election.lease;
        let resource = self.client.resource(API_VERSION, KIND).await?;
        let target = (namespace.as_str(), name.as_str());
        self.client
            .merge_patch(&resource, target, None, MANAGER, patch)
            .await
            .map(drop)
    }

    /// A process that can't read the Leases never leads, or not for long, and the health probe must show it. A faster candidate is no such failure.
    fn report_health<T>(&self, tried: &Result<T, ClusterError>) {
        let lost = matches!(
            tried,
            Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. })
        );
        self.health.set_seen(KIND, tried.is_ok() || lost);
    }

    fn warn_once(&mut self, what: String) {
        if what != self.last_warning {
            tracing::warn!("{what}");
            self.last_warning = what;
        }
    }
}
