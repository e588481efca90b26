//! The weakest Pod Security level that a namespace of a Tenant may have.

use super::TenantFacts;
use crate::pod_security::PodSecurityLevel;
use crate::settings::Settings;

impl TenantFacts {
    /// Returns the weakest Pod Security level that a namespace of the Tenant may have. None if the Tenant sets no level and had the namespace
    /// before levels were set.
    #[must_use]
    pub fn find_pod_security(&self, settings: &Settings, namespace: &str) -> Option<PodSecurityLevel> {
        if self.pod_security.is_some() {
            return self.pod_security;
        }
        let recorded = self.recorded_levels.get(namespace).copied();
        match recorded {
            Some(level) if self.marks.chooses_pod_security() => Some(level),
            None if self.recorded.contains_key(namespace) => None,
            Some(_) | None => Some(settings.pod_security),
        }
    }
}
