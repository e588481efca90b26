//! The context that all lanes share and no lane owns: the connection to the API server, an administrator's settings, the common budgets, and the
//! mailboxes. It has names at most, and no objects.
//!
//! - `attempt_marks`: marks on disk of running attempts, to find the attempt that a crash ended.
//! - `config`: the configuration of the controllers.
//! - `enabled_kinds`: the reconciled kinds, as an administrator names them.
//! - `lane_settings`: where lanes run, and how their processes are started.

pub(crate) mod attempt_marks;
pub(crate) mod config;
pub(crate) mod enabled_kinds;
pub(crate) mod lane_settings;

use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::{Client, ClientPool};
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards};
use tenure_planner::package_settings::Settings as PackageSettings;
use tenure_sources::{ByteBudget, Connect, Connector, StorageError};
use tenure_tenancy::Settings;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::artifacts::storage::ArtifactStorage;
use crate::cluster_view::change_subscriptions::ChangeSubscriptions;
use crate::cluster_view::mailbox::MailboxTable;
use crate::cluster_view::remote_clusters::RemoteClusterBudgets;
use crate::context::attempt_marks::AttemptMarks;
use crate::context::config::Config;
use crate::context::enabled_kinds::EnabledKinds;
use crate::endpoints::receiver_endpoint::ReceiverEndpoint;
use crate::rendering::renderer::Renderer;
use crate::telemetry::metrics::Metrics;

/// The context of every lane.
#[derive(Debug)]
pub(crate) struct ControllerContext {
    pub(crate) clients: ClientPool,
    /// The controller's own client, in turns that it shares with no lane.
    pub(crate) controller: Client,
    pub(crate) settings: Settings,
    pub(crate) enabled_kinds: EnabledKinds,
    platform_sources: Connector,
    tenant_sources: Connector,
    pub(crate) guards: Guards,
    pub(crate) applying: ApplySettings,
    pub(crate) strict_sops: bool,
    /// The settings of Packages and PackageSources.
    pub(crate) packages: PackageSettings,
    /// The paths of Receivers.
    pub(crate) receiver_endpoint: ReceiverEndpoint,
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
    pub(crate) renderer: Renderer,
    /// The disk and the memory that the artifacts of all lanes share.
    pub(crate) artifact_storage: Arc<ArtifactStorage>,
    /// Memory for the objects that reconciliations read.
    pub(crate) object_memory: ByteBudget,
    /// Budgets for other clusters.
    pub(crate) remote_clusters: RemoteClusterBudgets,
    pub(crate) attempt_marks: Arc<AttemptMarks>,
    pub(crate) metrics: Metrics,
    pub(crate) mailboxes: Arc<MailboxTable>,
    pub(crate) change_subscriptions: ChangeSubscriptions,
    /// Cancelled after all existing objects have been seen.
    pub(crate) ready: CancellationToken,
}

impl ControllerContext {
    /// Returns the connector for sources of the platform, or for all other sources. It refuses addresses that these sources may not reach.
    pub(crate) fn reach(&self, platform: bool) -> &Connector {
        if platform {
            &self.platform_sources
        } else {
            &self.tenant_sources
        }
    }

    /// Sets the number of lanes among which the budgets of memory are divided. Archives stay on the disk after the work, so a lane that was alone would leave no disk
    /// to later ones: that budget is not divided.
    pub(crate) fn divide_budgets(&self, lanes: usize) {
        let artifacts = &self.artifact_storage;
        for budget in [artifacts.tree_room(), artifacts.fetch_room(), &self.object_memory] {
            budget.set_lane_count(lanes);
        }
    }

    /// Replaces the connectors of sources: another process then opens all connections, and decides which addresses are allowed.
    pub(crate) fn reach_through(&mut self, other: Arc<dyn Connect>) {
        self.platform_sources = Connector::Through(Arc::clone(&other));
        self.tenant_sources = Connector::Through(other);
    }

    pub(crate) fn new(config: Config) -> Result<Self, StorageError> {
        config.metrics.set_requests(config.connection.requests());
        let clients = ClientPool::new(config.connection);
        Ok(Self {
            controller: clients.controller(),
            clients,
            settings: config.settings,
            enabled_kinds: config.enabled_kinds,
            platform_sources: (&config.platform_sources).into(),
            tenant_sources: (&config.tenant_sources).into(),
            guards: config.guards,
            applying: config.applying,
            strict_sops: config.strict_sops,
            packages: config.packages,
            receiver_endpoint: config.receiver_endpoint,
            advertised: config.advertised,
            policy_interval: config.policy_interval,
            reports_lanes: config.reports_lanes,
            lane_width: config.lane_width,
            rights: Arc::new(Semaphore::new(config.lane_width.max(1))),
            renderer: Renderer::new(config.rendering),
            artifact_storage: Arc::new(ArtifactStorage::open(&config.artifacts, config.limits, config.budgets)?),
            object_memory: config.budgets.object_memory(),
            remote_clusters: RemoteClusterBudgets::default(),
            attempt_marks: Arc::new(AttemptMarks::open(config.artifacts.join("under-way"))),
            metrics: config.metrics,
            mailboxes: Arc::default(),
            change_subscriptions: ChangeSubscriptions::default(),
            ready: CancellationToken::new(),
        })
    }
}
