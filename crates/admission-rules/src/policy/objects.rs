//! Policies for Pods, claims, Ingresses and Services in tenants' namespaces, by the facts there. New values are checked, as
//! [`super::super::decide`] does. An object without a class is denied where a webhook would set the Tenant's default.

use super::super::classes::{ClassUse, USES};
use super::super::image::{DEFAULT_REGISTRY, IDENTIFIER, LEGACY_REGISTRY, write_qualified, write_unqualified};
use super::super::{ingress_annotation, metadata, pod, service, tenant_limits};
use super::limits::{
    BY_LABELS, EXTERNAL_IPS, HAS_DEFAULT, HOSTNAMES, PULL_POLICIES, REFUSED_TYPES, REGISTRIES, SERVICE_ANNOTATIONS,
    SERVICE_LABELS, UNCOMPARED_HOSTS, WILDCARDS, is_denied, is_fact_written, is_listed, lines,
};
use super::{
    Policy, PolicyScope, ResourceRule, Validation, namespace_facts, phrase, quote, variable, write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

/// The operations on the whole of an object, and on a subresource with which its metadata is written,
/// too.
const WRITES: [&str; 2] = ["CREATE", "UPDATE"];

pub(super) fn list(settings: &Settings) -> Vec<Policy> {
    let mut policies = vec![images(), hostnames(settings), services()];
    policies.extend(USES.iter().map(classes));
    policies
}

/// Returns a policy for resources in tenants' namespaces, still without validations.
fn policy(name: &str, group: &'static str, resources: Vec<&'static str>) -> Policy {
    Policy {
        name: name.to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec![group],
            resources,
            operations: WRITES.to_vec(),
        }],
        conditions: Vec::new(),
        variables: namespace_facts(),
        validations: Vec::new(),
    }
}

/// Returns one expression for the new object and for the old one.
fn both(write: impl Fn(&str) -> String, none: &str) -> [(String, String); 2] {
    [
        variable("new", write("object")),
        variable("old", format!("oldObject == null ? {none} : {}", write("oldObject"))),
    ]
}

/// Returns the policy for the registries and pull policies of a Pod's images.
fn images() -> Policy {
    let parts = pod::PARTS.map(|part| match part {
        "resize" => "pods/resize",
        _ => "pods/ephemeralcontainers",
    });
    let mut policy = policy("images", "", ["pods"].into_iter().chain(parts).collect());
    let list = |object: &str| {
        let lists = pod::LISTS.map(|(list, image, policy)| {
            // A value that is no text is an error, and so is denied.
            let text = |path: &str| format!("one.?{}.orValue('')", path.replace('.', ".?"));
            let is_image = if list == "volumes" { ".filter(one, has(one.image))" } else { "" };
            format!(
                "{object}.?spec.?{list}.orValue([]){is_image}.map(one, {{'at': dyn('spec.{list}[' + {} + ']'), 'image': {}, 'policy': {}}})",
                text("name"),
                text(image),
                text(policy)
            )
        });
        lists.join(" + ")
    };
    policy.variables.extend(both(list, "[]"));
    let changed = |key: &str| {
        format!("variables.new.filter(one, !variables.old.exists(old, old.at == one.at && old.{key} == one.{key}))")
    };
    policy.variables.push(variable(
        "named",
        format!(
            "{}.map(one, {{'at': one.at, 'image': one.image, 'first': dyn(one.image.contains('/') ? one.image.split('/', 2)[0] : '')}})",
            changed("image")
        ),
    ));
    let is_registry = "one.first.contains('.') || one.first.contains(':') || one.first == 'localhost' || one.first != one.first.lowerAscii()";
    let registry = format!(
        "one.image.matches({identifier}) ? '' : {is_registry} ? (!one.image.matches({qualified}) ? '' : \
         one.first == {legacy} ? {default} : one.first) : one.image.matches({unqualified}) ? {default} : ''",
        identifier = quote(IDENTIFIER),
        qualified = quote(&write_qualified()),
        unqualified = quote(&write_unqualified()),
        legacy = quote(LEGACY_REGISTRY),
        default = quote(DEFAULT_REGISTRY),
    );
    policy.variables.push(variable(
        "pulled",
        format!("variables.named.map(one, {{'at': one.at, 'image': one.image, 'registry': dyn({registry})}})"),
    ));
    policy.variables.push(lines("registries", REGISTRIES, "'\\n'"));
    policy.variables.push(variable(
        "refused",
        format!(
            "variables.pulled.filter(one, one.registry == '' || !{})",
            is_listed("variables.registries", "one.registry")
        ),
    ));
    policy.variables.push(lines("pullPolicies", PULL_POLICIES, "','"));
    policy.variables.push(variable(
        "late",
        format!(
            "{}.filter(one, !(one.policy in variables.pullPolicies))",
            changed("policy")
        ),
    ));
    let first = |key: &str| format!("variables.refused[0].{key}");
    let (at, image, registry) = (first("at"), first("image"), first("registry"));
    let is_none = phrase(
        "{}: {} is not the name of an image in a registry that Tenant {} allows",
        &[&at, &image, "variables.tenant"],
    );
    let is_another = phrase(
        "{}: image {} is from registry {}, which Tenant {} doesn't allow",
        &[&at, &image, &registry, "variables.tenant"],
    );
    policy.validations = vec![
        Validation {
            holds: format!("!({}) || variables.refused.size() == 0", is_fact_written(REGISTRIES)),
            rule: Rule::ContainerRegistries,
            why: format!("({registry} == '' ? {is_none} : {is_another})"),
            remedy: quote(&tenant_limits::begin_advice("spec.containerRegistries")),
        },
        Validation {
            holds: format!("!({}) || variables.late.size() == 0", is_fact_written(PULL_POLICIES)),
            rule: Rule::ImagePullPolicies,
            why: phrase(
                "{}: Tenant {} doesn't allow imagePullPolicy {}",
                &["variables.late[0].at", "variables.tenant", "variables.late[0].policy"],
            ),
            remedy: quote(&tenant_limits::begin_advice("spec.imagePullPolicies")),
        },
    ];
    policy
}

/// Returns the policy for the classes that objects of one kind name.
fn classes(class_use: &ClassUse) -> Policy {
    let parts = match class_use.resource {
        "pods" => vec!["pods"],
        "ingresses" => vec!["ingresses", "ingresses/status"],
        _ => vec!["persistentvolumeclaims", "persistentvolumeclaims/status"],
    };
    let fact = class_use.rule_fact();
    let mut policy = policy(fact, class_use.group, parts);
    let optional = |path: String| {
        let filter = if class_use.empty_is_none {
            ".filter(name, name != '')"
        } else {
            ""
        };
        format!("{path}.optMap(name, [name]).orValue([]){filter}")
    };
    let annotation = |object: &str| match class_use.annotation {
        Some(key) => optional(format!("{object}.?metadata.?annotations[?{}]", quote(key))),
        None => "[]".to_owned(),
    };
    let field = |object: &str| optional(format!("{object}.?spec.?{}", class_use.field));
    let was = |text: String| format!("oldObject == null ? [] : {text}");
    policy.variables.extend([
        variable("annotation", annotation("object")),
        variable("oldAnnotation", was(annotation("oldObject"))),
        variable("field", field("object")),
        variable("oldField", was(field("oldObject"))),
        lines("allowed", fact, "'\\n'"),
    ]);
    let refused = |name: &str| {
        format!(
            "variables.{name}.filter(name, !{} && !({} in variables.allowed && name != ''))",
            is_listed("variables.allowed", "name"),
            quote(BY_LABELS)
        )
    };
    let kind = class_use.class.0;
    let refuse = |path: String, new: &str, old: &str| Validation {
        holds: format!(
            "!({}) || variables.{new} == variables.{old} || {}.size() == 0",
            is_fact_written(fact),
            refused(new)
        ),
        rule: class_use.rule,
        why: phrase(
            &format!("{path}: Tenant {{}} doesn't allow {kind} '{{}}'"),
            &["variables.tenant", &format!("variables.{new}[0]")],
        ),
        remedy: quote(&tenant_limits::begin_advice(class_use.field_path)),
    };
    let is_required = if class_use.required {
        "true".to_owned()
    } else {
        format!("{} in variables.allowed", quote(HAS_DEFAULT))
    };
    policy.validations = vec![Validation {
        holds: format!(
            "!({}) || variables.annotation.size() + variables.field.size() > 0 || !({is_required}) || \
             (request.operation == 'UPDATE' && variables.oldAnnotation.size() + variables.oldField.size() == 0)",
            is_fact_written(fact)
        ),
        rule: class_use.rule,
        why: phrase(
            &format!(
                "spec.{}: no {kind} is named, and Tenant {{}} allows only some",
                class_use.field
            ),
            &["variables.tenant"],
        ),
        remedy: quote(&tenant_limits::begin_advice(class_use.field_path)),
    }];
    if let Some(key) = class_use.annotation {
        let path = format!("metadata.annotations[{key}]");
        policy.validations.push(refuse(path, "annotation", "oldAnnotation"));
    }
    policy
        .validations
        .push(refuse(format!("spec.{}", class_use.field), "field", "oldField"));
    policy
}

/// Lists the annotations that a request adds or changes and that may add hosts.
fn list_refused_annotations(settings: &Settings) -> Vec<(String, String)> {
    let read = |object: &str| format!("{object}.?metadata.?annotations.orValue({{}})");
    let patterns = ingress_annotation::list_refused(settings).into_iter();
    let matches = patterns.map(|pattern| {
        if let Some(end) = pattern.strip_prefix('*') {
            return format!("key.endsWith({})", quote(end));
        }
        match pattern.strip_suffix('*') {
            Some(beginning) => format!("key.startsWith({})", quote(beginning)),
            None => format!("key == {}", quote(pattern)),
        }
    });
    let matches = matches.collect::<Vec<_>>().join(" || ");
    let matches = if matches.is_empty() { "false" } else { &matches };
    vec![
        variable("annotations", read("object")),
        variable(
            "oldAnnotations",
            format!("oldObject == null ? {{}} : {}", read("oldObject")),
        ),
        variable(
            "addingHosts",
            format!(
                "variables.annotations.map(key, string(key)).filter(key, variables.oldAnnotations[?key] != variables.annotations[?key] && ({matches}))"
            ),
        ),
    ]
}

/// Returns the policy for the hostnames of Ingresses.
fn hostnames(settings: &Settings) -> Policy {
    let mut policy = policy("hostnames", "networking.k8s.io", vec!["ingresses", "ingresses/status"]);
    policy.variables.extend(list_refused_annotations(settings));
    let (why, remedy) = ingress_annotation::write_annotation_message("{}", "{}");
    let hosts = |object: &str| {
        format!(
            "{object}.?spec.?rules.orValue([]).map(rule, rule.?host.orValue('')) + \
             ({object}.?spec.?defaultBackend.hasValue() ? [dyn('')] : [])"
        )
    };
    policy.variables.extend(both(hosts, "[]"));
    policy.variables.extend([
        variable("changed", "variables.new.filter(host, !(host in variables.old))"),
        lines("hostnames", HOSTNAMES, "'\\n'"),
        variable("wild", "variables.changed.filter(host, host.startsWith('*'))"),
        variable(
            "refused",
            format!(
                "variables.changed.filter(host, host != '' && !{})",
                is_listed("variables.hostnames", "host")
            ),
        ),
    ]);
    // A rule without paths has the path `/`, and a default backend collides with nothing.
    let paths = |rule: &str| format!("{rule}.?http.?paths.orValue([dyn({{}})])");
    let same = |field: &str, none: &str, one: &str, other: &str| {
        format!("{one}.?{field}.orValue('{none}') == {other}.?{field}.orValue('{none}')")
    };
    policy.variables.push(variable(
        "routesAreOld",
        format!(
            "object.?spec.?rules.orValue([]).all(rule, {}.all(path, (oldObject == null ? [] : oldObject.?spec.?rules.orValue([])).exists(old, {} && \
             {}.exists(one, {}))))",
            paths("rule"),
            same("host", "", "old", "rule"),
            paths("old"),
            same("path", "/", "one", "path"),
        ),
    ));
    let allowed = "spec.ingressOptions.allowedHostnames";
    let refuse = |holds: String, why: String, remedy: String| Validation {
        holds: format!("variables.tenant == '' || {holds}"),
        rule: Rule::IngressOptions,
        why,
        remedy,
    };
    policy.validations = vec![
        refuse(
            format!("!({}) || variables.addingHosts.size() == 0", is_fact_written(HOSTNAMES)),
            phrase(&why, &["variables.addingHosts[0]", "variables.tenant"]),
            quote(&remedy),
        ),
        refuse(
            format!("{} || variables.wild.size() == 0", is_fact_written(WILDCARDS)),
            phrase(
                "spec.rules: Tenant {} doesn't allow hostname {}, which begins with *",
                &["variables.tenant", "variables.wild[0]"],
            ),
            quote("name hosts one by one, or ask an administrator for spec.ingressOptions.allowWildcardHostnames"),
        ),
        refuse(
            format!("!({}) || !('' in variables.changed)", is_fact_written(HOSTNAMES)),
            phrase(
                "spec.rules: Tenant {} allows only some hostnames: a rule without a host and a default backend would take all of them",
                &["variables.tenant"],
            ),
            quote(&tenant_limits::begin_advice(allowed)),
        ),
        refuse(
            format!("!({}) || variables.refused.size() == 0", is_fact_written(HOSTNAMES)),
            phrase(
                "spec.rules: Tenant {} doesn't allow hostname {}",
                &["variables.tenant", "variables.refused[0]"],
            ),
            quote(&tenant_limits::begin_advice(allowed)),
        ),
        refuse(
            format!(
                "!({}) || variables.routesAreOld || {}",
                is_fact_written(UNCOMPARED_HOSTS),
                write_tenant_check(ADOPT, Some("variables.tenant"))
            ),
            phrase(
                "spec.rules: Tenant {} allows no two Ingresses with the same host and path (spec.ingressOptions.hostnameCollisionScope), and policies can't compare Ingresses",
                &["variables.tenant"],
            ),
            quote("ask an administrator to write it, to install the webhooks, or to remove that field"),
        ),
    ];
    policy
}

/// Returns the policy for Services.
fn services() -> Policy {
    let mut policy = policy("services", "", vec!["services", "services/status"]);
    let kind = |object: &str| {
        format!("(string({object}.?spec.?type.orValue('')) == '' ? 'ClusterIP' : string({object}.spec.type))")
    };
    let addresses = |object: &str| format!("{object}.?spec.?externalIPs.orValue([]).map(one, string(one))");
    let map = |object: &str, part: &str| format!("{object}.?metadata.?{part}.orValue({{}})");
    let was = |none: &str, text: String| format!("oldObject == null ? {none} : {text}");
    let changed = |part: &str| {
        format!(
            "variables.{part}.map(key, string(key)).filter(key, !(key in variables.old_{part}) || variables.old_{part}[key] != variables.{part}[key])"
        )
    };
    policy.variables.extend([
        variable("kind", kind("object")),
        variable("oldKind", was("''", kind("oldObject"))),
        lines("refusedKinds", REFUSED_TYPES, "','"),
        variable("oldAddresses", was("[]", addresses("oldObject"))),
        lines("networks", EXTERNAL_IPS, "','"),
        variable(
            "refusedAddresses",
            format!(
                "{}.filter(one, !(one in variables.oldAddresses) && !(isIP(one) && \
                 variables.networks.exists(network, network != '' && cidr(network).containsIP(ip(one)))))",
                addresses("object")
            ),
        ),
    ]);
    policy.validations = vec![
        Validation {
            holds: "variables.kind == variables.oldKind || !(variables.kind in variables.refusedKinds)".to_owned(),
            rule: Rule::ServiceOptions,
            why: phrase(
                "spec.type: Tenant {} doesn't allow Services of type {}",
                &["variables.tenant", "variables.kind"],
            ),
            remedy: phrase(
                "take another type, or ask an administrator for spec.serviceOptions.allowedServices.{}",
                &[&service::TYPES.iter().fold("''".to_owned(), |rest, (name, key)| {
                    format!("(variables.kind == {} ? {} : {rest})", quote(name), quote(key))
                })],
            ),
        },
        Validation {
            holds: format!(
                "!({}) || variables.refusedAddresses.size() == 0",
                is_fact_written(EXTERNAL_IPS)
            ),
            rule: Rule::ServiceOptions,
            why: phrase(
                "spec.externalIPs: Tenant {} doesn't allow address {}",
                &["variables.tenant", "variables.refusedAddresses[0]"],
            ),
            remedy: quote(&tenant_limits::begin_advice("spec.serviceOptions.externalIPs")),
        },
    ];
    for (part, fact) in [
        (metadata::LABELS, SERVICE_LABELS),
        (metadata::ANNOTATIONS, SERVICE_ANNOTATIONS),
    ] {
        let denied = format!("denied_{part}");
        policy.variables.extend([
            variable(part, map("object", part)),
            variable(&format!("old_{part}"), was("{}", map("oldObject", part))),
            lines(&format!("lines_{part}"), fact, "'\\n'"),
            variable(
                &denied,
                format!(
                    "{}.filter(key, {})",
                    changed(part),
                    is_denied(&format!("variables.lines_{part}"), "key")
                ),
            ),
        ]);
        policy.validations.push(Validation {
            holds: format!("!({}) || variables.{denied}.size() == 0", is_fact_written(fact)),
            rule: Rule::ServiceOptions,
            why: phrase(
                &format!("metadata.{part}: Tenant {{}} doesn't allow {{}} on its Services"),
                &["variables.tenant", &format!("variables.{denied}[0]")],
            ),
            remedy: quote("leave it as it is, or ask an administrator"),
        });
    }
    policy
}
