//! The registered webhooks. Each stored version of a configuration is decoded once.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tenure_kinds::expressions::{Compiler, Conditions};
use tenure_kinds::object::ObjectExt as _;

use super::super::cache::Cache;
use super::super::matching::{GROUP, Matcher};
use crate::keys;
use crate::view::View;
use crate::webhook_client::{ClientConfig, Endpoint};

/// The admission phase in which a webhook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum Phase {
    Mutating,
    Validating,
}

impl Phase {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// A webhook of a configuration, decoded and prepared for calls.
#[derive(Debug)]
pub(in crate::admission) struct Hook {
    /// Unique among all webhooks.
    pub(super) id: String,
    /// The name of its configuration object.
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) matcher: Matcher,
    pub(super) conditions: Conditions,
    pub(super) endpoint: Endpoint,
    pub(super) ignores_failures: bool,
    pub(super) allows_dry_run: bool,
    pub(super) reinvoked: bool,
    pub(super) timeout_seconds: u64,
    /// The first of its review versions that this server supports.
    pub(super) review_version: Option<&'static str>,
}

/// The fields of a webhook in its configuration, with empty defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Stored {
    name: String,
    client_config: ClientConfig,
    failure_policy: String,
    side_effects: String,
    timeout_seconds: Option<u64>,
    admission_review_versions: Vec<String>,
    reinvocation_policy: String,
}

fn read(phase: Phase, configuration: &str, value: &Value) -> Hook {
    let stored: Stored = serde_json::from_value(value.clone()).unwrap_or_default();
    Hook {
        id: format!("{configuration}/{}", stored.name),
        configuration: configuration.to_owned(),
        name: stored.name,
        phase,
        matcher: Matcher::read(value),
        conditions: Conditions::read(value, &Compiler::default(), false),
        endpoint: Endpoint::from_config(&stored.client_config),
        ignores_failures: stored.failure_policy == "Ignore",
        allows_dry_run: matches!(stored.side_effects.as_str(), "None" | "NoneOnDryRun"),
        reinvoked: stored.reinvocation_policy == "IfNeeded",
        timeout_seconds: stored.timeout_seconds.unwrap_or(10),
        review_version: stored
            .admission_review_versions
            .iter()
            .find_map(|version| match version.as_str() {
                "v1" => Some("v1"),
                "v1beta1" => Some("v1beta1"),
                _ => None,
            }),
    }
}

/// The decoded webhooks of all configurations, by phase. Only changed configurations are decoded again.
#[derive(Debug, Default)]
pub(in crate::admission) struct HookTable {
    mutating: Cache<Vec<Arc<Hook>>>,
    validating: Cache<Vec<Arc<Hook>>>,
}

impl HookTable {
    /// Returns the webhooks of one phase, in the order of their configurations' names.
    pub(in crate::admission) fn list_hooks(&self, view: &View, phase: Phase) -> Vec<Arc<Hook>> {
        let prefix = keys::resource_prefix(GROUP, phase.plural(), None);
        let cache = match phase {
            Phase::Mutating => &self.mutating,
            Phase::Validating => &self.validating,
        };
        let configurations = cache.read_all(view, &prefix, |object| {
            let list = object.get("webhooks").and_then(Value::as_array);
            let own = list.into_iter().flatten();
            own.map(|value| Arc::new(read(phase, object.name(), value))).collect()
        });
        let all = configurations.iter().flat_map(|configuration| configuration.iter());
        all.cloned().collect()
    }
}
