//! LimitRanges.

use serde_json::{Value, json};

use crate::kind::{Kind, Request};
use crate::object::ObjectExt;
use crate::schema::defaults;
use crate::schema::validation::quotas;

/// LimitRanges.
pub(super) static LIMIT_RANGE: Kind = Kind {
    is_created_by_update: true,
    write_nulls: |_, object, stored| {
        if let Some(map) = object.as_object_mut() {
            let spec = map.entry("spec").or_insert_with(|| json!({}));
            defaults::null_unless_set(spec, "limits", stored);
        }
    },
    prepare_create: name_if_nameless,
    validate: quotas::limit_range,
    ..Kind::named("", "LimitRange", "limitranges")
};

/// One without a name is called by a UUID.
fn name_if_nameless(request: &Request<'_>, object: &mut Value) {
    if object.name().is_empty() {
        let mut random = [0; 16];
        (request.random)(&mut random);
        let name = uuid::Builder::from_random_bytes(random).into_uuid().to_string();
        object.set_meta("name", Value::from(name));
    }
}
