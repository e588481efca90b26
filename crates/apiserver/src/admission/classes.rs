//! Classes that are chosen for whoever names none: of storage and of ingress. And the growth of claims, which a class
//! must allow.

use serde_json::{Value, json};
use tenure_access::identity::Lookup;
use tenure_kinds::core_group::class_of_claim;
use tenure_kinds::object::ObjectExt as _;
use tenure_kinds::schema::resources::Resources;

use super::{Action, Attributes};
use crate::http::ApiError;
use crate::view::View;

const STORAGE_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.metadata()?.get("annotations")?.get(key)?.as_str()
}

/// Gives a claim or an Ingress the class that is the default, if there is one.
pub(super) fn mutate(attributes: &Attributes<'_>, view: &View, object: &mut Value) -> Result<(), ApiError> {
    if attributes.action != Action::Create {
        return Ok(());
    }
    let (field, class) = if attributes.is("", "persistentvolumeclaims") {
        let named = annotation(object, STORAGE_CLASS).is_some()
            || object
                .pointer("/spec/storageClassName")
                .is_some_and(|name| !name.is_null());
        if named {
            return Ok(());
        }
        ("storageClassName", default_storage(view))
    } else if attributes.is("networking.k8s.io", "ingresses") {
        let named = annotation(object, INGRESS_CLASS).is_some()
            || object
                .pointer("/spec/ingressClassName")
                .is_some_and(|name| !name.is_null());
        if named {
            return Ok(());
        }
        ("ingressClassName", default_ingress(view))
    } else {
        return Ok(());
    };
    if let Some(class) = class
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert(field.to_owned(), json!(class));
    }
    Ok(())
}

/// Of several, the newest; of those, the first by name.
fn newest(classes: impl Iterator<Item = Value>) -> Option<String> {
    let mut classes: Vec<Value> = classes.collect();
    classes.sort_by(|a, b| {
        let created = |class: &Value| class.meta_str("creationTimestamp").to_owned();
        created(b).cmp(&created(a)).then_with(|| a.name().cmp(b.name()))
    });
    classes.first().map(|class| class.name().to_owned())
}

fn default_storage(view: &View) -> Option<String> {
    let classes = view.list("storage.k8s.io", "storageclasses", None).into_iter();
    newest(classes.filter(|class| STORAGE_DEFAULT.iter().any(|key| annotation(class, key) == Some("true"))))
}

fn default_ingress(view: &View) -> Option<String> {
    let classes = view.list("networking.k8s.io", "ingressclasses", None).into_iter();
    newest(classes.filter(|class| annotation(class, INGRESS_DEFAULT) == Some("true")))
}

/// Refuses the growth of a claim that is not bound, or whose class does not allow it.
pub(super) fn validate_growth(attributes: &Attributes<'_>, view: &View, claim: &Value) -> Result<(), ApiError> {
    let Some(old) = attributes
        .old
        .filter(|_| attributes.is("", "persistentvolumeclaims") && attributes.action == Action::Update)
    else {
        return Ok(());
    };
    let size = |claim: &Value| Resources::read(claim.pointer("/spec/resources/requests")).get("storage");
    if size(claim).is_none_or(|new| size(old).is_some_and(|old| new <= old)) {
        return Ok(());
    }
    if old.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return Err(attributes.denied(Some(claim), "Only bound persistent volume claims can be expanded"));
    }
    let class = class_of_claim(claim);
    let allows = !class.is_empty()
        && class == class_of_claim(old)
        && view
            .get("storage.k8s.io", "storageclasses", None, class)
            .is_some_and(|class| class.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true));
    if allows {
        return Ok(());
    }
    Err(attributes.denied(
        Some(claim),
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}
