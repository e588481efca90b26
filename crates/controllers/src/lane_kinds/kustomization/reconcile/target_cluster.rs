//! The cluster and the account with which a Kustomization's steps are executed. This module switches between clusters. The plan decides which one.

use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::Kustomization;
use tenure_cluster::{Client, ClientPool, ServiceAccount};
use tenure_planner::kustomization::ServiceAccountFacts;
use tenure_planner::plan::Watched;
use tenure_planner::target::Target;
use tenure_planner::{Answer, Request};
use tenure_tenancy::TokenOrder;

use super::KustomizationReconciler;
use crate::cluster_view::live_objects::WatchedObjects;
use crate::cluster_view::remote_clusters::{ConnectContext, RemoteCluster};
use crate::lane::Lane;
use crate::reconcile_loop::cluster_answers;
use crate::reconcile_loop::step_executor::execute_steps;

impl KustomizationReconciler {
    /// Returns the client for steps, with its account; `None` without a token, which the next plan reports.
    pub(super) async fn client(
        &mut self,
        account: Option<&ServiceAccount>,
        lane: &Lane,
    ) -> Option<(ClientPool, Client)> {
        let cluster = self.cluster.clone();
        let pool = cluster.map_or_else(|| self.shard.context.clients.clone(), |cluster| cluster.clients.clone());
        let client = self.act(&pool, account?, lane).await?;
        Some((pool, client))
    }

    /// Returns the client of an account, and stores in the snapshot whether the account has a token.
    async fn act(&mut self, pool: &ClientPool, account: &ServiceAccount, lane: &Lane) -> Option<Client> {
        let facts = match pool.for_account(account, &lane.access()).await {
            Ok(client) => {
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.service_account = ServiceAccountFacts::Usable;
                }
                return Some(client);
            }
            Err(error) => cluster_answers::read_service_account(&error),
        };
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.service_account = facts;
        }
        None
    }

    /// Reads an object of this cluster. Returns whether a token for it was available.
    pub(super) async fn read_here(
        &mut self,
        target: &Watched,
        account: Option<&ServiceAccount>,
        lane: &Lane,
        deadline: Option<Timestamp>,
    ) -> bool {
        let clients = self.shard.context.clients.clone();
        let Some(account) = account else { return false };
        let Some(client) = self.act(&clients, account, lane).await else {
            return false;
        };
        let requests = [Request::Read(target.clone())];
        for answer in execute_steps(&clients, &client, &requests, deadline, None).await {
            if let Answer::Live(id, live) = answer {
                self.local_objects.store_answer(id, live);
            }
        }
        true
    }

    /// Prepares a token for another cluster.
    pub(super) async fn order_token(&mut self, order: TokenOrder, lane: &Lane) {
        let shard = &self.shard;
        let token = shard
            .clusters
            .order_token(&shard.context.clients, &order, &lane.access());
        let answer = cluster_answers::read_token(token.prepare().await);
        self.token = Some(token);
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.attempt.token = Some((order, answer));
        }
    }

    /// Switches to the cluster of a plan. Returns false if facts of another cluster were in use before. While the cluster is unknown, nothing is
    /// switched.
    pub(super) async fn switch_cluster(
        &mut self,
        target: Option<&Target>,
        account: &ServiceAccount,
        kustomization: &Kustomization,
        lane: &Lane,
    ) -> Result<bool, String> {
        let Some(target) = target else {
            let stays = kustomization.spec.kube_config.is_some() || self.cluster.is_none();
            if !stays {
                self.go_to(None);
            }
            return Ok(stays);
        };
        if self
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.is_for(target, account))
        {
            return Ok(true);
        }
        // The objects of the previous cluster free their memory first.
        let is_first = self.observed.is_empty() && self.answered.is_empty();
        self.go_to(None);
        let context = &self.shard.context;
        let is_platforms = self.shard.namespace == context.settings.platform_namespace;
        let way = ConnectContext {
            budgets: &context.remote_clusters,
            reach: context.reach(is_platforms),
            mailboxes: &context.mailboxes,
            lane: &lane.limits.name,
            access: lane.access(),
            clients: &context.clients,
        };
        context.remote_clusters.prepare_to_open(&lane.limits.name).await;
        let cluster = self.shard.clusters.open(way, target, account)?;
        self.go_to(Some(cluster));
        Ok(is_first)
    }

    /// Sets the cluster to apply to (`None` for this cluster), and stops all watches of the previous one.
    pub(super) fn go_to(&mut self, cluster: Option<Arc<RemoteCluster>>) {
        let live = cluster.as_ref().map_or(&self.shard.live, |cluster| &cluster.live);
        self.held = WatchedObjects::new(Arc::clone(live), self.key.clone());
        self.cluster = cluster;
    }
}
