//! The configuration of the controllers. Defaults of the product's flags are elsewhere; here are only defaults that all ways of running share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::Connection;
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards};
use tenure_planner::package_settings::Settings as PackageSettings;
use tenure_sources::{Limits, Policy};
use tenure_tenancy::{Instance, Settings};

use crate::context::enabled_kinds::EnabledKinds;
use crate::context::lane_settings::LaneMode;
use crate::endpoints::artifact_endpoint::ArtifactEndpoint;
use crate::endpoints::receiver_endpoint::ReceiverEndpoint;
use crate::limits::budgets::Budgets;
use crate::rendering::renderer::RenderLimits;
use crate::sharding::ShardPeers;
use crate::telemetry::lane_spans::SpanSink;
use crate::telemetry::metrics::Metrics;

/// The configuration of the controllers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The connection to the API server, with the controller's own credential.
    pub connection: Connection,
    /// Folder for the artifacts, created if it is missing. Only one process may use it at a time.
    pub artifacts: PathBuf,
    /// The platform namespace, and the default ServiceAccounts that an administrator set.
    pub settings: Settings,
    /// The kinds that are reconciled.
    pub enabled_kinds: EnabledKinds,
    /// The addresses that sources of the platform namespace may reach.
    pub platform_sources: Policy,
    /// The addresses that all other sources may reach.
    pub tenant_sources: Policy,
    /// The bounds of a fetch and of an artifact.
    pub limits: Limits,
    /// Memory and disk limits for fetches, files and artifacts.
    pub budgets: Budgets,
    /// How many objects of one tenant are reconciled at the same time.
    pub lane_width: usize,
    /// Limits for the time and the output of a rendering.
    pub rendering: RenderLimits,
    /// Objects that are deleted only after an annotation allows it.
    pub guards: Guards,
    /// An administrator's settings for every apply.
    pub applying: ApplySettings,
    /// The place of lanes: in this process, in processes of their own, or in Pods.
    pub lanes: LaneMode,
    /// Whether an encrypted file that was changed after encryption is refused. Otherwise the change is only reported.
    pub strict_sops: bool,
    /// The settings of Packages and PackageSources.
    pub packages: PackageSettings,
    /// The metrics. The server of the metrics has a clone.
    pub metrics: Metrics,
    /// The exporter for spans of lanes that run apart, if spans are exported.
    pub spans: Option<SpanSink>,
    /// Answers the listener for requests to Receivers.
    pub receiver_endpoint: ReceiverEndpoint,
    /// Answers the server of artifacts for other controllers.
    pub artifact_endpoint: ArtifactEndpoint,
    /// The base address of that server, as in statuses. Absent if artifacts are not served.
    pub advertised: Option<ArtifactBase>,
    /// The interval at which policies are checked and their report is written again without a reported change. A weakened policy is restored as soon
    /// as a watch reports it, independent of this interval.
    pub policy_interval: Duration,
    /// Whether the controllers report in the cluster's Enforcement on lanes. The embedded control plane has no Enforcement.
    pub reports_lanes: bool,
    /// The instance that this is, out of one or several.
    pub instance: Instance,
    /// The known state of the other instances.
    pub(crate) shards: Option<Arc<ShardPeers>>,
}

impl Config {
    /// Creates a configuration with the usual bounds: public addresses only, sixteen reconciliations at a time in a lane, a minute for a rendering.
    #[must_use]
    pub fn new(connection: Connection, artifacts: impl Into<PathBuf>) -> Self {
        Self {
            connection,
            artifacts: artifacts.into(),
            settings: Settings::default(),
            enabled_kinds: EnabledKinds::default(),
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
            packages: PackageSettings::default(),
            metrics: Metrics::default(),
            spans: None,
            receiver_endpoint: ReceiverEndpoint::default(),
            artifact_endpoint: ArtifactEndpoint::default(),
            advertised: None,
            policy_interval: Duration::from_secs(30),
            reports_lanes: false,
            instance: Instance::default(),
            shards: None,
        }
    }
}
