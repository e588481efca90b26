//! ReplicaSets.

use serde_json::json;

use crate::core::pod::template::{self, TEMPLATE};
use crate::core::replication_controller::show_replicas;
use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::{statuses, workloads};

/// ReplicaSets.
pub(super) static REPLICA_SET: Kind = Kind {
    generation: Generation::Counted,
    initial_status: Some(|| json!({"replicas": 0})),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    defaults: |_, object| defaults::with_spec(object, |spec| defaults::set(spec, "replicas", 1)),
    validate_create: |value, errors| workloads::object("ReplicaSet", value, None, errors),
    validate_update: |value, old, errors| workloads::object("ReplicaSet", value, Some(old), errors),
    validate_status: |value, old, errors| statuses::counted("ReplicaSet", value, old, errors),
    warnings: template::warnings_of_changed_generation,
    cells: show_replicas,
    ..Kind::named("apps", "ReplicaSet", "replicasets")
};
