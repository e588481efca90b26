//! What a Tenant says of Pods, claims, Ingresses and Services in its namespaces: which names they may bear, and which they bear where they
//! say none. Admission alone can act on it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contents::AdditionalMetadata;
use super::label_selector::{LabelRequirement, LabelSelector};

/// What objects in the tenant's namespaces may be. A field that is absent bounds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantBounds {
    /// StorageClasses of PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_classes: Option<AllowedClasses>,
    /// PriorityClasses of Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_classes: Option<AllowedClasses>,
    /// RuntimeClasses of Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_classes: Option<AllowedClasses>,
    /// Classes and hostnames of Ingresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<IngressOptions>,
    /// Registries of images, with their ports. An image that names none is of `docker.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_registries: Option<AllowedNames>,
    /// When images may be pulled; whenever, without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "write_pull_policies_schema")]
    pub image_pull_policies: Vec<String>,
    /// What Services may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_options: Option<ServiceOptions>,
}

/// Names that are allowed: those that are listed, and those that an expression is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedNames {
    /// Names, letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// A regular expression, in Go's syntax, of whole names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_regex: Option<String>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Classes that are allowed, by their names or by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedClasses {
    /// Names, letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// A regular expression, in Go's syntax, of whole names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_regex: Option<String>,
    /// Labels of the class, and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What else holds of the class's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
    /// The class of what names none. It is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Names that are refused: those that are listed, and those in which an expression finds something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeniedNames {
    /// Names, letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// A regular expression, in Go's syntax, of any part of a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_regex: Option<String>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// What Ingresses may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct IngressOptions {
    /// Their IngressClasses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_classes: Option<AllowedClasses>,
    /// Their hostnames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hostnames: Option<AllowedNames>,
    /// Whether a hostname may begin with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_wildcard_hostnames: Option<bool>,
    /// Among which Ingresses no two have the same host and path. Where it is absent, or `Disabled`, any two may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Cluster", "Tenant", "Namespace", "Disabled"]))]
    pub hostname_collision_scope: Option<String>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Among which Ingresses no two have the same host and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollisionScope {
    /// All of the cluster.
    Cluster,
    /// Those in the Tenant's namespaces.
    Tenant,
    /// Those in one namespace.
    Namespace,
}

impl CollisionScope {
    /// The word that a Tenant has for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Tenant => "Tenant",
            Self::Namespace => "Namespace",
        }
    }
}

impl IngressOptions {
    /// Among which Ingresses no two have the same host and path, if that is said. A word that nobody knows says nothing, and the Tenant's Ready
    /// condition tells so.
    #[must_use]
    pub fn collision_scope(&self) -> Option<CollisionScope> {
        match self.hostname_collision_scope.as_deref() {
            Some("Cluster") => Some(CollisionScope::Cluster),
            Some("Tenant") => Some(CollisionScope::Tenant),
            Some("Namespace") => Some(CollisionScope::Namespace),
            _ => None,
        }
    }

    fn has_known_scope(&self) -> bool {
        self.collision_scope().is_some() || self.hostname_collision_scope.as_deref() == Some("Disabled")
    }
}

/// What Services may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ServiceOptions {
    /// Their types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_services: Option<AllowedServices>,
    /// Their external addresses.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Option::is_none")]
    pub external_ips: Option<ExternalIps>,
    /// Labels that they don't bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_labels: Option<DeniedNames>,
    /// Annotations that they don't bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_annotations: Option<DeniedNames>,
    /// Labels and annotations that they bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Types of Services. One that is absent is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedServices {
    /// Whether a Service may be of type NodePort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<bool>,
    /// Whether a Service may be of type ExternalName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<bool>,
    /// Whether a Service may be of type LoadBalancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<bool>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// External addresses of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ExternalIps {
    /// Addresses and networks (`192.0.2.0/24`, `2001:db8::/64`); none, where the list is empty.
    #[serde(default)]
    #[schemars(required)]
    pub allowed: Vec<String>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

impl AllowedClasses {
    /// The labels by which classes are allowed, if any are.
    #[must_use]
    pub fn selector(&self) -> Option<LabelSelector> {
        let selector = LabelSelector {
            match_labels: self.match_labels.clone(),
            match_expressions: self.match_expressions.clone(),
        };
        (!selector.is_empty()).then_some(selector)
    }
}

/// What policies do about a field, where nobody else judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByPolicies {
    /// They judge by it.
    Judged,
    /// They can't tell what it takes other objects to tell, and refuse all of it: what is allowed by labels of a class, and what another Ingress has.
    Refused,
    /// They set nothing on objects, and leave it.
    Left,
}

impl TenantBounds {
    /// The fields that are set, by their paths in the spec, and what policies can do about each.
    #[must_use]
    pub fn list_set(&self) -> Vec<(&'static str, ByPolicies)> {
        let ingress = self.ingress_options.as_ref();
        let services = self.service_options.as_ref();
        let ingress_classes = ingress.and_then(|options| options.allowed_classes.as_ref());
        let has_selector =
            |classes: Option<&AllowedClasses>| classes.is_some_and(|classes| classes.selector().is_some());
        let fields = [
            ("storageClasses", self.storage_classes.is_some(), ByPolicies::Judged),
            (
                "storageClasses.matchLabels, matchExpressions",
                has_selector(self.storage_classes.as_ref()),
                ByPolicies::Refused,
            ),
            ("priorityClasses", self.priority_classes.is_some(), ByPolicies::Judged),
            (
                "priorityClasses.matchLabels, matchExpressions",
                has_selector(self.priority_classes.as_ref()),
                ByPolicies::Refused,
            ),
            ("runtimeClasses", self.runtime_classes.is_some(), ByPolicies::Judged),
            (
                "runtimeClasses.matchLabels, matchExpressions",
                has_selector(self.runtime_classes.as_ref()),
                ByPolicies::Refused,
            ),
            ("ingressOptions", ingress.is_some(), ByPolicies::Judged),
            (
                "ingressOptions.allowedClasses.matchLabels, matchExpressions",
                has_selector(ingress_classes),
                ByPolicies::Refused,
            ),
            (
                "ingressOptions.hostnameCollisionScope",
                ingress.is_some_and(|options| options.collision_scope().is_some()),
                ByPolicies::Refused,
            ),
            (
                "containerRegistries",
                self.container_registries.is_some(),
                ByPolicies::Judged,
            ),
            (
                "imagePullPolicies",
                !self.image_pull_policies.is_empty(),
                ByPolicies::Judged,
            ),
            ("serviceOptions", services.is_some(), ByPolicies::Judged),
            (
                "serviceOptions.additionalMetadata",
                services.is_some_and(|options| options.additional_metadata.is_some()),
                ByPolicies::Left,
            ),
        ];
        let set = fields.into_iter().filter(|(_, is_set, _)| *is_set);
        set.map(|(name, _, by_policies)| (name, by_policies)).collect()
    }

    /// What Capsule knows within these fields and Tenure does not act on, by its path in the spec.
    #[must_use]
    pub fn list_unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut add = |path: &str, other: &BTreeMap<String, Value>| {
            unknown.extend(other.keys().map(|key| format!("{path}.{key}")));
        };
        for (path, classes) in [
            ("storageClasses", &self.storage_classes),
            ("priorityClasses", &self.priority_classes),
            ("runtimeClasses", &self.runtime_classes),
        ] {
            if let Some(classes) = classes {
                add(path, &classes.other);
            }
        }
        if let Some(options) = &self.ingress_options {
            add("ingressOptions", &options.other);
            if options.hostname_collision_scope.is_some() && !options.has_known_scope() {
                add(
                    "ingressOptions",
                    &[("hostnameCollisionScope".to_owned(), Value::Null)].into(),
                );
            }
            if let Some(classes) = &options.allowed_classes {
                add("ingressOptions.allowedClasses", &classes.other);
            }
            if let Some(names) = &options.allowed_hostnames {
                add("ingressOptions.allowedHostnames", &names.other);
            }
        }
        if let Some(names) = &self.container_registries {
            add("containerRegistries", &names.other);
        }
        if let Some(options) = &self.service_options {
            add("serviceOptions", &options.other);
            if let Some(services) = &options.allowed_services {
                add("serviceOptions.allowedServices", &services.other);
            }
            if let Some(addresses) = &options.external_ips {
                add("serviceOptions.externalIPs", &addresses.other);
            }
            for (path, names) in [
                ("serviceOptions.forbiddenLabels", &options.forbidden_labels),
                ("serviceOptions.forbiddenAnnotations", &options.forbidden_annotations),
            ] {
                if let Some(names) = names {
                    add(path, &names.other);
                }
            }
        }
        unknown
    }
}

/// The values that Kubernetes knows.
fn write_pull_policies_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "array", "items": { "type": "string", "enum": ["Always", "Never", "IfNotPresent"] } })
}
