//! The rules for classes that objects may name, and the default class: PriorityClasses and RuntimeClasses of Pods, StorageClasses of claims,
//! IngressClasses of Ingresses.
//!
//! A class is allowed by its name, or by its labels. If the cluster has a default of its own, the API server has already set it. A new object
//! with this default gets the Tenant's default in its place, as in Capsule. Only new values are checked, so existing objects can still be
//! changed and deleted. The former annotations for classes are read as well, which Capsule does only for Ingresses. For a claim, the
//! annotation takes precedence.

use serde_json::{Value, json};
use tenure_api::tenant::{AllowedClasses, TenantBounds};

use super::request::Operation;
use super::{Case, Change, Findings, Refusal, Rule, tenant_limits};
use tenure_tenancy::bounds::{find_default, is_selected};
use tenure_tenancy::placement::TenantFacts;

/// A field of a kind in which objects name a class, such as `spec.storageClassName` of claims.
pub(super) struct ClassUse {
    pub(super) rule: Rule,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// Subresources with which metadata is written, and the whole object.
    pub(super) parts: &'static [&'static str],
    /// The field of its spec.
    pub(super) field: &'static str,
    /// The former annotation.
    pub(super) annotation: Option<&'static str>,
    /// True if the empty text is no name.
    pub(super) empty_is_none: bool,
    /// True if the object must name a class.
    pub(super) required: bool,
    /// The classes: kind, group, plural.
    pub(super) class: (&'static str, &'static str, &'static str),
    /// The mark of a class that is the cluster's default.
    cluster_default: &'static str,
    /// The path of the Tenant's setting. `find` reads the setting.
    pub(super) field_path: &'static str,
    pub(super) find: fn(&TenantBounds) -> Option<&AllowedClasses>,
}

pub(super) const USES: [ClassUse; 4] = [
    ClassUse {
        rule: Rule::PriorityClasses,
        group: "",
        resource: "pods",
        parts: &[],
        field: "priorityClassName",
        annotation: None,
        empty_is_none: true,
        required: false,
        class: ("PriorityClass", "scheduling.k8s.io", "priorityclasses"),
        cluster_default: "/globalDefault",
        field_path: "spec.priorityClasses",
        find: |bounds| bounds.priority_classes.as_ref(),
    },
    ClassUse {
        rule: Rule::RuntimeClasses,
        group: "",
        resource: "pods",
        parts: &[],
        field: "runtimeClassName",
        annotation: None,
        empty_is_none: true,
        required: false,
        class: ("RuntimeClass", "node.k8s.io", "runtimeclasses"),
        // No cluster has a default.
        cluster_default: "",
        field_path: "spec.runtimeClasses",
        find: |bounds| bounds.runtime_classes.as_ref(),
    },
    ClassUse {
        rule: Rule::StorageClasses,
        group: "",
        resource: "persistentvolumeclaims",
        parts: &["status"],
        field: "storageClassName",
        annotation: Some("volume.beta.kubernetes.io/storage-class"),
        // With the empty text, a claim requests a volume without a class.
        empty_is_none: false,
        required: true,
        class: ("StorageClass", "storage.k8s.io", "storageclasses"),
        cluster_default: "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
        field_path: "spec.storageClasses",
        find: |bounds| bounds.storage_classes.as_ref(),
    },
    ClassUse {
        rule: Rule::IngressOptions,
        group: "networking.k8s.io",
        resource: "ingresses",
        parts: &["status"],
        field: "ingressClassName",
        annotation: Some("kubernetes.io/ingress.class"),
        empty_is_none: false,
        required: true,
        class: ("IngressClass", "networking.k8s.io", "ingressclasses"),
        cluster_default: "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class",
        field_path: "spec.ingressOptions.allowedClasses",
        find: |bounds| bounds.ingress_options.as_ref()?.allowed_classes.as_ref(),
    },
];

/// The class names in an object's annotation and in its field.
type ClassNames<'a> = [Option<&'a str>; 2];

impl ClassUse {
    fn read<'a>(&self, object: &'a Value) -> ClassNames<'a> {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let annotation = self.annotation.and_then(|key| annotations?.get(key));
        let field = object.get("spec").and_then(|spec| spec.get(self.field));
        [annotation, field].map(|value| {
            let name = value.filter(|value| !value.is_null())?.as_str().unwrap_or_default();
            (!self.empty_is_none || !name.is_empty()).then_some(name)
        })
    }

    /// Returns the name of the fact with the Tenant's setting, for policies.
    pub(super) fn rule_fact(&self) -> &'static str {
        match self.rule {
            Rule::IngressOptions => "ingress-classes",
            rule => rule.as_str(),
        }
    }

    /// Returns the stored class with this name.
    fn find_class(&self, case: Case<'_>, name: &str) -> Option<std::sync::Arc<Value>> {
        let (_, group, plural) = self.class;
        case.find(group, plural, "", name)
    }

    /// Checks whether a class is marked as the default of the cluster.
    fn is_cluster_default(&self, case: Case<'_>, name: &str) -> bool {
        let class = (!self.cluster_default.is_empty()).then(|| self.find_class(case, name));
        let class = class.flatten();
        let marked = class.as_ref().and_then(|class| class.pointer(self.cluster_default));
        marked.is_some_and(|marked| marked == &json!(true) || marked == "true")
    }
}

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    for class_use in &USES {
        if case
            .request
            .is_about(class_use.group, class_use.resource, class_use.parts)
            && let Some((tenant, object)) = tenant_limits::find_tenant(case)
            && let Some(classes) = (class_use.find)(tenant.bounds.objects())
        {
            judge_use(case, class_use, (tenant, classes), object, findings)?;
        }
    }
    Ok(())
}

fn judge_use(
    case: Case<'_>,
    class_use: &ClassUse,
    (tenant, classes): (&TenantFacts, &AllowedClasses),
    object: &Value,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let is_whole = case.request.resource.subresource.is_empty();
    let is_new = case.request.operation == Operation::Create && is_whole;
    let named = class_use.read(object);
    let before = case
        .request
        .old_object
        .map(|old| class_use.read(old))
        .unwrap_or_default();
    let default = find_default(classes);
    let [annotation, field] = named;
    if annotation.is_none() && field.is_none() {
        let was_named = before.iter().any(Option::is_some);
        return match default {
            _ if !is_new && !was_named => Ok(()),
            Some(default) if is_whole => set_default(case, class_use, tenant, default, findings),
            // A write of a subresource can't set a field of the whole object.
            _ if class_use.required => Err(Refusal {
                rule: class_use.rule,
                why: format!(
                    "spec.{}: no {} is named, and Tenant {} allows only some",
                    class_use.field, class_use.class.0, tenant.name
                ),
                remedy: tenant_limits::advise(class_use.field_path, classes.into()),
            }),
            _ => Ok(()),
        };
    }
    if let (Some(default), Some(name), None) = (default, field, annotation)
        && is_new
        && name != default
        && class_use.is_cluster_default(case, name)
    {
        return set_default(case, class_use, tenant, default, findings);
    }
    let paths = class_use.annotation.map(|key| format!("metadata.annotations[{key}]"));
    let paths = [paths.unwrap_or_default(), format!("spec.{}", class_use.field)];
    for ((name, before), path) in named.into_iter().zip(before).zip(paths) {
        let Some(name) = name.filter(|name| before != Some(*name)) else {
            continue;
        };
        let is_allowed = tenant.bounds.allows(classes.into(), name) || {
            let is_asked = classes.selector().is_some() && !name.is_empty();
            let class = is_asked.then(|| class_use.find_class(case, name)).flatten();
            class.is_some_and(|class| is_selected(classes, &class))
        };
        if !is_allowed {
            let by_labels = if classes.selector().is_some() {
                ", neither by its name nor by its labels"
            } else {
                ""
            };
            return Err(Refusal {
                rule: class_use.rule,
                why: format!(
                    "{path}: Tenant {} doesn't allow {} '{}'{by_labels}",
                    tenant.name,
                    class_use.class.0,
                    tenant_limits::shorten(name)
                ),
                remedy: tenant_limits::advise(class_use.field_path, classes.into()),
            });
        }
    }
    Ok(())
}

/// Sets the Tenant's default. A Pod also has a number for its priority, which the API server has already set from its class.
fn set_default(
    case: Case<'_>,
    class_use: &ClassUse,
    tenant: &TenantFacts,
    default: &str,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let mut set = |key: &'static str, value: Value| findings.changes.push(Change::SpecField { key, value });
    if class_use.rule == Rule::PriorityClasses {
        let Some(class) = class_use.find_class(case, default) else {
            return Err(Refusal {
                rule: class_use.rule,
                why: format!(
                    "spec.priorityClassName: there is no PriorityClass '{default}', which is the default of Tenant {}",
                    tenant.name
                ),
                remedy: "name another one, or ask an administrator".to_owned(),
            });
        };
        let policy = class.get("preemptionPolicy").cloned();
        set(
            "preemptionPolicy",
            policy.unwrap_or_else(|| json!("PreemptLowerPriority")),
        );
        set("priority", class.get("value").cloned().unwrap_or_else(|| json!(0)));
    }
    set(class_use.field, json!(default));
    Ok(())
}
