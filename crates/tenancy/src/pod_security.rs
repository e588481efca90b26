//! Pod Security levels: the least strict level that a Tenant's namespaces may have. Kubernetes' Pod Security admission enforces the level by a
//! label of the namespace. Owners may choose a stricter level, and never a weaker one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tenure_api::metadata::{POD_SECURITY, POD_SECURITY_ENFORCE};
use tenure_api::tenant::{AdditionalMetadata, TenantSpace};
use tenure_api::{ObjectMeta, Tenant};

/// A level of the Pod Security Standards, from the weakest to the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurityLevel {
    /// Everything is allowed.
    #[default]
    Privileged,
    /// Known ways out of a container are refused.
    Baseline,
    /// Pods are hardened.
    Restricted,
}

impl PodSecurityLevel {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Privileged, Self::Baseline, Self::Restricted];

    /// Returns the level in the spelling of labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Reads the value of a label.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }

    /// Reads an administrator's value. An unknown level counts as the strictest one.
    #[must_use]
    pub fn parse_strictly(text: &str) -> Self {
        Self::parse(text).unwrap_or(Self::Restricted)
    }
}

impl fmt::Display for PodSecurityLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for PodSecurityLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
            .ok_or_else(|| format!("{text:?} is not a Pod Security level: privileged, baseline or restricted"))
    }
}

/// Returns the value of a Tenant's annotation for its level.
#[must_use]
pub fn read_annotation(tenant: &ObjectMeta) -> Option<&str> {
    tenant.annotations.as_ref()?.get(POD_SECURITY).map(String::as_str)
}

/// Returns the mistake in a Tenant's annotation for its level, if there is one.
#[must_use]
pub fn find_problem(tenant: &Tenant) -> Option<String> {
    let level = read_annotation(&tenant.metadata)?;
    let error = level.parse::<PodSecurityLevel>().err()?;
    Some(format!(
        "metadata.annotations[{POD_SECURITY}]: {error}. Until it is corrected, restricted holds"
    ))
}

/// Returns the level of a namespace in the record of its Tenant.
#[must_use]
pub fn read_recorded(metadata: Option<&AdditionalMetadata>) -> Option<PodSecurityLevel> {
    let label = metadata?.labels.get(POD_SECURITY_ENFORCE)?;
    Some(PodSecurityLevel::parse_strictly(label))
}

/// Returns the Pod Security levels in a status, by the names of namespaces.
pub(crate) fn read_levels(spaces: &[TenantSpace]) -> BTreeMap<String, PodSecurityLevel> {
    let levels = spaces.iter();
    levels
        .filter_map(|space| Some((space.name.clone(), read_recorded(space.metadata.as_ref())?)))
        .collect()
}
