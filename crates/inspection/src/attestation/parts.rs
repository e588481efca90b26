//! Attacks with parts of objects, with later effects of a controller, and with size: `scale`, debug containers, volumes, facts that Tenure writes, expressions and
//! large objects.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;

use super::fixtures::{ATTACK_TARGET, CLASS, REGISTRY};
use super::flux::make_kustomization_request;
use super::rights::{make_config_map, make_pod, set};
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

/// The size of an object that is nearly the largest that an API server accepts: 3 MiB, minus the rest of the request.
const LARGE: usize = (3 << 20) - (128 << 10);

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let mut attacks = list_parts(names);
    attacks.extend(list_volumes(names));
    attacks.extend(list_facts(names));
    attacks.extend(list_large(names));
    attacks
}

fn list_parts(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let scale = |who: Sender, namespace: &str, replicas: u32| {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{ATTACK_TARGET}/scale");
        AttackRequest::new(who, Verb::Change, path, json!({ "spec": { "replicas": replicas } }))
    };
    let debug = |image: &str| {
        let containers = json!([{ "name": "debug", "image": image, "imagePullPolicy": "Always" }]);
        let path = format!("/api/v1/namespaces/{home}/pods/{ATTACK_TARGET}/ephemeralcontainers");
        let body = json!({ "spec": { "ephemeralContainers": containers } });
        AttackRequest::new(Sender::Owner, Verb::Change, path, body)
    };
    let runs = |change: &dyn Fn(&mut Value)| {
        let path = format!("/api/v1/namespaces/{home}/pods");
        AttackRequest::new(Sender::Owner, Verb::Create, path, make_pod("attest", change))
    };
    vec![
        Attack::new(
            "scale-of-a-neighbour",
            "an owner scales another tenant's Deployment by the subresource scale",
            ExpectedDefense::Rbac,
            scale(Sender::Owner, &other, 1),
            scale(Sender::Owner, &home, 1),
        ),
        Attack::new(
            "foreign-image-to-debug",
            "an owner adds a container to a Pod that runs, with an image of a registry that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::ContainerRegistries),
            debug("elsewhere.attest.invalid/a:1"),
            debug(&format!("{REGISTRY}/debug:1")),
        ),
        Attack::new(
            "foreign-runtime",
            "an owner's Pod has a RuntimeClass that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::RuntimeClasses),
            runs(&|pod| set(pod, "/spec", "runtimeClassName", json!(names.runtime_class()))),
            runs(&|_| ()),
        ),
    ]
}

fn list_volumes(names: &Names) -> Vec<Attack> {
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims", names.tenant());
    let claim = |change: &dyn Fn(&mut Value)| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "attest" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": { "requests": { "storage": "1Gi" } } },
        });
        change(&mut object);
        AttackRequest::new(Sender::Owner, Verb::Create, path.clone(), object)
    };
    let volumes = ExpectedDefense::Rule(Rule::PersistentVolumes);
    vec![
        Attack::new(
            "volume-of-another",
            "an owner's claim names a PersistentVolume that isn't the tenant's",
            volumes,
            claim(&|object| set(object, "/spec", "volumeName", json!("attest-of-another"))),
            claim(&|_| ()),
        ),
        Attack::new(
            "volumes-by-label",
            "an owner's claim selects PersistentVolumes by a label that another tenant's bear",
            volumes,
            claim(&|object| {
                let selector = json!({ "matchLabels": { "attest.tenure.dev/of": "another" } });
                set(object, "/spec", "selector", selector);
            }),
            claim(&|_| ()),
        ),
        // A regular expression engine with backtracking needs two to the power of the length many steps, and gives no answer in time.
        Attack::new(
            "expression-without-end",
            "an owner's claim has a StorageClass over whose name an expression of the Tenant could run for ever",
            ExpectedDefense::Rule(Rule::StorageClasses),
            claim(&|object| set(object, "/spec", "storageClassName", json!("a".repeat(60)))),
            claim(&|object| {
                set(
                    object,
                    "/spec",
                    "storageClassName",
                    json!(format!("{}b", "a".repeat(59))),
                )
            }),
        ),
    ]
}

fn list_facts(names: &Names) -> Vec<Attack> {
    let (tenant, other) = (names.tenant(), names.neighbour());
    let membership = ExpectedDefense::Rule(Rule::NamespaceMembership);
    let home = format!("/api/v1/namespaces/{tenant}");
    let annotate = |path: &str, key: &str, value: &str| {
        let body = json!({ "metadata": { "annotations": { key: value } } });
        AttackRequest::new(Sender::Owner, Verb::Change, path, body)
    };
    let harmless = |path: &str| annotate(path, "attest.tenure.dev/note", "harmless");
    let make = |annotations: Value| {
        let metadata = json!({
            "name": format!("{tenant}-dev"), "labels": { "capsule.clastix.io/tenant": tenant }, "annotations": annotations,
        });
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        AttackRequest::new(Sender::Owner, Verb::Create, "/api/v1/namespaces", object)
    };
    let (status, fact) = (format!("{home}/status"), "facts.tenure.dev/tenant");
    vec![
        Attack::new(
            "facts-forged",
            "an owner writes on his namespace what policies read there",
            membership,
            annotate(&home, fact, &other),
            harmless(&home),
        ),
        Attack::new(
            "facts-forged-by-status",
            "an owner writes it through the subresource status",
            membership,
            annotate(&status, fact, &other),
            harmless(&status),
        )
        .seen_by("/metadata/annotations/facts.tenure.dev~1tenant", json!(other)),
        Attack::new(
            "facts-forged-at-creation",
            "an owner makes a namespace with what policies read there",
            membership,
            make(json!({ fact: other })),
            make(json!({})),
        ),
        Attack::new(
            "accounts-said-to-be-named",
            "an owner says on his namespace whose tokens Tenure may ask for there",
            membership,
            annotate(&home, "tenure.dev/mintable-accounts", "default"),
            harmless(&home),
        ),
    ]
}

fn list_large(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let large = |namespace: Option<&str>| {
        make_kustomization_request(names, &|object| {
            set(object, "/spec", "patches", json!([{ "patch": "x".repeat(LARGE) }]));
            if let Some(namespace) = namespace {
                set(object, "/spec/sourceRef", "namespace", json!(namespace));
            }
        })
    };
    let own = |who: Sender| {
        let path = format!("/api/v1/namespaces/{home}/configmaps");
        AttackRequest::new(who, Verb::Create, path, make_config_map("own"))
    };
    let package = |who: Sender| {
        let path = "/apis/cozystack.io/v1alpha1/packages/cozystack.attest";
        AttackRequest::new(who, Verb::Change, path, json!({ "spec": { "variant": "attest" } }))
    };
    let token = |who: Sender, namespace: &str, account: &str| {
        let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        AttackRequest::new(who, Verb::Create, path, token)
    };
    vec![
        Attack::new(
            "reference-in-what-is-large",
            "an owner's Kustomization of 3 MiB takes another tenant's source",
            ExpectedDefense::Rule(Rule::FluxReferences),
            large(Some(&other)),
            large(None),
        ),
        Attack::new(
            "package-edited",
            "an owner takes the variant of a platform's Package",
            ExpectedDefense::Rbac,
            package(Sender::Owner),
            own(Sender::Owner),
        ),
        Attack::new(
            "package-edited-by-account",
            "the account of a tenant's surfaces takes the variant of a platform's Package",
            ExpectedDefense::Rbac,
            package(Sender::Account),
            own(Sender::Account),
        ),
        Attack::new(
            "account-by-a-neighbours-token-request",
            "an owner asks for a token of the account that another tenant's surfaces act as",
            ExpectedDefense::Rbac,
            token(Sender::Owner, &other, &format!("{other}-gitops")),
            token(Sender::Owner, &home, "default"),
        ),
        Attack::new(
            "controllers-by-token-request",
            "an owner asks for a token of Tenure's controllers",
            ExpectedDefense::Rbac,
            token(Sender::Owner, &names.platform, "tenure-controller"),
            token(Sender::Owner, &home, "default"),
        ),
    ]
}
