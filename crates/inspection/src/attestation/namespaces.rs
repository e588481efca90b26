//! Attacks on the owner of a namespace, and on the settings of a Tenant for its namespaces.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::metadata::{HOME_NAMESPACE, POD_SECURITY_ENFORCE, TENANT_LABEL};
use tenure_tenancy::make_owner_reference;

use super::fixtures::{DENIED, ROOM, SET};
use super::{Attack, AttackRequest, ConcurrentRequests, ExpectedDefense, Names, Sender, Verb};

const NAMESPACES: &str = "/api/v1/namespaces";
/// The path of the label that names the owner of a namespace.
const LABEL: &str = "/metadata/labels/capsule.clastix.io~1tenant";
const TENANTS: &str = "/apis/capsule.clastix.io/v1beta2/tenants";

/// Returns a namespace that is labelled for a tenant.
fn make_namespace(name: &str, tenant: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { TENANT_LABEL: tenant } } })
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let (tenant, neighbour) = (names.tenant(), names.neighbour());
    let membership = ExpectedDefense::Rule(Rule::NamespaceMembership);
    let make = |object: Value| AttackRequest::new(Sender::Owner, Verb::Create, NAMESPACES, object);
    let own = || make(make_namespace(&format!("{tenant}-dev"), &tenant));
    let change = |who: Sender, path: String, metadata: Value| {
        AttackRequest::new(who, Verb::Change, path, json!({ "metadata": metadata }))
    };
    let harmless = |path: String| {
        change(
            Sender::Owner,
            path,
            json!({ "annotations": { "attest.tenure.dev/note": "harmless" } }),
        )
    };
    let home = format!("{NAMESPACES}/{tenant}");
    let label = |value: Value| json!({ "labels": { TENANT_LABEL: value } });
    let forged = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": format!("{tenant}-forged"), "labels": { TENANT_LABEL: neighbour },
            "ownerReferences": [make_owner_reference(&neighbour, &names.neighbour_uid)],
        },
    });
    let alone = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": format!("{tenant}-alone"), "ownerReferences": [make_owner_reference(&neighbour, &names.neighbour_uid)] },
    });
    let replaced = |tenant: &str| make_namespace(&names.tenant(), tenant);
    let mut attacks = vec![
        Attack::new(
            "namespace-for-a-neighbour",
            "an owner makes a namespace and labels it for another tenant",
            membership,
            make(make_namespace(&format!("{neighbour}-dev"), &neighbour)),
            own(),
        ),
        Attack::new(
            "namespace-with-a-forged-owner",
            "an owner makes a namespace whose label and ownerReference, with the right uid, say another tenant",
            membership,
            make(forged),
            own(),
        ),
        Attack::new(
            "namespace-with-a-foreign-owner-alone",
            "an owner makes a namespace with an ownerReference to another tenant and no label",
            membership,
            make(alone),
            own(),
        ),
        Attack::new(
            "namespace-of-kubernetes",
            "an owner makes a namespace that is named as Kubernetes' own are",
            membership,
            make(make_namespace(&format!("kube-{tenant}"), &tenant)),
            own(),
        ),
        Attack::new(
            "label-stripped",
            "an owner takes the tenant's label off a namespace",
            membership,
            change(Sender::Owner, home.clone(), label(Value::Null)),
            harmless(home.clone()),
        ),
        Attack::new(
            "owner-added",
            "an owner adds an ownerReference to another tenant to a namespace",
            membership,
            change(
                Sender::Owner,
                home.clone(),
                json!({ "ownerReferences": [make_owner_reference(&neighbour, &names.neighbour_uid)] }),
            ),
            harmless(home.clone()),
        ),
        Attack::new(
            "label-changed",
            "an owner labels a namespace for another tenant",
            membership,
            change(Sender::Owner, home.clone(), label(json!(neighbour))),
            harmless(home.clone()),
        ),
        Attack::new(
            "label-changed-by-status",
            "an owner labels a namespace for another tenant through the subresource status",
            membership,
            change(Sender::Owner, format!("{home}/status"), label(json!(neighbour))),
            harmless(format!("{home}/status")),
        )
        .seen_by(LABEL, json!(neighbour)),
        Attack::new(
            "label-changed-by-finalize",
            "an owner labels a namespace for another tenant through the subresource finalize",
            membership,
            AttackRequest::new(
                Sender::Owner,
                Verb::Replace,
                format!("{home}/finalize"),
                replaced(&neighbour),
            ),
            harmless(home.clone()),
        )
        .seen_by(LABEL, json!(neighbour)),
        Attack::new(
            "namespace-with-a-denied-label",
            "an owner makes a namespace with a label that the Tenant denies",
            ExpectedDefense::Rule(Rule::NamespaceOptions),
            make({
                let mut object = make_namespace(&format!("{tenant}-dev"), &tenant);
                if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                    labels.insert(DENIED.to_owned(), json!("yes"));
                }
                object
            }),
            own(),
        ),
        Attack::new(
            "namespace-of-an-add-on",
            "an owner creates a namespace with the name of a common add-on, which rights may name",
            ExpectedDefense::Rule(Rule::NamespaceMembership),
            make(make_namespace(&format!("istio-{}", names.suffix), &tenant)),
            own(),
        ),
        Attack::new(
            "namespace-that-a-binding-names",
            "an owner creates a namespace whose ServiceAccount a ClusterRoleBinding names already",
            ExpectedDefense::Rule(Rule::NamespaceMembership),
            make(make_namespace(&names.left_over(), &tenant)),
            own(),
        ),
        Attack::new(
            "namespace-without-the-prefix",
            "an owner makes a namespace whose name doesn't begin with the tenant's",
            ExpectedDefense::Rule(Rule::NamespaceOptions),
            make(make_namespace(&format!("stranger-{}", names.suffix), &tenant)),
            own(),
        ),
    ];
    attacks.extend(list_marks(&home));
    for (name, tries, place) in [
        (
            "kube-system-given-away",
            "an administrator labels kube-system for a tenant",
            "kube-system",
        ),
        (
            "default-given-away",
            "an administrator labels default for a tenant",
            "default",
        ),
        (
            "platform-given-away",
            "an administrator labels the platform's namespace for a tenant",
            names.platform.as_str(),
        ),
    ] {
        let path = format!("{NAMESPACES}/{place}");
        attacks.push(Attack::new(
            name,
            tries,
            membership,
            change(Sender::Administrator, path.clone(), label(json!(tenant))),
            change(
                Sender::Administrator,
                path,
                json!({ "labels": { "attest.tenure.dev/note": "harmless" } }),
            ),
        ));
    }
    // An owner applies new namespaces by a right to patch all.
    for (name, tries, place) in [
        (
            "label-of-a-neighbour",
            "an owner labels another tenant's namespace",
            neighbour.as_str(),
        ),
        ("label-of-kube-system", "an owner labels kube-system", "kube-system"),
        (
            "label-of-the-platform",
            "an owner labels the platform's namespace",
            names.platform.as_str(),
        ),
    ] {
        let labels = json!({ "labels": { "attest.tenure.dev/note": "harmless" } });
        let change_own = change(Sender::Owner, home.clone(), labels.clone());
        let change_other = change(Sender::Owner, format!("{NAMESPACES}/{place}"), labels);
        attacks.push(Attack::new(name, tries, membership, change_other, change_own));
    }
    attacks.extend(list_tenants(names));
    attacks
}

/// Attacks on labels and annotations that the Tenant sets on a namespace, and that another controller obeys.
fn list_marks(home: &str) -> Vec<Attack> {
    let change = |path: String, metadata: Value| {
        AttackRequest::new(Sender::Owner, Verb::Change, path, json!({ "metadata": metadata }))
    };
    let attack = |name: &'static str, tries: &'static str, path: String, metadata: Value| {
        let harmless = json!({ "annotations": { "attest.tenure.dev/note": "harmless" } });
        Attack::new(
            name,
            tries,
            ExpectedDefense::Rule(Rule::NamespaceOptions),
            change(path.clone(), metadata),
            change(path, harmless),
        )
    };
    let level = |level: Value| json!({ "labels": { POD_SECURITY_ENFORCE: level } });
    vec![
        attack(
            "pod-security-lowered",
            "an owner labels a namespace for a weaker Pod Security level than the Tenant sets",
            home.to_owned(),
            level(json!("privileged")),
        ),
        attack(
            "pod-security-stripped",
            "an owner takes the Pod Security label off a namespace",
            home.to_owned(),
            level(Value::Null),
        ),
        attack(
            "annotation-of-the-tenant-changed",
            "an owner changes an annotation that the Tenant sets on a namespace",
            home.to_owned(),
            json!({ "annotations": { SET: "no" } }),
        ),
        attack(
            "annotation-of-the-tenant-stripped",
            "an owner takes an annotation that the Tenant sets off a namespace",
            home.to_owned(),
            json!({ "annotations": { SET: null } }),
        ),
        attack(
            "annotation-of-the-tenant-changed-by-status",
            "an owner changes an annotation that the Tenant sets on a namespace, through the subresource status",
            format!("{home}/status"),
            json!({ "annotations": { SET: "no" } }),
        )
        .seen_by("/metadata/annotations/attest.tenure.dev~1set", json!("no")),
    ]
}

fn list_tenants(names: &Names) -> Vec<Attack> {
    let stop = ExpectedDefense::Rule(Rule::Tenant);
    let neighbour = names.neighbour();
    let at_home = |home: &str| {
        AttackRequest::new(
            Sender::Administrator,
            Verb::Create,
            TENANTS,
            json!({
                "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
                "metadata": { "name": format!("{}-c", names.tenant()), "annotations": { HOME_NAMESPACE: home } },
                "spec": { "owners": [{ "kind": "User", "name": names.owner() }] },
            }),
        )
    };
    let own = format!("{}-c", names.tenant());
    vec![
        Attack::new(
            "home-of-another",
            "a Tenant names the home namespace of another one as its home",
            stop,
            at_home(&neighbour),
            at_home(&own),
        ),
        Attack::new(
            "home-in-kube-system",
            "a Tenant names kube-system as its home",
            stop,
            at_home("kube-system"),
            at_home(&own),
        ),
        Attack::new(
            "deletion-of-what-is-to-stay",
            "an administrator deletes a Tenant with spec.preventDeletion",
            stop,
            AttackRequest::new(
                Sender::Administrator,
                Verb::Delete,
                format!("{TENANTS}/{neighbour}"),
                Value::Null,
            ),
            AttackRequest::new(
                Sender::Administrator,
                Verb::Delete,
                format!("{TENANTS}/{}", names.tenant()),
                Value::Null,
            ),
        ),
    ]
}

/// Lists the attacks that fill the quota, which come last, after their own controls.
pub(super) fn list_quota(names: &Names) -> Vec<Attack> {
    let tenant = names.tenant();
    let make = |name: &str| {
        let object = make_namespace(&format!("{tenant}-{name}"), &tenant);
        AttackRequest::new(Sender::Owner, Verb::Create, NAMESPACES, object)
    };
    let stop = ExpectedDefense::Rule(Rule::NamespaceOptions);
    let mut burst = Attack::new(
        "quota-by-burst",
        "an owner makes ten namespaces at once, and has room for two",
        stop,
        make("{n}").for_real(),
        make("dev"),
    );
    burst.burst = Some(ConcurrentRequests {
        count: 10,
        room: ROOM.saturating_sub(1),
    });
    vec![
        burst,
        Attack::new(
            "quota-by-dry-run",
            "an owner tries one namespace more than the quota has room for",
            stop,
            make("more"),
            AttackRequest::new(Sender::Owner, Verb::Read, format!("{NAMESPACES}/{tenant}"), Value::Null),
        ),
    ]
}
