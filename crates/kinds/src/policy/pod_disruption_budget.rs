//! PodDisruptionBudgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::{Generation, Kind};
use crate::schema::validation::names::NameRule;
use crate::schema::validation::{statuses, workloads};
use crate::table::cells;

/// PodDisruptionBudgets.
pub(super) static POD_DISRUPTION_BUDGET: Kind = Kind {
    names: NameRule::PathSegment,
    needs_resource_version: true,
    generation: Generation::Counted,
    initial_status: Some(
        || json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    ),
    metadata_comes_last: true,
    validate: workloads::disruption_budget,
    validate_status: |value, _, errors| statuses::budget(value, errors),
    cells: show,
    ..Kind::named("policy", "PodDisruptionBudget", "poddisruptionbudgets")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let part = |pointer: &str| Value::from(cells::int_or_string(object, pointer).unwrap_or_else(|| "N/A".to_owned()));
    vec![
        cells::name(object),
        part("/spec/minAvailable"),
        part("/spec/maxUnavailable"),
        cells::number(object, "/status/disruptionsAllowed").into(),
        cells::age(object, now),
    ]
}
