//! What every lane is given, and none of them owns: the way to the API server, what an administrator set, the sums that bound all lanes
//! together, and whom to wake. Holds names at most, and no object of anybody's.

use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::{Client, ClientPool};
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards};
use tenure_sources::{ByteBudget, Connect, Reach, StorageError};
use tenure_tenancy::Settings;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::artifacts::Depot;
use crate::config::Config;
use crate::elsewhere::ElsewhereBudgets;
use crate::figures::Figures;
use crate::hooks::Hooks;
use crate::listeners::Listeners;
use crate::mailbox::MailboxTable;
use crate::render::Renderings;
use crate::switches::Switches;
use crate::under_way::UnderWay;

/// What every lane is given.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) clients: ClientPool,
    /// The controller itself, in turns that it shares with no lane.
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
    /// Where artifacts are served to others, if they are.
    pub(crate) advertised: Option<ArtifactBase>,
    /// How soon policies are looked at though nobody has told of a change.
    pub(crate) policy_interval: Duration,
    /// Whether the controllers report in the cluster's Enforcement on lanes.
    pub(crate) reports_lanes: bool,
    /// How many reconciliations a lane may have at the same time.
    pub(crate) lane_width: usize,
    /// For how many namespaces at the same time the rights of lanes are seen to.
    pub(crate) rights: Arc<Semaphore>,
    /// The room that the renderings of all lanes share.
    pub(crate) renderings: Renderings,
    /// The disk and the memory that the artifacts of all lanes share.
    pub(crate) depot: Arc<Depot>,
    /// Room for the objects that reconciliations look at.
    pub(crate) looking: ByteBudget,
    /// What other clusters may take.
    pub(crate) elsewhere: ElsewhereBudgets,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) figures: Figures,
    pub(crate) mailboxes: Arc<MailboxTable>,
    pub(crate) listeners: Listeners,
    /// Cancelled once everything that is there has been seen.
    pub(crate) ready: CancellationToken,
}

impl Means {
    /// Where a source of the platform's, or of anybody else's, may be fetched from.
    pub(crate) fn reach(&self, platform: bool) -> &Reach {
        if platform {
            &self.platform_sources
        } else {
            &self.tenant_sources
        }
    }

    /// From here on another process opens all connections, and says which may be.
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
