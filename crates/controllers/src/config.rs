//! What the controllers need to be told. Owns no defaults of the product's flags beyond those that every way of running shares.

use std::path::PathBuf;
use std::time::Duration;

use tenure_cluster::Connection;
use tenure_sources::{Limits, Policy};
use tenure_tenancy::Settings;

/// What the controllers need to be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the API server is reached, and what the controller itself authenticates with.
    pub connection: Connection,
    /// Folder for the artifacts; made if it is missing. One process at a time.
    pub artifacts: PathBuf,
    /// The platform namespace, and the default ServiceAccounts that an administrator set.
    pub settings: Settings,
    /// What sources of the platform namespace may connect to.
    pub platform_sources: Policy,
    /// What all other sources may connect to.
    pub tenant_sources: Policy,
    /// The bounds of a fetch and of an artifact.
    pub limits: Limits,
    /// How many objects of one tenant are worked on at the same time.
    pub lane_width: usize,
    /// How long a rendering may take.
    pub render_timeout: Duration,
}

impl Config {
    /// The usual bounds: public addresses only, sixteen at a time in a lane, a minute for a rendering.
    #[must_use]
    pub fn new(connection: Connection, artifacts: impl Into<PathBuf>) -> Self {
        Self {
            connection,
            artifacts: artifacts.into(),
            settings: Settings::default(),
            platform_sources: Policy::default(),
            tenant_sources: Policy::default(),
            limits: Limits::default(),
            lane_width: 16,
            render_timeout: Duration::from_secs(60),
        }
    }
}
