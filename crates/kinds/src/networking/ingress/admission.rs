//! Admission of Ingresses: a default class for Ingresses without one.

use serde_json::{Value, json};

use crate::kind::{Admitted, Plugin, Rule};
use crate::object::ObjectExt as _;

/// The rules.
pub(super) const RULES: &[Rule] = &[Rule {
    mutate: set_default_class,
    ..Rule::new(Plugin::DefaultIngressClass)
}];

const CLASS: &str = "kubernetes.io/ingress.class";
/// The annotation that marks the default class.
const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// Gives an Ingress the class that is the default, if there is one.
fn set_default_class(admitted: &Admitted<'_>, ingress: &mut Value) -> Result<(), String> {
    let annotations = ingress.metadata().and_then(|metadata| metadata.get("annotations"));
    let is_named = annotations
        .and_then(|annotations| annotations.get(CLASS)?.as_str())
        .is_some()
        || ingress
            .pointer("/spec/ingressClassName")
            .is_some_and(|name| !name.is_null());
    if !admitted.is_creation() || is_named {
        return Ok(());
    }
    if let Some(class) = admitted.find_default_class("networking.k8s.io", "ingressclasses", &[DEFAULT])
        && let Some(spec) = ingress.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("ingressClassName".to_owned(), json!(class));
    }
    Ok(())
}
