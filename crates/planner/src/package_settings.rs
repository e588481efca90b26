//! The settings of Packages and PackageSources, from the administrator who runs the program, and limits that both kinds have.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::package::SUPPLY_NAMESPACE;

/// Components of one variant.
pub const COMPONENTS: usize = 200;
/// Packages that a variant depends on, and components that a component depends on.
pub const DEPENDENCIES: usize = 200;

/// The settings of Packages and PackageSources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// ServiceAccount of the platform namespace that writes HelmReleases, Namespaces and ArtifactGenerators. Without one, nothing is written.
    pub service_account: Option<String>,
    /// `spec.serviceAccountName` of the HelmReleases: the account of their namespace that helm-controller acts as. Default: its own.
    pub release_account: Option<String>,
    /// Namespace of the ArtifactGenerators and of the charts that they make.
    pub artifact_namespace: String,
    /// `spec.interval` of the HelmReleases.
    pub interval: Duration,
    /// Pause after a failed installation or upgrade.
    pub retry_interval: Duration,
    /// Timeout of an installation.
    pub install_timeout: Duration,
    /// Timeout of an upgrade.
    pub upgrade_timeout: Duration,
    /// `spec.maxHistory` of the HelmReleases; 0 for no limit.
    pub max_history: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_account: None,
            release_account: None,
            artifact_namespace: SUPPLY_NAMESPACE.to_owned(),
            interval: Duration::from_secs(300),
            retry_interval: Duration::from_secs(30),
            install_timeout: Duration::from_secs(600),
            upgrade_timeout: Duration::from_secs(600),
            max_history: 5,
        }
    }
}
