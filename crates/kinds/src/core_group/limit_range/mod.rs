//! The kind LimitRange.

pub(super) mod ranges;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::core_group::amounts::{is_extended, is_huge, parse_amounts, resource_name};
use crate::kind::{Kind, Request};
use crate::object::ObjectExt;
use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, list_items};
use crate::schema::{FieldError, FieldPath, defaults};

/// LimitRanges.
pub(in crate::core_group) static LIMIT_RANGE: Kind = Kind {
    is_created_by_update: true,
    write_nulls: |_, object, stored| {
        if let Some(map) = object.as_object_mut() {
            let spec = map.entry("spec").or_insert_with(|| json!({}));
            defaults::null_unless_set(spec, "limits", stored);
        }
    },
    prepare_create: name_if_nameless,
    validate,
    ..Kind::new("", "LimitRange", "limitranges")
};

/// Names an object without a name with a UUID.
fn name_if_nameless(request: &Request<'_>, object: &mut Value) {
    if object.name().is_empty() {
        let mut random = [0; 16];
        (request.random)(&mut random);
        let name = uuid::Builder::from_random_bytes(random).into_uuid().to_string();
        object.set_meta("name", Value::from(name));
    }
}

/// Checks a LimitRange.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let mut seen = BTreeSet::new();
    for (limit, path) in list_items(spec, "limits", &FieldPath::new("spec")) {
        let kind = get_text(limit, "type");
        let own = path.child("type");
        let faults = qualified_name(kind);
        if faults.is_empty() && !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.push(FieldError::invalid(
                &own,
                kind,
                "must be a standard limit type or fully qualified",
            ));
        }
        for fault in faults {
            errors.push(FieldError::invalid(&own, kind, fault));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&own, kind));
        }
        limit_item(kind, limit, &path, errors);
    }
}

fn limit_item(kind: &str, limit: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    let mut take = |field: &str, errors: &mut Vec<FieldError>| {
        let amounts = parse_amounts(limit, field);
        for name in amounts.keys() {
            let path = path.child(field).key(name);
            resource_name(name, &path, errors);
            if matches!(kind, "Pod" | "Container") {
                container_resource(name, &path, errors);
            }
            names.insert(name.clone());
        }
        amounts
    };
    let most = take("max", errors);
    let least = take("min", errors);
    let (mut default, mut request) = (BTreeMap::new(), BTreeMap::new());
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if !parse_amounts(limit, field).is_empty() {
                errors.push(FieldError::forbidden(
                    path.child(field),
                    "may not be specified when `type` is 'Pod'",
                ));
            }
        }
    } else {
        default = take("default", errors);
        request = take("defaultRequest", errors);
    }
    if kind == "PersistentVolumeClaim" && !least.contains_key("storage") && !most.contains_key("storage") {
        errors.push(FieldError::required(
            path.child("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    let ratio = take("maxLimitRequestRatio", errors);
    for name in &names {
        let [most, least, default, request, ratio] =
            [&most, &least, &default, &request, &ratio].map(|amounts| amounts.get(name));
        let mut above = |first: Option<&Quantity>,
                         second: Option<&Quantity>,
                         field: &str,
                         shown: Option<&Quantity>,
                         words: [&str; 2]| {
            if let (Some(first), Some(second), Some(shown)) = (first, second, shown)
                && first > second
            {
                let why = format!(
                    "{} value {} is greater than {} value {}",
                    words[0],
                    first.canonical(),
                    words[1],
                    second.canonical()
                );
                errors.push(FieldError::invalid(path.child(field).key(name), shown.canonical(), why));
            }
        };
        above(least, most, "min", least, ["min", "max"]);
        above(least, request, "defaultRequest", request, ["min", "default request"]);
        above(request, most, "defaultRequest", request, ["default request", "max"]);
        above(
            request,
            default,
            "defaultRequest",
            request,
            ["default request", "default limit"],
        );
        above(least, default, "default", least, ["min", "default"]);
        above(default, most, "default", most, ["default", "max"]);
        if let Some(ratio) = ratio {
            let own = path.child("maxLimitRequestRatio").key(name);
            if *ratio < Quantity::whole(1) {
                let why = format!("ratio {} is less than 1", ratio.canonical());
                errors.push(FieldError::invalid(&own, ratio.canonical(), why));
            }
            if let (Some(least), Some(most)) = (least, most) {
                let bound = most.ratio_to(least);
                if ratio.ratio_to(&Quantity::whole(1)) > bound {
                    let why = format!("ratio {} is greater than max/min = {bound:.6}", ratio.canonical());
                    errors.push(FieldError::invalid(&own, ratio.canonical(), why));
                }
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && (is_huge(name) || is_extended(name))
            && default != request
        {
            let why = format!(
                "default value {} must equal to defaultRequest value {} in {name}",
                default.canonical(),
                request.canonical()
            );
            errors.push(FieldError::invalid(
                path.child("defaultRequest").key(name),
                request.canonical(),
                why,
            ));
        }
    }
}

fn container_resource(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !known {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a standard resource for containers",
        ));
    }
}
