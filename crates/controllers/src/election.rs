//! Runs the controllers only while this process leads: reads and writes the Leases that `tenure_planner::election` decides about, as the
//! controller. Refuses to begin while others reconcile the same kinds, and to go on once its own Lease may have ended.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::metadata::LET_GO;
use tenure_cluster::{Client, ClientPool, ClusterError, ControllerHealth};
use tenure_planner::election::{LeaseRecord, Move, RETRY, WatchedLease, decide, must_stop, write_spec};
use tenure_planner::sharding::LetGo;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::manager::{RunError, run};
use crate::sharding::ShardBoard;

/// The kind of what is held.
const API_VERSION: &str = "coordination.k8s.io/v1";
const KIND: &str = "Lease";
/// The field manager of what is written to it.
const MANAGER: &str = "tenure-leader-election";

/// A Lease, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Who leads, and who has to have ended before.
#[derive(Clone, Debug)]
pub struct Election {
    /// What the leader holds.
    pub lease: LeaseName,
    /// What this process calls itself there; no other may have the same name.
    pub candidate: String,
    /// What other programs hold while they reconcile the same kinds: while one of these is held, nobody begins.
    pub others: Vec<LeaseName>,
}

/// Runs all controllers while this process leads, until `shutdown`.
///
/// # Errors
/// [`RunError`] when they can't start, and [`RunError::Deposed`] when another may lead from now on: everything has stopped by then, and the
/// process should end and begin anew.
pub fn run_as_leader(
    config: Config,
    election: Election,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(lead(config, election, shutdown))
}

async fn lead(mut config: Config, election: Election, shutdown: CancellationToken) -> Result<(), RunError> {
    let client = ClientPool::new(config.connection.clone()).for_leadership();
    let board = ShardBoard::new(config.instance.clone(), client.clone());
    let let_go = board.follow();
    config.shards = Some(board);
    let mut campaign = Campaign {
        client,
        health: config.connection.health(),
        election,
        began: Instant::now(),
        own: WatchedLease::default(),
        let_go,
        said: String::new(),
    };
    let Some(()) = shutdown.run_until_cancelled(campaign.win()).await else {
        return Ok(());
    };
    tracing::info!(candidate = campaign.election.candidate, "this process leads");
    let end = CancellationToken::new();
    let running = run(config, end.clone());
    tokio::pin!(running);
    let deposed = tokio::select! {
        ended = &mut running => return ended,
        () = campaign.hold() => true,
        () = shutdown.cancelled() => false,
    };
    if deposed {
        // Dropped, not ended in good order: what is under way must not go on beside another leader's.
        return Err(RunError::Deposed);
    }
    end.cancel();
    // It is held until the last reconciliation has ended, or another one would begin beside it.
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = campaign.hold() => return Err(RunError::Deposed),
    };
    campaign.give_back().await;
    ended
}

struct Campaign {
    client: Client,
    health: ControllerHealth,
    election: Election,
    began: Instant,
    own: WatchedLease,
    /// Up to where it has let go of what other instances see to.
    let_go: watch::Receiver<Option<LetGo>>,
    /// What was said last about waiting, so that it is said once.
    said: String,
}

impl Campaign {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until nobody else reconciles the same kinds, and until the Lease is this process's.
    async fn win(&mut self) {
        let mut others = vec![WatchedLease::default(); self.election.others.len()];
        loop {
            let tried = self.try_to_win(&mut others).await;
            self.tell_health(&tried);
            match tried {
                Ok(None) => return,
                Ok(Some(wait)) => self.say(wait),
                // Another candidate was faster; the next look says who.
                Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. }) => {}
                Err(error @ ClusterError::Forbidden { .. }) => self.say(format!(
                    "the Leases can't be read and written: {error}; `tenure install` gives the right to that"
                )),
                Err(error) => self.say(format!("the Leases can't be read and written: {error}")),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// One look; says who is waited for.
    async fn try_to_win(&mut self, others: &mut [WatchedLease]) -> Result<Option<String>, ClusterError> {
        let names = self.election.others.clone();
        for (name, watched) in names.iter().zip(others) {
            let record = self.read(name).await?.as_ref().map(LeaseRecord::read);
            watched.take(record, self.now());
            if let Some(holder) = watched.find_holder(self.now()) {
                return Ok(Some(format!(
                    "{} in {} is held by {holder}, which reconciles the same kinds: nothing begins here until it is given up; scale that controller to 0",
                    name.name, name.namespace
                )));
            }
        }
        self.look().await?;
        match decide(&self.own, &self.election.candidate, self.now()) {
            Move::Wait { holder } => Ok(Some(format!("{holder} leads; this process waits"))),
            next => self.write(&next).await.map(|()| None),
        }
    }

    /// Renews the Lease until that fails for too long.
    async fn hold(&mut self) {
        let mut renewed = self.now();
        while !must_stop(renewed, self.now()) {
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                // Others wait for it.
                Ok(()) = self.let_go.changed() => {}
            }
            let begun = self.now();
            let left = (renewed + tenure_planner::election::RENEWAL).saturating_sub(begun);
            let Ok(renewal) = tokio::time::timeout(left, self.renew()).await else {
                self.health.set_seen(KIND, false);
                tracing::warn!("the Lease could not be renewed: no answer");
                continue;
            };
            self.tell_health(&renewal);
            match renewal {
                Ok(true) => renewed = begun,
                Ok(false) => return,
                Err(error) => tracing::warn!(%error, "the Lease could not be renewed"),
            }
        }
    }

    /// Whether it is still this process's, and renewed.
    async fn renew(&mut self) -> Result<bool, ClusterError> {
        self.look().await?;
        match decide(&self.own, &self.election.candidate, self.now()) {
            next @ Move::Take { renewal: true, .. } => self.write(&next).await.map(|()| true),
            Move::Create | Move::Take { .. } | Move::Wait { .. } => Ok(false),
        }
    }

    /// Gives the Lease back, so that the next one needn't wait until it ends.
    async fn give_back(&mut self) {
        let given = async {
            self.look().await?;
            if let Move::Take {
                version, renewal: true, ..
            } = decide(&self.own, &self.election.candidate, self.now())
            {
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
                self.patch(&patch).await?;
            }
            Ok::<(), ClusterError>(())
        };
        if let Err(error) = given.await {
            tracing::warn!(%error, "the Lease could not be given back; it ends by itself");
        }
    }

    async fn read(&self, lease: &LeaseName) -> Result<Option<Value>, ClusterError> {
        let resource = self.client.resource(API_VERSION, KIND).await?;
        self.client.find(&resource, &lease.namespace, &lease.name).await
    }

    async fn look(&mut self) -> Result<(), ClusterError> {
        let lease = self.read(&self.election.lease).await?;
        self.own.take(lease.as_ref().map(LeaseRecord::read), self.now());
        Ok(())
    }

    async fn write(&mut self, next: &Move) -> Result<(), ClusterError> {
        let candidate = &self.election.candidate;
        let spec = |transitions, renewal| write_spec(candidate, transitions, Timestamp::now(), renewal);
        match next {
            Move::Wait { .. } => Ok(()),
            Move::Create => {
                let LeaseName { namespace, name } = &self.election.lease;
                let lease = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"namespace": namespace, "name": name},
                    "spec": spec(0, false)});

                self.client.create(&lease, MANAGER).await.map(drop)
            }
            Move::Take {
                version,
                transitions,
                renewal,
            } => {
                // Nothing that another one has said there is this one's, which has seen nothing yet.
                let let_go = self.let_go.borrow_and_update().map(|let_go| let_go.to_string());
                let annotations = json!({ LET_GO: let_go });
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

    /// Who can't read the Leases never leads, or not for long: a probe must learn it. That another candidate was faster is no such thing.
    fn tell_health<T>(&self, tried: &Result<T, ClusterError>) {
        let lost = matches!(
            tried,
            Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. })
        );
        self.health.set_seen(KIND, tried.is_ok() || lost);
    }

    fn say(&mut self, what: String) {
        if what != self.said {
            tracing::warn!("{what}");
            self.said = what;
        }
    }
}
