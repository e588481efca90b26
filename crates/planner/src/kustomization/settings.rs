//! An administrator's settings for the applies of all Kustomizations: two flags of Flux's controller.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;

/// The administrator's settings for the applies of all Kustomizations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplySettings {
    /// The kinds of [`Stage::Custom`](crate::plan::Stage::Custom): applied after the built-in stages, and before all other objects.
    pub custom_stage: BTreeSet<StageKind>,
    /// Prefixes of field managers whose fields are taken over, in addition to kubectl's.
    pub overridden_managers: BTreeSet<String>,
}

/// A kind in any version: `Kind` of the core group, or `group/Kind`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StageKind {
    group: String,
    kind: String,
}

impl TryFrom<String> for StageKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (group, kind) = text.split_once('/').unwrap_or(("", &text));
        if kind.is_empty() || kind.contains('/') || (group.is_empty() && text.contains('/')) {
            return Err(format!("{text:?} is neither Kind nor group/Kind"));
        }
        Ok(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
        })
    }
}

impl From<StageKind> for String {
    fn from(kind: StageKind) -> Self {
        if kind.group.is_empty() {
            kind.kind
        } else {
            format!("{}/{}", kind.group, kind.kind)
        }
    }
}

impl ApplySettings {
    /// Checks whether an object's kind is in [`ApplySettings::custom_stage`].
    pub(super) fn has_own_stage(&self, id: &ObjectId) -> bool {
        let is_kind = |kind: &StageKind| kind.group == id.group && kind.kind == id.kind;
        self.custom_stage.iter().any(is_kind)
    }

    /// Checks whether the fields of a manager are taken over.
    pub(super) fn takes_over(&self, manager: &str) -> bool {
        let begins = |beginning: &String| !beginning.is_empty() && manager.starts_with(beginning.as_str());
        manager != KUSTOMIZE_CONTROLLER && self.overridden_managers.iter().any(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_flux_reads_them() {
        for text in ["ServiceAccount", "rbac.authorization.k8s.io/Role"] {
            let kind = StageKind::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(kind), text);
        }
        for text in ["", "/", "/Role", "a/", "a/b/c"] {
            assert!(StageKind::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn overridden_managers_match_by_prefix_except_own() {
        let settings = ApplySettings {
            overridden_managers: ["kustomize".to_owned(), "helm".to_owned(), String::new()].into(),
            ..ApplySettings::default()
        };
        assert!(settings.takes_over("helm-controller") && settings.takes_over("kustomize-cli"));
        assert!(!settings.takes_over(KUSTOMIZE_CONTROLLER) && !settings.takes_over("hpa"));
    }
}
