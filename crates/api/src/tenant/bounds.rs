//! A Tenant's bounds for Pods, claims, Ingresses and Services in its namespaces: the allowed names, and the default ones. Only admission
//! can enforce them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contents::AdditionalMetadata;
use super::label_selector::{LabelRequirement, LabelSelector};

/// Bounds of the objects in the tenant's namespaces. A field that is absent bounds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantBounds {
    /// Allowed StorageClasses of PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_classes: Option<AllowedClasses>,
    /// Allowed PriorityClasses of Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_classes: Option<AllowedClasses>,
    /// Allowed RuntimeClasses of Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_classes: Option<AllowedClasses>,
    /// Allowed classes and hostnames of Ingresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<IngressOptions>,
    /// Allowed registries of images, with their ports. An image without a registry is from `docker.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_registries: Option<AllowedNames>,
    /// Allowed pull policies of images. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "write_pull_policies_schema")]
    pub image_pull_policies: Vec<String>,
    /// Allowed types, addresses, labels and annotations of Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_options: Option<ServiceOptions>,
}

/// Allowed names: a list, and a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedNames {
    /// Allowed names, compared letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// Regular expression in Go's syntax, at most 1,024 bytes, that must match a whole name. An expression that can't be read allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_regex: Option<String>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Classes that are allowed by their names or by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedClasses {
    /// Allowed names, compared letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// Regular expression in Go's syntax, at most 1,024 bytes, that must match a whole name. An expression that can't be read allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_regex: Option<String>,
    /// Labels of an allowed class, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements for the labels of an allowed class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
    /// Class of an object that names none. This class is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Denied names: a list, and a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeniedNames {
    /// Denied names, compared letter by letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// Regular expression in Go's syntax, at most 1,024 bytes. A match in any part of a name denies it. An expression that can't be read denies everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_regex: Option<String>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Bounds of Ingresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct IngressOptions {
    /// Allowed IngressClasses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_classes: Option<AllowedClasses>,
    /// Allowed hostnames. If set, rules without a host and default backends are denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hostnames: Option<AllowedNames>,
    /// Allows hostnames that begin with `*`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_wildcard_hostnames: Option<bool>,
    /// Scope in which no two Ingresses may have the same host and path: `Cluster`, `Tenant` or `Namespace`. `Disabled` (default): any two may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Cluster", "Tenant", "Namespace", "Disabled"]))]
    pub hostname_collision_scope: Option<String>,
    /// Fields of Capsule that Tenure stores and does not act on.
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
    /// Returns the word in a Tenant.
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
    /// Returns the scope in which no two Ingresses share a host and path, if it is set. An unknown word sets nothing, and the Tenant's Ready
    /// condition reports it.
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

/// Bounds of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ServiceOptions {
    /// Allowed types of Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_services: Option<AllowedServices>,
    /// Allowed external addresses of Services.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Option::is_none")]
    pub external_ips: Option<ExternalIps>,
    /// Labels that Services can't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_labels: Option<DeniedNames>,
    /// Annotations that Services can't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_annotations: Option<DeniedNames>,
    /// Labels and annotations that admission sets on Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Types of Services. A type is allowed unless its field is false.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AllowedServices {
    /// Allows Services of type NodePort. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<bool>,
    /// Allows Services of type ExternalName. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<bool>,
    /// Allows Services of type LoadBalancer. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<bool>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// External addresses of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ExternalIps {
    /// Allowed addresses and networks, such as `192.0.2.0/24` or `2001:db8::/64`. An empty list allows none.
    #[serde(default)]
    #[schemars(required)]
    pub allowed: Vec<String>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

impl AllowedClasses {
    /// Returns the labels by which classes are allowed, if any are.
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
    /// Lists the fields that are set, by their paths in the spec, with the part that policies can
    /// enforce.
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

    /// Lists the fields of Capsule's within these bounds that Tenure does not act on, by their
    /// paths in the spec.
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
