//! The kinds of Flux's helm-controller, for their definitions. A HelmRelease of a Package needs them. helm-controller reconciles HelmReleases, and Flux's
//! source-controller HelmRepositories and HelmCharts.

mod actions;
mod chart;
mod release;
mod release_status;
mod repository;

pub use chart::{HelmChart, HelmChartSpec, HelmChartStatus};
pub use release::{HelmRelease, HelmReleaseSpec};
pub use release_status::HelmReleaseStatus;
pub use repository::{HelmRepository, HelmRepositorySpec, HelmRepositoryStatus};
