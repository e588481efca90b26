//! The variant that a Package selects, and the components that it installs.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenure_api::package::DEFAULT_VARIANT;
use tenure_api::package_source::{ComponentInstall, PackageVariant, VariantComponent};
use tenure_api::{ObjectId, Package, PackageSource, reason};

use super::overrides::Overrides;
use crate::package_settings::{Settings, describe_refusal};
use crate::refusal::Failure;

/// The group of HelmReleases.
pub(super) const HELM_GROUP: &str = "helm.toolkit.fluxcd.io";
/// The version of HelmReleases.
pub(super) const HELM_VERSION: &str = "v2";

/// The name of a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReleaseName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ReleaseName {
    /// Returns the id of the HelmRelease.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        ObjectId {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            group: HELM_GROUP.to_owned(),
            kind: "HelmRelease".to_owned(),
        }
    }
}

impl fmt::Display for ReleaseName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.id().subject())
    }
}

/// A reason for which something is not done, for conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Describes a failed request.
    pub(super) fn of_failure(settings: &Settings, id: &ObjectId, verb: &str, failure: &Failure) -> Self {
        let otherwise = reason::packages::HELM_RELEASE_FAILED;
        let (reason, message) = describe_refusal(settings, id, (verb, failure), otherwise);
        Self::new(reason, message)
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(reason::packages::INVALID_CONFIGURATION, message)
    }

    /// Checks whether only a change of an object by a user ends the problem.
    pub(super) fn is_stalled(&self) -> bool {
        ![
            reason::packages::HELM_RELEASE_FAILED,
            reason::IDENTITY_MISSING,
            reason::packages::DEPENDENCIES_NOT_READY,
        ]
        .contains(&self.reason)
    }
}

/// A component that the variant installs.
#[derive(Clone, Debug)]
pub(crate) struct Component<'a> {
    pub(crate) spec: &'a VariantComponent,
    pub(crate) install: &'a ComponentInstall,
    pub(crate) release: ReleaseName,
    pub(crate) is_enabled: bool,
}

/// The selected variant.
#[derive(Clone, Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) source: &'a PackageSource,
    pub(crate) variant: &'a PackageVariant,
    /// The components with an installation, in their order.
    pub(crate) components: Vec<Component<'a>>,
}

/// Returns the name of the variant that a Package selects.
pub(super) fn name_variant(package: &Package) -> &str {
    let variant = package.spec.variant.as_deref();
    variant.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_VARIANT)
}

/// Selects the variant of a Package. A missing variant is never replaced by another one.
pub(crate) fn select_variant<'a>(
    package: &Package,
    source: Option<&'a PackageSource>,
    overrides: Option<&Overrides>,
) -> Result<Selection<'a>, Problem> {
    let name = package.metadata.name.as_deref().unwrap_or_default();
    let Some(source) = source else {
        return Err(Problem::new(
            reason::packages::PACKAGE_SOURCE_NOT_FOUND,
            format!(
                "PackageSource/{name} does not exist: create it, or delete the Package. Existing HelmReleases stay as they are"
            ),
        ));
    };
    let wanted = name_variant(package);
    let Some(variant) = source.spec.variants.iter().find(|variant| variant.name == wanted) else {
        let known: Vec<String> = source
            .spec
            .variants
            .iter()
            .map(|variant| variant.name.clone())
            .collect();
        return Err(Problem::new(
            reason::packages::VARIANT_NOT_FOUND,
            format!(
                "spec.variant: PackageSource/{name} has no variant {wanted:?}; it has {}. Existing HelmReleases stay as they are",
                match known.is_empty() {
                    true => "none".to_owned(),
                    false => crate::outcome::join_names(&known, 1 << 10),
                }
            ),
        ));
    };
    let components = variant.components.iter().filter_map(|spec| {
        let install = spec.install.as_ref()?;
        Some(Component {
            spec,
            install,
            release: name_release(spec, install),
            is_enabled: is_enabled(package, overrides, &spec.name),
        })
    });
    Ok(Selection {
        source,
        variant,
        components: components.collect(),
    })
}

fn name_release(spec: &VariantComponent, install: &ComponentInstall) -> ReleaseName {
    let name = install.release_name.as_deref().filter(|name| !name.is_empty());
    ReleaseName {
        namespace: install.namespace.clone().unwrap_or_default(),
        name: name.unwrap_or(&spec.name).to_owned(),
    }
}

fn is_enabled(package: &Package, overrides: Option<&Overrides>, component: &str) -> bool {
    let overridden = overrides.and_then(|overrides| overrides.components.get(component)?.enabled);
    let own = package.spec.components.get(component).and_then(|own| own.enabled);
    overridden.or(own).unwrap_or(true)
}

/// Lists the Packages that have to be ready first, each once.
pub(super) fn list_dependencies(
    package: &Package,
    variant: &PackageVariant,
    overrides: Option<&Overrides>,
) -> Vec<String> {
    let ignored_by_values = overrides.map(|overrides| overrides.ignore_dependencies.as_slice());
    let ignored = package
        .spec
        .ignore_dependencies
        .iter()
        .chain(ignored_by_values.into_iter().flatten());
    let ignored: std::collections::BTreeSet<&String> = ignored.collect();
    let mut seen = std::collections::BTreeSet::new();
    let wanted = variant.depends_on.iter().filter(|name| !ignored.contains(name));
    wanted.filter(|name| seen.insert((*name).clone())).cloned().collect()
}
