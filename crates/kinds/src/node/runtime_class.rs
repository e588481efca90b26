//! RuntimeClasses.

use crate::kind::Kind;
use crate::schema::validation::runtimes;
use crate::schema::warnings;
use crate::table::cells;

/// RuntimeClasses.
pub(super) static RUNTIME_CLASS: Kind = Kind {
    is_created_by_update: true,
    needs_resource_version: true,
    validate: runtimes::runtime_class,
    validate_update: runtimes::runtime_class_update,
    warnings: |object, _| warnings::runtime_class(object),
    cells: |object, now| {
        let handler = cells::text(object, "/handler");
        vec![cells::name(object), handler.into(), cells::age(object, now)]
    },
    ..Kind::named("node.k8s.io", "RuntimeClass", "runtimeclasses")
};
