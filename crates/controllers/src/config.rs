//! What the controllers need to be told. Owns no defaults of the product's flags beyond those that every way of running shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::Connection;
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards};
use tenure_sources::{Limits, Policy};
use tenure_tenancy::{Instance, Settings};

use crate::artifact_endpoint::ArtifactEndpoint;
use crate::budgets::Budgets;
use crate::figures::Figures;
use crate::hooks::Hooks;
use crate::lane_mode::LaneMode;
use crate::lane_spans::SpanSink;
use crate::render::RenderLimits;
use crate::sharding::ShardBoard;
use crate::switches::Switches;

/// What the controllers need to be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the API server is reached, and what the controller itself authenticates with.
    pub connection: Connection,
    /// Folder for the artifacts; made if it is missing. One process at a time.
    pub artifacts: PathBuf,
    /// The platform namespace, and the default ServiceAccounts that an administrator set.
    pub settings: Settings,
    /// Which kinds are reconciled.
    pub switches: Switches,
    /// What sources of the platform namespace may connect to.
    pub platform_sources: Policy,
    /// What all other sources may connect to.
    pub tenant_sources: Policy,
    /// The bounds of a fetch and of an artifact.
    pub limits: Limits,
    /// What fetches, files and artifacts may take of memory and disk.
    pub budgets: Budgets,
    /// How many objects of one tenant are worked on at the same time.
    pub lane_width: usize,
    /// How long a rendering may take, and how much it may make.
    pub rendering: RenderLimits,
    /// What is not deleted before somebody has said so.
    pub guards: Guards,
    /// What an administrator decides about every apply.
    pub applying: ApplySettings,
    /// Where lanes run.
    pub lanes: LaneMode,
    /// Whether an encrypted file that was changed afterwards is refused, and not only told of.
    pub strict_sops: bool,
    /// Where it is counted what is done; whoever serves it keeps a clone.
    pub figures: Figures,
    /// Who takes the spans of lanes that are apart, if somebody wants them.
    pub spans: Option<SpanSink>,
    /// What is asked by whoever listens for requests to Receivers.
    pub hooks: Hooks,
    /// What is asked by whoever serves artifacts to others.
    pub artifact_endpoint: ArtifactEndpoint,
    /// Where that is, as statuses tell it; nothing when artifacts are served to nobody.
    pub advertised: Option<ArtifactBase>,
    /// How soon policies are looked at, and what is said of them is written again, though nobody has told of a change. What somebody weakens is put back
    /// when a watch tells of it, however long this is.
    pub policy_interval: Duration,
    /// Whether the controllers report in the cluster's Enforcement on lanes. The embedded control plane has no Enforcement.
    pub reports_lanes: bool,
    /// Which of several instances this is.
    pub instance: Instance,
    /// What it knows of the others.
    pub(crate) shards: Option<Arc<ShardBoard>>,
}

impl Config {
    /// The usual bounds: public addresses only, sixteen at a time in a lane, a minute for a rendering.
    #[must_use]
    pub fn new(connection: Connection, artifacts: impl Into<PathBuf>) -> Self {
        Self {
            connection,
            artifacts: artifacts.into(),
            settings: Settings::default(),
            switches: Switches::default(),
            platform_sources: Policy::default(),
            tenant_sources: Policy::default(),
            limits: Limits::default(),
            budgets: Budgets::default(),
            lane_width: 16,
            rendering: RenderLimits::default(),
            guards: Guards::default(),
            applying: ApplySettings::default(),
            lanes: LaneMode::default(),
            strict_sops: false,
            figures: Figures::default(),
            spans: None,
            hooks: Hooks::default(),
            artifact_endpoint: ArtifactEndpoint::default(),
            advertised: None,
            policy_interval: Duration::from_secs(30),
            reports_lanes: false,
            instance: Instance::default(),
            shards: None,
        }
    }
}
