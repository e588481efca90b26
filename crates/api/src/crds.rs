//! The CustomResourceDefinitions of every kind, as data. They are written to `deploy/crds`, and the embedded control plane installs them.

use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::access::{
    AccessProvider, FluxAccess, FluxAccessGrant, FluxAccessRequest, FluxAccessStandingGrant, FluxAccessTarget,
};
use crate::helm::{HelmChart, HelmRelease, HelmRepository};
use crate::metadata::{MANAGED_BY, MANAGED_BY_TENURE};
use crate::{
    Alert, ArtifactGenerator, Bucket, Enforcement, ExternalArtifact, GitRepository, Kustomization, OciRepository,
    Package, PackageSource, PackageValues, Provider, Receiver, Surface, Tenant,
};

/// The path of a definition's schema.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

/// The reason why a CustomResourceDefinition can't be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("the CustomResourceDefinition of {kind} cannot be written as JSON")]
pub struct CrdError {
    /// The kind.
    pub kind: &'static str,
    /// The reason.
    #[source]
    pub source: serde_json::Error,
}

/// Returns the CRD of every reconciled kind, ordered by name.
///
/// # Errors
/// [`CrdError`] when a generated schema is not representable as JSON. That would be a defect, and a test prevents it.
pub fn crds() -> Result<Vec<Value>, CrdError> {
    let mut crds = vec![
        complete_definition::<Alert>("Alert", None)?,
        complete_definition::<ArtifactGenerator>("ArtifactGenerator", None)?,
        complete_definition::<Bucket>("Bucket", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<Enforcement>("Enforcement", None)?,
        complete_definition::<ExternalArtifact>("ExternalArtifact", None)?,
        complete_definition::<GitRepository>("GitRepository", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<HelmChart>("HelmChart", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<HelmRepository>("HelmRepository", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<Kustomization>("Kustomization", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<OciRepository>("OCIRepository", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<Provider>("Provider", None)?,
        complete_definition::<Receiver>("Receiver", Some(json!({ "observedGeneration": -1 })))?,
        complete_definition::<Surface>("Surface", None)?,
        complete_definition::<Tenant>("Tenant", None)?,
    ];
    for crd in &mut crds {
        match crd.pointer("/spec/names/kind").and_then(Value::as_str) {
            Some("Tenant") => preserve_capsule_fields(crd),
            Some("Provider") => declare_commit_status_providers(crd),
            Some("Receiver") => declare_receiver_verification(crd),
            Some("ArtifactGenerator") => declare_artifact_names(crd),
            _ => {}
        }
        declare_flux_defaults(crd);
    }
    crds.extend(access_crds()?);
    crds.sort_by_key(|crd| {
        crd.pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    });
    Ok(crds)
}

/// Returns the CRDs of the kinds of a platform's packages, ordered by name. They are served, and admission checks writes of them. In a cluster with Cozystack, the CRDs are
/// Cozystack's own: each of Tenure's has a label to tell them apart.
///
/// # Errors
/// As [`crds`].
pub fn package_crds() -> Result<Vec<Value>, CrdError> {
    let mut crds = vec![
        complete_definition::<Package>("Package", None)?,
        complete_definition::<PackageSource>("PackageSource", None)?,
        complete_definition::<PackageValues>("PackageValues", None)?,
    ];
    crds.iter_mut().for_each(mark_as_optional);
    Ok(crds)
}

/// Returns the CRD of the kind that helm-controller reconciles, for the HelmReleases of Packages. In a cluster with Flux, the CRD is Flux's own.
///
/// # Errors
/// As [`crds`].
pub fn helm_crds() -> Result<Vec<Value>, CrdError> {
    let never = || Some(json!({ "observedGeneration": -1 }));
    let mut crds = vec![complete_definition::<HelmRelease>("HelmRelease", never())?];
    crds.iter_mut().for_each(mark_as_optional);
    Ok(crds)
}

/// Marks a CRD as Tenure's, which another product may install in its place. An object needs no other field than its name.
fn mark_as_optional(crd: &mut Value) {
    if let Some(metadata) = crd.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), json!({ MANAGED_BY: MANAGED_BY_TENURE }));
    }
    if let Some(schema) = crd.pointer_mut(SCHEMA).and_then(Value::as_object_mut) {
        schema.remove("required");
    }
}

/// Returns the CRDs of the kinds for requests and approvals of access to Git and registries, ordered by name. They are among
/// [`crds`].
///
/// # Errors
/// As [`crds`].
pub fn access_crds() -> Result<Vec<Value>, CrdError> {
    let mut crds = vec![
        complete_definition::<AccessProvider>("AccessProvider", None)?,
        complete_definition::<FluxAccess>("FluxAccess", None)?,
        complete_definition::<FluxAccessGrant>("FluxAccessGrant", None)?,
        complete_definition::<FluxAccessRequest>("FluxAccessRequest", None)?,
        complete_definition::<FluxAccessStandingGrant>("FluxAccessStandingGrant", None)?,
        complete_definition::<FluxAccessTarget>("FluxAccessTarget", None)?,
    ];
    for crd in &mut crds {
        match crd.pointer("/spec/names/kind").and_then(Value::as_str) {
            Some("AccessProvider") => declare_authoriser_presence(crd),
            Some("FluxAccess") => {}
            Some("FluxAccessTarget") => {
                declare_immutable_specs(crd);
                declare_target_names(crd);
            }
            _ => declare_immutable_specs(crd),
        }
    }
    Ok(crds)
}

/// Returns the file name under `deploy/crds` of a CRD: `<group>_<plural>.yaml`.
#[must_use]
pub fn file_name(crd: &Value) -> String {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}_{}.yaml", text("/spec/group"), text("/spec/names/plural"))
}

/// Makes the definition of a kind, and completes what the derived one leaves out: the default of the status, the name of lists.
fn complete_definition<K: CustomResourceExt>(
    kind: &'static str,
    status_default: Option<Value>,
) -> Result<Value, CrdError> {
    let mut crd = serde_json::to_value(K::crd()).map_err(|source| CrdError { kind, source })?;
    if let Some(status) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status") {
        // The derive makes the status nullable; Flux's and Kubernetes' own kinds never are.
        if let Some(status) = status.as_object_mut() {
            status.remove("nullable");
            if let Some(default) = status_default {
                status.insert("default".to_owned(), default);
            }
        }
    }
    if let Some(names) = crd.pointer_mut("/spec/names").and_then(Value::as_object_mut) {
        names.insert("listKind".to_owned(), json!(format!("{kind}List")));
    }
    if let Some(schema) = crd.pointer_mut(SCHEMA) {
        declare_envelope(schema);
        tidy(schema);
    }
    Ok(crd)
}

/// Adds `apiVersion`, `kind` and `metadata`, which kubectl's explain and validation look for.
fn declare_envelope(schema: &mut Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    properties.insert(
        "apiVersion".to_owned(),
        json!({ "type": "string", "description": "Version of the schema of this object." }),
    );
    properties.insert(
        "kind".to_owned(),
        json!({ "type": "string", "description": "Kind of this object." }),
    );
    properties.insert("metadata".to_owned(), json!({ "type": "object" }));
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
        schema.insert("required".to_owned(), json!(["spec"]));
    }
}

/// Brings a generated schema to the shape that controller-gen gives Flux's: optional fields are absent, not null. Bounds of
/// numbers that repeat their format, and defaults that mean "absent", are left out.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.contains_key("type")
                || map.contains_key("properties")
                || map.contains_key("x-kubernetes-preserve-unknown-fields")
            {
                map.remove("nullable");
                if map.get("default").is_some_and(is_empty_default) {
                    map.remove("default");
                }
                if let Some(values) = map.get_mut("enum").and_then(Value::as_array_mut) {
                    values.retain(|value| !value.is_null());
                }
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn is_empty_default(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
    }
}

/// Sets the defaults that Flux's CRDs declare, so that an object reads back the same from either.
fn declare_flux_defaults(crd: &mut Value) {
    let defaults: &[(&str, Value)] = match crd.pointer("/spec/names/kind").and_then(Value::as_str) {
        Some("Alert") => &[("eventSeverity", json!("info"))],
        Some("Bucket") => &[("timeout", json!("60s")), ("provider", json!("generic"))],
        Some("GitRepository") => &[("timeout", json!("60s")), ("verify/properties/mode", json!("HEAD"))],
        Some("OCIRepository") => &[
            ("timeout", json!("60s")),
            ("provider", json!("generic")),
            ("verify/properties/provider", json!("cosign")),
        ],
        Some("Receiver") => &[("interval", json!("10m"))],
        Some("Kustomization") => &[
            ("force", json!(false)),
            (
                "postBuild/properties/substituteFrom/items/properties/optional",
                json!(false),
            ),
        ],
        _ => &[],
    };
    for (path, default) in defaults {
        let pointer = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{path}");
        if let Some(schema) = crd.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            schema.insert("default".to_owned(), default.clone());
        }
    }
}

/// Declares the fields with which a Receiver verifies requests, as Flux's definition does: tokens of an issuer for one type, a Secret
/// for all others.
fn declare_receiver_verification(crd: &mut Value) {
    let rules = json!([
        {
            "rule": "self.type != 'generic-oidc' || (has(self.oidcProviders) && size(self.oidcProviders) > 0)",
            "message": "oidcProviders is missing: type generic-oidc needs at least one provider"
        },
        {
            "rule": "self.type == 'generic-oidc' || !has(self.oidcProviders) || size(self.oidcProviders) == 0",
            "message": "oidcProviders is allowed only with type generic-oidc"
        },
        {
            "rule": "self.type != 'generic-oidc' || !has(self.secretRef)",
            "message": "secretRef has no meaning with type generic-oidc: remove it"
        },
        {
            "rule": "self.type == 'generic-oidc' || has(self.secretRef)",
            "message": "secretRef is missing: every type but generic-oidc needs a Secret with the key token"
        }
    ]);
    declare_rules(crd, rules);
}

/// Allows a name for commit statuses only for providers that have them, as Flux's definition does.
fn declare_commit_status_providers(crd: &mut Value) {
    let types = [
        "github",
        "gitlab",
        "gitea",
        "bitbucketserver",
        "bitbucket",
        "azuredevops",
    ];
    let is_of_these = types.map(|name| format!("self.type == '{name}'")).join(" || ");
    let rules = json!([{
        "rule": format!("{is_of_these} || !has(self.commitStatusExpr)"),
        "message": format!("commitStatusExpr is allowed only with the types {}", types.join(", "))
    }]);
    declare_rules(crd, rules);
}

/// Declares the specs of requests and answers immutable.
fn declare_immutable_specs(crd: &mut Value) {
    let rules = json!([{
        "rule": "self == oldSelf",
        "message": "spec can't be changed: delete the object, and create a new one"
    }]);
    declare_rules(crd, rules);
}

/// Declares that a static provider has no authoriser, and that every other one has.
fn declare_authoriser_presence(crd: &mut Value) {
    let rules = json!([
        {
            "rule": "self.kind == 'static' || has(self.authoriser)",
            "message": "authoriser is missing: every kind but static needs an account that makes the credentials"
        },
        {
            "rule": "self.kind != 'static' || !has(self.authoriser)",
            "message": "authoriser has no meaning with kind static: remove it"
        }
    ]);
    declare_rules(crd, rules);
}

/// Declares that a target's name identifies it, since RBAC names targets.
fn declare_target_names(crd: &mut Value) {
    if let Some(schema) = crd.pointer_mut(SCHEMA).and_then(Value::as_object_mut) {
        // The cost estimate doesn't know the length of a number as text. So the rule reads the text instead of writing it.
        let id = "self.metadata.name.substring(size(self.spec.provider) + 1)";
        let rules = json!([{
            "rule": format!(
                "self.metadata.name.startsWith(self.spec.provider + '-') && {id}.matches('^[1-9][0-9]{{0,18}}$') && int({id}) == self.spec.id"
            ),
            "message": "metadata.name must be the provider's name, a hyphen and the target's number, as in work-42"
        }]);
        schema.insert("x-kubernetes-validations".to_owned(), rules);
    }
}

fn declare_rules(crd: &mut Value, rules: Value) {
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    if let Some(schema) = crd.pointer_mut(pointer).and_then(Value::as_object_mut) {
        schema.insert("x-kubernetes-validations".to_owned(), rules);
    }
}

/// Declares the names of an ArtifactGenerator's artifacts, as Flux's definition does: names are templates only if there is a pattern.
fn declare_artifact_names(crd: &mut Value) {
    let name = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    let rules = json!([{
        "rule": format!("has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a, a.name.matches('{name}'))"),
        "message": "artifact names must be valid Kubernetes object names when pathPattern is not set"
    }]);
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    if let Some(schema) = crd.pointer_mut(pointer).and_then(Value::as_object_mut) {
        schema.insert("x-kubernetes-validations".to_owned(), rules);
    }
}

/// Keeps fields of Capsule's Tenants that Tenure does not know.
fn preserve_capsule_fields(crd: &mut Value) {
    for path in [
        "/spec",
        "/spec/properties/owners/items",
        "/spec/properties/namespaceOptions",
        "/spec/properties/namespaceOptions/properties/forbiddenAnnotations",
        "/spec/properties/namespaceOptions/properties/forbiddenLabels",
        "/spec/properties/containerRegistries",
        "/spec/properties/ingressOptions",
        "/spec/properties/ingressOptions/properties/allowedClasses",
        "/spec/properties/ingressOptions/properties/allowedHostnames",
        "/spec/properties/priorityClasses",
        "/spec/properties/runtimeClasses",
        "/spec/properties/serviceOptions",
        "/spec/properties/serviceOptions/properties/allowedServices",
        "/spec/properties/serviceOptions/properties/externalIPs",
        "/spec/properties/serviceOptions/properties/forbiddenAnnotations",
        "/spec/properties/serviceOptions/properties/forbiddenLabels",
        "/spec/properties/storageClasses",
        "/status",
        "/status/properties/spaces/items",
    ] {
        let pointer = format!("/spec/versions/0/schema/openAPIV3Schema/properties{path}");
        if let Some(schema) = crd.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            schema.remove("additionalProperties");
        }
    }
}
