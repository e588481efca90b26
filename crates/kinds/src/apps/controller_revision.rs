//! ControllerRevisions.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::validation::workloads;
use crate::table::cells;

/// ControllerRevisions.
pub(super) static CONTROLLER_REVISION: Kind = Kind {
    validate_create: |value, errors| workloads::object("ControllerRevision", value, None, errors),
    validate_update: |value, old, errors| workloads::object("ControllerRevision", value, Some(old), errors),
    cells: show,
    ..Kind::named("apps", "ControllerRevision", "controllerrevisions")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = cells::list(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let owner = owner.map_or(cells::NONE.to_owned(), |owner| {
        let version = cells::text(owner, "/apiVersion");
        let kind = cells::text(owner, "/kind").to_lowercase();
        let kind = version
            .split_once('/')
            .map_or(kind.clone(), |(group, _)| format!("{kind}.{group}"));
        format!("{kind}/{}", cells::text(owner, "/name"))
    });
    vec![
        cells::name(object),
        owner.into(),
        cells::number(object, "/revision").into(),
        cells::age(object, now),
    ]
}
