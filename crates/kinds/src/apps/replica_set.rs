//! The kind ReplicaSet.

use serde_json::{Value, json};

use crate::core_group::pod::counts::{Counts, validate_counts};
use crate::core_group::pod::owners::{fixed_selector, selected_template, validate_non_negative};
use crate::core_group::pod::template::{self, TEMPLATE};
use crate::core_group::pod::validation::ExtraVolumes;
use crate::core_group::replication_controller::show_replicas;
use crate::kind::{Generation, Kind};
use crate::schema::{FieldError, FieldPath, defaults};

/// The counts in a status.
const COUNTS: Counts = Counts {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: Counts::PLAIN,
};

/// ReplicaSets.
pub(super) static REPLICA_SET: Kind = Kind {
    generation: Generation::Counted,
    initial_status: Some(|| json!({"replicas": 0})),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    defaults: |_, object| defaults::with_spec(object, |spec| defaults::set(spec, "replicas", 1)),
    validate,
    validate_update,
    validate_status: |value, old, errors| validate_counts(&COUNTS, value, old, errors),
    warnings: template::warnings_of_changed_generation,
    cells: show_replicas,
    ..Kind::new("apps", "ReplicaSet", "replicasets")
};

static NOTHING: Value = Value::Null;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (value.get("spec").unwrap_or(&NOTHING), FieldPath::new("spec"));
    validate_non_negative(spec, &["replicas", "minReadySeconds"], &path, errors);
    let no_claims = ExtraVolumes::new();
    selected_template(spec, "deployment", "ReplicaSet", &no_claims, &path, errors);
}

/// Checks that the selector stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    fixed_selector(spec, before, &FieldPath::new("spec"), errors);
}
