//! An object as an author would write it into a repository: the author's fields, without the additions of servers and controllers.
//!
//! The module decides which fields are left out, and which Secrets hold an object's credentials. The caller decides which users may see these Secrets.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tenure_api::ObjectView;
use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE, REQUESTED_AT};

/// Annotations that are about one moment of one cluster.
const PASSING: [&str; 2] = [REQUESTED_AT, "kubectl.kubernetes.io/last-applied-configuration"];
/// Labels that say which Kustomization applied an object: in a repository they would be a lie.
const APPLIED_BY: [&str; 2] = [OWNER_NAME, OWNER_NAMESPACE];
/// The fields with which sources, Kustomizations and Receivers name the Secrets with their credentials and keys, all in their own namespace.
const CREDENTIALS: [&str; 9] = [
    "/spec/secretRef/name",
    "/spec/certSecretRef/name",
    "/spec/proxySecretRef/name",
    "/spec/verify/secretRef/name",
    "/spec/verify/trustedRootSecretRef/name",
    "/spec/sts/secretRef/name",
    "/spec/sts/certSecretRef/name",
    "/spec/decryption/secretRef/name",
    "/spec/kubeConfig/secretRef/name",
];

/// Makes the object as its author would write it.
#[must_use]
pub fn make_portable(object: &Value) -> Value {
    let view = ObjectView::new(object);
    let mut metadata = Map::new();
    for field in ["name", "namespace"] {
        if let Some(text) = view.find_text(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), Value::from(text));
        }
    }
    for (field, left_out) in [("labels", APPLIED_BY), ("annotations", PASSING)] {
        let mut map = view
            .find_map(&format!("/metadata/{field}"))
            .cloned()
            .unwrap_or_default();
        map.retain(|key, _| !left_out.contains(&key.as_str()));
        if !map.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(map));
        }
    }
    let mut portable = object.as_object().cloned().unwrap_or_default();
    portable.remove("status");
    portable.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(portable)
}

/// Lists the Secrets in an object's own namespace that hold its credentials and keys.
#[must_use]
pub fn list_credentials(object: &Value) -> BTreeSet<String> {
    let named = list_credential_fields(object).into_iter();
    named.map(|(_, name)| name.to_owned()).collect()
}

/// Lists the Secrets together with the fields that name them, such as `.spec.secretRef` and `.spec.sources[2].secretRef`.
#[must_use]
pub fn list_credential_fields(object: &Value) -> Vec<(String, &str)> {
    let view = ObjectView::new(object);
    let own = CREDENTIALS.iter().filter_map(|path| {
        let field = path.trim_end_matches("/name").replace('/', ".");
        Some((field, view.find_text(path)?))
    });
    let sources = view.list_views("/spec/sources").enumerate();
    let of_sources = sources.filter_map(|(index, source)| {
        let name = source.find_text("/secretRef/name")?;
        Some((format!(".spec.sources[{index}].secretRef"), name))
    });
    own.chain(of_sources).filter(|(_, name)| !name.is_empty()).collect()
}

/// Finds the object that generated this one and would generate it again, as `Kind/name`.
#[must_use]
pub fn find_generator(object: &Value) -> Option<String> {
    let mut owners = ObjectView::new(object).list_views("/metadata/ownerReferences");
    let owner = owners.find(|owner| owner.is_true("/controller"))?;
    Some(format!("{}/{}", owner.read_text("/kind"), owner.read_text("/name")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_of_the_author_are_left() {
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["finalizers.fluxcd.io"], "managedFields": [{"manager": "x"}],
                "ownerReferences": [{"kind": "Surface", "name": "shop", "controller": true}],
                "labels": {"app": "web", "kustomize.toolkit.fluxcd.io/name": "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
                "annotations": {"note": "kept", "reconcile.fluxcd.io/requestedAt": "now", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"interval": "1h", "suspend": true}, "status": {"conditions": []}});
        let expected = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"note": "kept"}},
            "spec": {"interval": "1h", "suspend": true}});
        assert_eq!(make_portable(&object), expected);
        assert_eq!(make_portable(&expected), expected, "what was written stays what it is");
        assert_eq!(find_generator(&object).as_deref(), Some("Surface/shop"));
        assert_eq!(find_generator(&expected), None);
    }

    #[test]
    fn credentials_are_those_that_an_object_names() {
        let spec = json!({"spec": {"secretRef": {"name": "a"}, "proxySecretRef": {"name": "b"}, "verify": {"secretRef": {"name": "c"}},
            "decryption": {"secretRef": {"name": "a"}}, "sources": [{"secretRef": {"name": "d"}}, {"secretRef": {"name": ""}}],
            "postBuild": {"substituteFrom": [{"kind": "Secret", "name": "variables"}]}}});
        let names: Vec<String> = list_credentials(&spec).into_iter().collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let fields = list_credential_fields(&spec);
        let expected = [
            (".spec.secretRef", "a"),
            (".spec.proxySecretRef", "b"),
            (".spec.verify.secretRef", "c"),
            (".spec.decryption.secretRef", "a"),
            (".spec.sources[0].secretRef", "d"),
        ];
        let expected = expected.map(|(field, name)| (field.to_owned(), name));
        assert_eq!(fields, expected);
    }
}
