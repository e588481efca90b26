//! The changes of a PackageValues, as the plan of its Package reads them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tenure_api::package::ValuesVersion;
use tenure_api::package_values::ComponentValues;
use tenure_api::{Package, PackageValues};

use crate::chart_values::{Effective, HelmReference, Layer, Override, Reference, ValuesError};

/// The changes of a PackageValues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The object and the generation that the changes come from, for the status of the Package.
    pub origin: ValuesVersion,
    /// Changes of components, by name.
    pub components: BTreeMap<String, ComponentOverride>,
    /// Packages that need not be ready, in addition to those of the Package.
    pub ignore_dependencies: Vec<String>,
}

/// The changes of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentOverride {
    /// Installs the component, or doesn't. Default: as in the Package.
    pub enabled: Option<bool>,
    /// Changes of the values, or the reason for which they can't be read.
    pub changes: Result<Override, ValuesError>,
}

impl Overrides {
    /// Reads the changes of a PackageValues.
    #[must_use]
    pub fn of(values: &PackageValues) -> Self {
        let read = |component: &ComponentValues| ComponentOverride {
            enabled: component.enabled,
            changes: Override::of(component.values.as_ref(), &component.unset, &component.lists),
        };
        let components = values.spec.components.iter();
        let mut components: BTreeMap<String, ComponentOverride> = components
            .map(|(name, component)| (name.clone(), read(component)))
            .collect();
        for (index, reference) in values.spec.values_from.iter().enumerate() {
            let component = components.entry(reference.component.clone());
            let component = component.or_insert_with(|| read(&ComponentValues::default()));
            if let Ok(changes) = &mut component.changes {
                changes.references.push(Reference::of(index, reference));
            }
        }
        Self {
            origin: ValuesVersion {
                generation: values.metadata.generation.unwrap_or_default(),
                uid: values.metadata.uid.clone().unwrap_or_default(),
            },
            components,
            ignore_dependencies: values.spec.ignore_dependencies.clone(),
        }
    }
}

/// The values of a component's HelmRelease.
#[derive(Clone, Debug, PartialEq)]
pub enum ReleaseValues {
    /// Nothing changes the values of the Package, which are used unread.
    Unchanged(Option<Map<String, Value>>),
    /// The values after the changes of a PackageValues.
    Changed(Effective),
}

impl ReleaseValues {
    /// Returns the inline values of the HelmRelease; nothing if it has none.
    #[must_use]
    pub fn inline(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Unchanged(values) => values.as_ref(),
            Self::Changed(effective) => Some(&effective.values),
        }
    }

    /// Returns the values that helm-controller reads from other objects.
    #[must_use]
    pub fn references(&self) -> &[HelmReference] {
        match self {
            Self::Unchanged(_) => &[],
            Self::Changed(effective) => &effective.references,
        }
    }
}

/// Lays the changes of a component over its values in the Package. `namespace` is that of the release, if it is known.
///
/// # Errors
/// With the path of the value that is invalid. The HelmRelease stays as it is then.
pub fn merge_values(
    package: &Package,
    overrides: Option<&Overrides>,
    component: &str,
    namespace: Option<&str>,
) -> Result<ReleaseValues, ValuesError> {
    let own = package.spec.components.get(component);
    let own = own.and_then(|own| own.values.as_ref());
    let Some(change) = overrides.and_then(|overrides| overrides.components.get(component)) else {
        return Ok(ReleaseValues::Unchanged(own.cloned()));
    };
    let changes = change.changes.as_ref().map_err(Clone::clone)?;
    if changes.is_empty() {
        return Ok(ReleaseValues::Unchanged(own.cloned()));
    }
    if let Some(namespace) = namespace {
        for reference in &changes.references {
            reference.check_namespace(namespace)?;
        }
    }
    let layer = own.map_or_else(|| Ok(Layer::default()), Layer::of)?;
    Ok(ReleaseValues::Changed(changes.apply(&layer, &layer)?))
}
