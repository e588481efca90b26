//! `admission.yaml` as data, for the pure rules and for each admission point.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_admission_rules::policy::{HandEditDenials, MintableAccounts};
use tenure_tenancy::make_owner_reference;
use tenure_tenancy::mentions::{MENTIONING_KINDS, Mention, MentionIndex};
use tenure_tenancy::{FactIndex, TenancyFacts, TenantFacts};
use tenure_trials::name_of_line;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) tenancy: TenancyFacts,
    pub(crate) actors: BTreeMap<String, Actor>,
    /// The stored Kustomizations and their related objects.
    pub(crate) objects: Vec<Value>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Actor {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    /// "VERB RESOURCE[/NAME]", or "VERB *".
    #[serde(default)]
    pub(crate) rights: Vec<String>,
    /// True if a token was shown.
    #[serde(default)]
    pub(crate) token: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Object {
    #[serde(default, rename = "in")]
    pub(crate) namespace: Option<String>,
    #[serde(rename = "namespace")]
    pub(crate) own: Option<String>,
    /// True if the name is only the prefix of a generated one.
    #[serde(default)]
    pub(crate) generated: bool,
    pub(crate) tenant: Option<String>,
    pub(crate) pod: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) configmap: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) claim: Option<String>,
    pub(crate) volume: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) ingress: Option<String>,
    pub(crate) deployment: Option<String>,
    pub(crate) cluster_role: Option<String>,
    pub(crate) role_binding: Option<String>,
    /// For RoleBindings: the ClusterRole.
    pub(crate) role: Option<String>,
    pub(crate) network_policy: Option<String>,
    /// For RoleBindings, each as `KIND NAMESPACE NAME`, or `KIND NAME`.
    #[serde(default)]
    pub(crate) subjects: Vec<String>,
    pub(crate) token_secret_for: Option<String>,
    /// For a platform's packages: the names of a Package, a PackageSource and a PackageValues.
    pub(crate) package: Option<String>,
    pub(crate) package_source: Option<String>,
    pub(crate) package_values: Option<String>,
    /// The applied fields by manager, as JSON pointers. For an update: the resulting ones, if they differ from before.
    pub(crate) held: Option<BTreeMap<String, Vec<String>>>,
    /// True if these managers have them by updates, as in older releases.
    #[serde(default)]
    pub(crate) by_update: bool,
    pub(crate) status: Option<Value>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) runs_as: Option<String>,
    pub(crate) runs_as_old: Option<String>,
    pub(crate) label: Option<String>,
    #[serde(default)]
    pub(crate) owners: Vec<(String, String)>,
    pub(crate) annotation: Option<String>,
    /// An additional label, as `KEY=VALUE`.
    pub(crate) marked: Option<String>,
    pub(crate) home: Option<String>,
    pub(crate) prevent_deletion: Option<bool>,
    /// For Tenants: the namespaces in its status, as `NAME` and `UID`.
    #[serde(default)]
    pub(crate) spaces: Vec<(String, String)>,
    /// For Tenants: true if that counts as a record.
    #[serde(default)]
    pub(crate) record: bool,
    /// For Flux's kinds, as `KIND/NAME`.
    pub(crate) flux: Option<String>,
    pub(crate) shard: Option<String>,
    pub(crate) spec: Option<Value>,
    /// For ConfigMaps.
    pub(crate) data: Option<Value>,
    /// For ClusterRoles.
    pub(crate) rules: Option<Value>,
    /// The Kustomization that applied it, as `NAMESPACE/NAME`, and the field that is Git's in its kind ([`APPLIED`]).
    pub(crate) applied_by: Option<String>,
    #[serde(default)]
    pub(crate) finalizers: Vec<String>,
}

/// The kinds of Flux and Tenure in cases: kind, API version, plural name.
pub(crate) const FLUX: [(&str, &str, &str); 18] = [
    ("Kustomization", "kustomize.toolkit.fluxcd.io/v1", "kustomizations"),
    ("HelmRelease", "helm.toolkit.fluxcd.io/v2", "helmreleases"),
    ("GitRepository", "source.toolkit.fluxcd.io/v1", "gitrepositories"),
    ("OCIRepository", "source.toolkit.fluxcd.io/v1", "ocirepositories"),
    ("Receiver", "notification.toolkit.fluxcd.io/v1", "receivers"),
    ("Alert", "notification.toolkit.fluxcd.io/v1beta3", "alerts"),
    (
        "ArtifactGenerator",
        "source.extensions.fluxcd.io/v1beta1",
        "artifactgenerators",
    ),
    ("Bucket", "source.toolkit.fluxcd.io/v1", "buckets"),
    ("HelmRepository", "source.toolkit.fluxcd.io/v1", "helmrepositories"),
    ("ImageRepository", "image.toolkit.fluxcd.io/v1", "imagerepositories"),
    ("ImagePolicy", "image.toolkit.fluxcd.io/v1", "imagepolicies"),
    (
        "ImageUpdateAutomation",
        "image.toolkit.fluxcd.io/v1",
        "imageupdateautomations",
    ),
    ("Surface", "tenure.dev/v1alpha1", "surfaces"),
    ("FluxAccess", "tenure.dev/v1alpha1", "fluxaccesses"),
    ("FluxAccessRequest", "tenure.dev/v1alpha1", "fluxaccessrequests"),
    ("FluxAccessTarget", "tenure.dev/v1alpha1", "fluxaccesstargets"),
    ("FluxAccessGrant", "tenure.dev/v1alpha1", "fluxaccessgrants"),
    (
        "FluxAccessStandingGrant",
        "tenure.dev/v1alpha1",
        "fluxaccessstandinggrants",
    ),
];

/// Those kinds that the test servers don't serve. Cases use definitions that accept every object.
pub(crate) const STAND_INS: [&str; 5] = [
    "HelmRelease",
    "HelmRepository",
    "ImageRepository",
    "ImagePolicy",
    "ImageUpdateAutomation",
];

/// Kinds of a platform's packages: kind, plural name.
pub(crate) const PACKAGES: [(&str, &str); 3] = [
    ("Package", "packages"),
    ("PackageSource", "packagesources"),
    ("PackageValues", "packagevalues"),
];
/// Their API version.
pub(crate) const PACKAGES_VERSION: &str = "cozystack.io/v1alpha1";

/// Namespaces, Ingresses, volumes, bindings, and kinds of classes that Tenants allow: kind, API version, plural name.
pub(crate) const CLASSES: [(&str, &str, &str); 9] = [
    (
        "ClusterRoleBinding",
        "rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
    ),
    ("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings"),
    ("Namespace", "v1", "namespaces"),
    ("Ingress", "networking.k8s.io/v1", "ingresses"),
    ("PersistentVolume", "v1", "persistentvolumes"),
    ("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses"),
    ("RuntimeClass", "node.k8s.io/v1", "runtimeclasses"),
    ("StorageClass", "storage.k8s.io/v1", "storageclasses"),
    ("IngressClass", "networking.k8s.io/v1", "ingressclasses"),
];

/// Kinds of objects that Kustomizations applied: plural name, API version, kind, and the field that is Git's.
const APPLIED: [(&str, &str, &str, &[&str]); 4] = [
    ("configmaps", "v1", "ConfigMap", &["f:data", "f:git"]),
    ("deployments", "apps/v1", "Deployment", &["f:spec", "f:replicas"]),
    (
        "clusterroles",
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        &["f:rules"],
    ),
    (
        "namespaces",
        "v1",
        "Namespace",
        &["f:metadata", "f:annotations", "f:example.org/git"],
    ),
];

/// Returns the API version and plural name of a stored object's kind.
pub(crate) fn find_kind(kind: &str) -> (&'static str, &'static str) {
    let mut known = FLUX.iter().chain(&CLASSES);
    let found = known.find(|(known, _, _)| *known == kind);
    let (_, version, plural) = found.expect("a known kind");
    (version, plural)
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allowed {
    /// Fields of the spec.
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, Value>,
    /// Labels and annotations: `labels a=b`, `annotations a=b`.
    #[serde(default)]
    pub(crate) marks: Vec<String>,
    pub(crate) label: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) shard: Option<String>,
    pub(crate) warning: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) part: String,
    pub(crate) create: Option<Object>,
    pub(crate) update: Option<Object>,
    pub(crate) delete: Option<Object>,
    pub(crate) token: Option<Object>,
    #[serde(default)]
    pub(crate) from: Object,
    /// The way of sending, if the case is neither a creation nor a replacement.
    pub(crate) sent: Option<Sent>,
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// True if no rule needs an answer for it.
    #[serde(default)]
    pub(crate) outside: bool,
    /// True if no rule decides it alone: admission makes a claim.
    #[serde(default)]
    pub(crate) claimed: bool,
    /// The reason why no server can be asked. Empty if one can.
    #[serde(default)]
    pub(crate) pure_only: String,
    pub(crate) allow: Option<Allowed>,
    pub(crate) deny: Option<String>,
    #[serde(default)]
    pub(crate) saying: String,
    /// The answer of the policies, if it differs.
    pub(crate) policy: Option<ByPolicy>,
    /// The result while no webhook answers, if a test checks that.
    pub(crate) unanswered: Option<Unanswered>,
}

/// The way in which an update is sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Sent {
    /// Applied with force, by this manager.
    Applied(String),
    /// As a replacement by this manager.
    As(String),
    /// As a JSON patch of managedFields alone, which leaves these entries.
    Managers(Vec<Value>),
}

/// The answer of the policies to a case, if it differs from the rules.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ByPolicy {
    /// The policies deny the case, with the reason for that.
    Refuses(String),
    /// The policies leave the case to other components, since they don't know this fact.
    Leaves(String),
    /// The policies deny the case, too, with this message.
    Says(String),
    /// The server denies the case before the policies, with this reason.
    Server(String),
}

/// The result of a request while no webhook answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Unanswered {
    /// The request is denied until a webhook answers.
    Refused,
    /// The request is allowed.
    GoesOn,
}

impl Table {
    /// Returns an object of the table as it is stored.
    pub(crate) fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        let text = |object: &Value, path: &str| {
            let text = object.pointer(path).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        self.objects.iter().find(|object| {
            let (version, known) = find_kind(&text(object, "/kind"));
            version.starts_with(group)
                && known == plural
                && text(object, "/metadata/namespace") == namespace
                && text(object, "/metadata/name") == name
        })
    }

    /// Returns an object of the table outside a Tenant that names a namespace.
    pub(crate) fn find_mention(&self, facts: &FactIndex, tenant: &TenantFacts, namespace: &str) -> Option<Mention> {
        let mut index = MentionIndex::default();
        let tenants = self.tenancy.tenants.iter().map(|tenant| {
            let owners: Vec<Value> = tenant
                .owners
                .iter()
                .map(|owner| json!({ "name": owner.name }))
                .collect();
            json!({ "kind": "Tenant", "metadata": { "name": tenant.name }, "spec": { "owners": owners } })
        });
        let tenants: Vec<Value> = tenants.collect();
        for object in self.objects.iter().chain(&tenants) {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let mut kinds = MENTIONING_KINDS.iter();
            if let Some(kind) = kinds.find(|kind| kind.kind == text("/kind")) {
                let place = (text("/metadata/namespace"), text("/metadata/name"));
                index.set_object(&self.tenancy.settings, kind, place, Some(object));
            }
        }
        index.find_outside(facts, tenant, namespace)
    }

    /// Returns the accounts that the table's Kustomizations name.
    pub(crate) fn collect_mintable(&self, facts: &FactIndex) -> MintableAccounts {
        let mut mintable = MintableAccounts::default();
        for object in self.objects.iter().filter(|object| object["kind"] == "Kustomization") {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            mintable.add(facts, namespace, object["spec"]["serviceAccountName"].as_str());
        }
        mintable
    }

    /// Returns the Kustomizations of the table that deny hand edits, as policies read them.
    pub(crate) fn collect_refusing(&self, facts: &FactIndex) -> HandEditDenials {
        let mut refusing = HandEditDenials::default();
        let text = |object: &Value, path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        for object in self.objects.iter().filter(|object| object["kind"] == "Kustomization") {
            let (namespace, name) = (
                text(object, "/metadata/namespace"),
                text(object, "/metadata/labels/tenure.dev~1surface"),
            );
            let surface = self.find("tenure.dev", "surfaces", &namespace, &name);
            refusing.add(facts, object, surface);
        }
        refusing
    }
}

impl Object {
    /// Returns group, resource and name.
    pub(crate) fn what(&self) -> (&'static str, &'static str, &str) {
        if let Some((kind, name)) = self.flux.as_deref().and_then(|flux| flux.split_once('/')) {
            let (_, version, plural) = FLUX.iter().find(|(known, _, _)| *known == kind).expect("a kind");
            return (version.split_once('/').expect("a group").0, plural, name);
        }
        let kinds = [
            ("", "namespaces", &self.own),
            ("capsule.clastix.io", "tenants", &self.tenant),
            ("", "pods", &self.pod),
            ("", "secrets", &self.secret),
            ("", "configmaps", &self.configmap),
            ("", "serviceaccounts", &self.account),
            ("", "persistentvolumeclaims", &self.claim),
            ("", "persistentvolumes", &self.volume),
            ("", "services", &self.service),
            ("networking.k8s.io", "ingresses", &self.ingress),
            ("apps", "deployments", &self.deployment),
            ("rbac.authorization.k8s.io", "clusterroles", &self.cluster_role),
            ("rbac.authorization.k8s.io", "rolebindings", &self.role_binding),
            ("networking.k8s.io", "networkpolicies", &self.network_policy),
            ("", "secrets", &self.token_secret_for),
            ("cozystack.io", "packages", &self.package),
            ("cozystack.io", "packagesources", &self.package_source),
            ("cozystack.io", "packagevalues", &self.package_values),
        ];
        let found = kinds.into_iter().find_map(|(group, resource, name)| {
            let name = name.as_deref()?;
            Some((group, resource, name))
        });
        found.expect("a case says what it is about")
    }

    pub(crate) fn to_value(&self, name: &str) -> Value {
        let key = if self.generated { "generateName" } else { "name" };
        let mut object = json!({ "metadata": { key: name } });
        if let Some(label) = &self.label {
            object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": label });
        }
        if !self.owners.is_empty() {
            let owners = self.owners.iter();
            let owners = owners.map(|(name, uid)| make_owner_reference(name, uid));
            object["metadata"]["ownerReferences"] = owners.collect();
        }
        if let Some(shard) = &self.shard {
            object["metadata"]["labels"] = json!({ "sharding.fluxcd.io/key": shard });
        }
        if let Some(spec) = &self.spec {
            object["spec"] = spec.clone();
        }
        if let Some(data) = &self.data {
            object["data"] = data.clone();
        }
        if self.role_binding.is_some() {
            let subjects = self.subjects.iter().map(|subject| {
                let words: Vec<&str> = subject.split(' ').collect();
                match words[..] {
                    [kind, namespace, name] => json!({ "kind": kind, "namespace": namespace, "name": name }),
                    _ => json!({ "kind": words[0], "name": words[1] }),
                }
            });
            object["subjects"] = subjects.collect();
        }
        if let Some(role) = &self.role {
            object["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role });
        }
        if let Some(rules) = &self.rules {
            object["rules"] = rules.clone();
        }
        if !self.finalizers.is_empty() {
            object["metadata"]["finalizers"] = json!(self.finalizers);
        }
        if let Some((namespace, name)) = self.applied_by.as_deref().and_then(|by| by.split_once('/')) {
            object["metadata"]["labels"] = json!({
                "kustomize.toolkit.fluxcd.io/namespace": namespace, "kustomize.toolkit.fluxcd.io/name": name
            });
        }
        if let Some((key, value)) = self.marked.as_deref().and_then(|text| text.split_once('=')) {
            let labels = object["metadata"].as_object_mut().expect("metadata").entry("labels");
            labels.or_insert_with(|| json!({}))[key] = json!(value);
        }
        if let Some(status) = &self.status {
            object["status"] = status.clone();
        }
        if let Some(held) = &self.held {
            object["metadata"]["managedFields"] = held
                .iter()
                .map(|(manager, fields)| self.write_entry(manager, fields))
                .collect();
        }
        let mut annotations = serde_json::Map::new();
        annotations.extend(self.annotations.iter().map(|(key, value)| (key.clone(), json!(value))));
        if let Some((key, value)) = self.annotation.as_deref().and_then(|text| text.split_once('=')) {
            annotations.insert(key.to_owned(), json!(value));
        }
        if let Some(home) = &self.home {
            annotations.insert("tenure.dev/home-namespace".to_owned(), json!(home));
        }
        if let Some(account) = &self.token_secret_for {
            annotations.insert("kubernetes.io/service-account.name".to_owned(), json!(account));
            object["type"] = json!("kubernetes.io/service-account-token");
        }
        object["metadata"]["annotations"] = Value::Object(annotations);
        if let Some(account) = &self.runs_as {
            object["spec"] = json!({ "serviceAccountName": account });
        }
        if let Some(account) = &self.runs_as_old {
            object["spec"] = json!({ "serviceAccount": account });
        }
        if !self.spaces.is_empty() || self.record {
            let spaces = self
                .spaces
                .iter()
                .map(|(name, uid)| json!({ "name": name, "uid": uid }));
            object["status"] =
                json!({ "size": self.spaces.len(), "state": "Active", "spaces": spaces.collect::<Value>() });
        }
        if self.record {
            object["status"]["conditions"] = json!([{
                "type": "NamespacesRecorded", "status": "True", "reason": "Recorded", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            }]);
        }
        if let Some(prevent) = self.prevent_deletion {
            object["spec"] = json!({ "preventDeletion": prevent });
        }
        object
    }
}

impl Object {
    /// Returns the object in the form of a request about it, or about a subresource.
    pub(crate) fn write(&self, name: &str, namespace: &str, (resource, part): (&str, &str)) -> Value {
        if part == "scale" {
            return json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name, "namespace": namespace }, "spec": self.spec
            });
        }
        let mut object = self.to_value(name);
        let applied = APPLIED.iter().find(|(known, ..)| *known == resource);
        let Some((_, version, kind, field)) = applied else {
            return object;
        };
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        if !namespace.is_empty() && resource != "namespaces" {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if self.applied_by.is_some() {
            let mut fields = json!({ "f:metadata": { "f:labels": {
                "f:kustomize.toolkit.fluxcd.io/name": {}, "f:kustomize.toolkit.fluxcd.io/namespace": {}
            } } });
            for finalizer in &self.finalizers {
                fields["f:metadata"]["f:finalizers"][format!("v:{}", json!(finalizer))] = json!({});
            }
            let mut at = &mut fields;
            for step in *field {
                let inner = at.as_object_mut().expect("fields").entry(*step);
                at = inner.or_insert_with(|| json!({}));
            }
            object["metadata"]["managedFields"] = json!([{
                "manager": "kustomize-controller", "operation": "Apply", "apiVersion": version, "fieldsType": "FieldsV1",
                "fieldsV1": fields
            }]);
        }
        object
    }

    /// Returns a manager's entry in managedFields.
    fn write_entry(&self, manager: &str, fields: &[String]) -> Value {
        let mut all = json!({});
        for field in fields {
            let steps = field.split('/').skip(1);
            let steps = steps.map(|step| format!("f:{}", step.replace("~1", "/")));
            let mut at = &mut all;
            for step in steps {
                let inner = at.as_object_mut().expect("fields").entry(step);
                at = inner.or_insert_with(|| json!({}));
            }
        }
        json!({
            "manager": manager, "operation": if self.by_update { "Update" } else { "Apply" },
            "apiVersion": PACKAGES_VERSION, "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": all
        })
    }
}

/// Keeps the managers of the previous object, unless the case sets others.
pub(crate) fn keep_managers(object: &mut Value, before: &Value) {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    if let Some(managed) = before["metadata"].get("managedFields") {
        metadata.entry("managedFields").or_insert_with(|| managed.clone());
    }
}

impl Case {
    /// Returns the operation, and its object.
    pub(crate) fn action(&self) -> (&'static str, &Object) {
        let done = [
            ("CREATE", &self.create),
            ("UPDATE", &self.update),
            ("DELETE", &self.delete),
            ("CREATE", &self.token),
        ];
        let mut done = done
            .into_iter()
            .filter_map(|(operation, object)| Some((operation, object.as_ref()?)));
        let action = done.next().expect("a case does something");
        assert!(done.next().is_none(), "a case does one thing: {self:?}");
        action
    }

    /// Returns the subresource of the case.
    pub(crate) fn subresource(&self) -> &str {
        if self.token.is_some() { "token" } else { &self.part }
    }

    /// Returns the question of the case, as a name.
    pub(crate) fn name(&self, index: usize) -> String {
        let (operation, object) = self.action();
        let (_, resource, name) = object.what();
        let label = object.label.as_deref().unwrap_or_default();
        let text = format!(
            "{} {operation} {resource} {name} {label} {}",
            self.by,
            self.subresource()
        );
        name_of_line(index + 1, &text.to_lowercase())
    }
}
