//! Means that every lane uses and no lane owns: the connection to the API server, an administrator's settings, the budgets that all lanes share, and
//! the mailboxes. They hold names at most, and no objects.

pub(crate) mod attempt_marks;
pub(crate) mod config;
pub(crate) mod enabled_kinds;
pub(crate) mod lane_settings;

use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::{Client, ClientPool};
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards};
use tenure_sources::{ByteBudget, Connect, Reach, StorageError};
use tenure_tenancy::Settings;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::artifacts::storage::Depot;
use crate::cluster_view::change_subscriptions::Listeners;
use crate::cluster_view::mailbox::MailboxTable;
use crate::cluster_view::remote_clusters::ElsewhereBudgets;
use crate::context::attempt_marks::UnderWay;
use crate::context::config::Config;
use crate::context::enabled_kinds::Switches;
use crate::endpoints::receiver_endpoint::Hooks;
use crate::rendering::renderer::Renderings;
use crate::telemetry::metrics::Figures;

/// The means of every lane.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) clients: ClientPool,
    /// The controller's own client, in turns that it shares with no lane.
    pub(crate) controller: Client,
    pub(crate) settings: Settings,
    pub(crate) switches: Switches,
    platform_sources: Reach,
    tenant_sources: Reach,
    pub(crate) guards: Guards,
    pub(crate) applying: ApplySettings,
    pub(crate) strict_sops: bool,
    /// The paths of Receivers.
    pub(crate) hooks: Hooks,
    /// The base address at which artifacts are served to other controllers, if they are.
    pub(crate) advertised: Option<ArtifactBase>,
    /// The interval at which policies are checked without a reported change.
    pub(crate) policy_interval: Duration,
    /// Whether the controllers report in the cluster's Enforcement on lanes.
    pub(crate) reports_lanes: bool,
    /// The limit of concurrent reconciliations of a lane.
    pub(crate) lane_width: usize,
    /// Bounds the number of namespaces for which lanes' rights are reconciled at the same time.
    pub(crate) rights: Arc<Semaphore>,
    /// The memory that the renderings of all lanes share.
    pub(crate) renderings: Renderings,
    /// The disk and the memory that the artifacts of all lanes share.
    pub(crate) depot: Arc<Depot>,
    /// Memory for the objects that reconciliations read.
    pub(crate) looking: ByteBudget,
    /// Budgets for other clusters.
    pub(crate) elsewhere: ElsewhereBudgets,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) figures: Figures,
    pub(crate) mailboxes: Arc<MailboxTable>,
    pub(crate) listeners: Listeners,
    /// Cancelled after all existing objects have been seen.
    pub(crate) ready: CancellationToken,
}

impl Means {
    /// Returns the addresses from which a source of the platform, or any other source, may be fetched.
    pub(crate) fn reach(&self, platform: bool) -> &Reach {
        if platform {
            &self.platform_sources
        } else {
            &self.tenant_sources
        }
    }

    /// From now on another process opens all connections, and decides which are allowed.
    pub(crate) fn reach_through(&mut self, other: Arc<dyn Connect>) {
        self.platform_sources = Reach::Through(Arc::clone(&other));
        self.tenant_sources = Reach::Through(other);
    }

    pub(crate) fn new(config: Config) -> Result<Self, StorageError> {
        config.figures.set_requests(config.connection.requests());
        let clients = ClientPool::new(config.connection);
        Ok(Self {
            controller: clients.controller(),
            clients,
            settings: config.settings,
            switches: config.switches,
            platform_sources: (&config.platform_sources).into(),
            tenant_sources: (&config.tenant_sources).into(),
            guards: config.guards,
            applying: config.applying,
            strict_sops: config.strict_sops,
            hooks: config.hooks,
            advertised: config.advertised,
            policy_interval: config.policy_interval,
            reports_lanes: config.reports_lanes,
            lane_width: config.lane_width,
            rights: Arc::new(Semaphore::new(config.lane_width.max(1))),
            renderings: Renderings::new(config.rendering),
            depot: Arc::new(Depot::open(&config.artifacts, config.limits, config.budgets)?),
            looking: config.budgets.looking(),
            elsewhere: ElsewhereBudgets::default(),
            under_way: Arc::new(UnderWay::open(config.artifacts.join("under-way"))),
            figures: config.figures,
            mailboxes: Arc::default(),
            listeners: Listeners::default(),
            ready: CancellationToken::new(),
        })
    }
}
