//! IngressClasses.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::networking;
use crate::table::cells;

/// IngressClasses.
pub(super) static INGRESS_CLASS: Kind = Kind {
    generation: Generation::Counted,
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            if let Some(Value::Object(parameters)) = spec.get_mut("parameters") {
                defaults::set(parameters, "scope", "Cluster");
            }
        });
    },
    validate: networking::ingress_class,
    validate_update: networking::ingress_class_update,
    cells: show,
    ..Kind::named("networking.k8s.io", "IngressClass", "ingressclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = object
        .pointer("/spec/parameters")
        .filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or(cells::NONE.to_owned(), |parameters| {
        let group = cells::text(parameters, "/apiGroup");
        let kind = cells::text(parameters, "/kind");
        let kind = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        format!("{kind}/{}", cells::text(parameters, "/name"))
    });
    vec![
        cells::name(object),
        cells::text(object, "/spec/controller").into(),
        parameters.into(),
        cells::age(object, now),
    ]
}
