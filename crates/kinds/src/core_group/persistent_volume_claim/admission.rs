//! Admission of claims: the ranges of their namespace, a default class for claims without one, and the right to grow, which a class must
//! give.

use serde_json::{Value, json};

use super::class_of_claim;
use crate::core_group::limit_range::ranges;
use crate::kind::{Admitted, Plugin, Rule};
use crate::object::ObjectExt as _;
use crate::schema::resources::Resources;

/// The rules, in Kubernetes' order.
pub(super) const RULES: &[Rule] = &[
    Rule {
        validate: validate_ranges,
        ..Rule::new(Plugin::LimitRanger)
    },
    Rule {
        mutate: set_default_class,
        ..Rule::new(Plugin::DefaultStorageClass)
    },
    Rule {
        validate: validate_growth,
        ..Rule::new(Plugin::PersistentVolumeClaimResize)
    },
];

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotations that mark the default class.
const DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Refuses a claim outside of the ranges.
fn validate_ranges(admitted: &Admitted<'_>, object: &Value) -> Result<(), String> {
    if !admitted.is_whole() || admitted.old.is_some_and(|old| old.is_deleting()) {
        return Ok(());
    }
    ranges::check_ranges(admitted, |kind, limit, faults| {
        if kind == "PersistentVolumeClaim" {
            check_range(limit, object, faults);
        }
    })
}

fn check_range(limit: &Value, object: &Value, faults: &mut Vec<String>) {
    let requests = Resources::read(object.pointer("/spec/resources/requests"));
    for (name, least) in Resources::read(limit.get("min")).0 {
        ranges::check_minimum("PersistentVolumeClaim", &name, least, requests.get(&name), None, faults);
    }
    for (name, most) in Resources::read(limit.get("max")).0 {
        let bound = format!("maximum {name} usage per PersistentVolumeClaim is {}", most.canonical());
        match requests.get(&name) {
            None => faults.push(format!("{bound}.  No request is specified")),
            Some(request) if request > most => {
                faults.push(format!("{bound}, but request is {}", request.canonical()));
            }
            Some(_) => {}
        }
    }
}

/// Gives a claim the class that is the default, if there is one.
fn set_default_class(admitted: &Admitted<'_>, claim: &mut Value) -> Result<(), String> {
    let annotations = claim.metadata().and_then(|metadata| metadata.get("annotations"));
    let is_named = annotations
        .and_then(|annotations| annotations.get(CLASS)?.as_str())
        .is_some()
        || claim
            .pointer("/spec/storageClassName")
            .is_some_and(|name| !name.is_null());
    if !admitted.is_creation() || is_named {
        return Ok(());
    }
    if let Some(class) = admitted.find_default_class("storage.k8s.io", "storageclasses", &DEFAULT)
        && let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("storageClassName".to_owned(), json!(class));
    }
    Ok(())
}

/// Refuses the growth of a claim that is not bound, or whose class does not allow growth.
fn validate_growth(admitted: &Admitted<'_>, claim: &Value) -> Result<(), String> {
    let Some(old) = admitted.old.filter(|_| admitted.is_whole()) else {
        return Ok(());
    };
    let size = |claim: &Value| Resources::read(claim.pointer("/spec/resources/requests")).get("storage");
    if size(claim).is_none_or(|new| size(old).is_some_and(|old| new <= old)) {
        return Ok(());
    }
    if old.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return Err("Only bound persistent volume claims can be expanded".to_owned());
    }
    let class = class_of_claim(claim);
    let allows = !class.is_empty()
        && class == class_of_claim(old)
        && admitted
            .request
            .objects
            .get("storage.k8s.io", "storageclasses", None, class)
            .is_some_and(|class| class.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true));
    if allows {
        return Ok(());
    }
    Err(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            .to_owned(),
    )
}
