//! The flags for Packages: the accounts that an administrator names for them.

use clap::Args;
use tenure_api::names::ServiceAccountName;
use tenure_controllers::PackageSettings;
use tenure_tenancy::identity;

use crate::failure::Failure;

/// Flags for Packages and PackageSources.
#[derive(Debug, Args)]
pub(crate) struct PackageFlags {
    /// ServiceAccount of tenure-system that writes what Packages and PackageSources generate: HelmReleases, Namespaces and ArtifactGenerators. Without it
    /// nothing is written for them (IdentityMissing).
    #[arg(long, value_name = "NAME")]
    packages_service_account: Option<String>,
    /// ServiceAccount in the namespace of each HelmRelease of a Package, which helm-controller acts as (spec.serviceAccountName). Unset: its own account.
    #[arg(long, value_name = "NAME")]
    packages_release_account: Option<String>,
}

impl PackageFlags {
    /// Reads the settings.
    pub(crate) fn read_settings(&self) -> Result<PackageSettings, Failure> {
        let account = self.packages_service_account.as_deref();
        if account.is_some() {
            identity::decide_for_packages(account)
                .map_err(|denial| Failure::usage(format!("--packages-service-account: {}", denial.message)))?;
        }
        if let Some(name) = &self.packages_release_account {
            ServiceAccountName::new(name.as_str())
                .map_err(|error| Failure::usage(format!("--packages-release-account: {error}")))?;
        }
        Ok(PackageSettings {
            service_account: self.packages_service_account.clone(),
            release_account: self.packages_release_account.clone(),
            ..PackageSettings::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: PackageFlags,
    }

    #[test]
    fn accounts_of_tenure_are_refused_for_packages() {
        let read = |flags: &[&str]| {
            let line = std::iter::once("run").chain(flags.iter().copied());
            Line::try_parse_from(line).expect("flags").flags.read_settings()
        };
        assert_eq!(read(&[]).expect("settings"), PackageSettings::default());
        let named = read(&["--packages-service-account", "packages"]).expect("settings");
        assert_eq!(named.service_account.as_deref(), Some("packages"));
        assert!(read(&["--packages-service-account", ""]).is_err());
        assert!(read(&["--packages-service-account", "tenure-controller"]).is_err());
        assert!(read(&["--packages-release-account", "Not A Name"]).is_err());
    }
}
