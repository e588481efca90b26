//! Attacks by objects that a Tenant's bounds refuse: images, classes, hostnames, Services.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;

use super::fixtures::{CLASS, HOST, REGISTRY};
use super::rights::{make_pod, set};
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let core = |plural: &str, object: Value| {
        AttackRequest::new(
            Sender::Owner,
            Verb::Create,
            format!("/api/v1/namespaces/{home}/{plural}"),
            object,
        )
    };
    let make_pod = |change: &dyn Fn(&mut Value)| core("pods", make_pod("attest", change));
    let claim = |class: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "attest" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } },
        });
        core("persistentvolumeclaims", object)
    };
    let ingress_with = |class: &str, host: &str, annotations: Value| {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": "attest", "annotations": annotations },
            "spec": {
                "ingressClassName": class,
                "rules": [{ "host": host, "http": { "paths": [{
                    "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "a", "port": { "number": 80 } } },
                }] } }],
            },
        });
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{home}/ingresses");
        AttackRequest::new(Sender::Owner, Verb::Create, path, object)
    };
    let ingress = |class: &str, host: &str| ingress_with(class, host, json!({}));
    let service = |spec: Value| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "attest" },
            "spec": { "ports": [{ "port": 80 }], "selector": { "app": "a" } },
        });
        if let (Some(fields), Value::Object(spec)) = (object.pointer_mut("/spec").and_then(Value::as_object_mut), spec)
        {
            fields.extend(spec);
        }
        core("services", object)
    };
    let plain_pod = || make_pod(&|_| ());
    let plain_service = || service(json!({ "type": "ClusterIP" }));
    let plain_ingress = || ingress(CLASS, HOST);
    let foreign = json!([{ "name": "b", "image": "elsewhere.attest.invalid/b:1", "imagePullPolicy": "Always" }]);
    let (registries, services, hosts) = (
        ExpectedDefense::Rule(Rule::ContainerRegistries),
        ExpectedDefense::Rule(Rule::ServiceOptions),
        ExpectedDefense::Rule(Rule::IngressOptions),
    );
    vec![
        Attack::new(
            "foreign-image",
            "an owner's Pod runs an image of a registry that the Tenant doesn't allow",
            registries,
            make_pod(&|pod| {
                set(
                    pod,
                    "/spec/containers/0",
                    "image",
                    json!("elsewhere.attest.invalid/a:1"),
                )
            }),
            plain_pod(),
        ),
        Attack::new(
            "foreign-image-at-start",
            "an owner's Pod runs such an image in an init container",
            registries,
            make_pod(&|pod| set(pod, "/spec", "initContainers", foreign.clone())),
            plain_pod(),
        ),
        Attack::new(
            "image-without-a-registry",
            "an owner's Pod runs an image that names no registry",
            registries,
            make_pod(&|pod| set(pod, "/spec/containers/0", "image", json!("a:1"))),
            plain_pod(),
        ),
        Attack::new(
            "image-that-looks-allowed",
            "an owner's Pod runs an image whose name begins as the allowed registry's",
            registries,
            make_pod(&|pod| {
                set(
                    pod,
                    "/spec/containers/0",
                    "image",
                    json!(format!("{REGISTRY}.elsewhere.invalid/a:1")),
                )
            }),
            plain_pod(),
        ),
        Attack::new(
            "image-not-pulled",
            "an owner's Pod runs what was pulled before, unchecked",
            ExpectedDefense::Rule(Rule::ImagePullPolicies),
            make_pod(&|pod| set(pod, "/spec/containers/0", "imagePullPolicy", json!("Never"))),
            plain_pod(),
        ),
        Attack::new(
            "foreign-priority",
            "an owner's Pod has a PriorityClass that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::PriorityClasses),
            make_pod(&|pod| set(pod, "/spec", "priorityClassName", json!("system-cluster-critical"))),
            plain_pod(),
        ),
        Attack::new(
            "foreign-storage",
            "an owner's claim has a StorageClass that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::StorageClasses),
            claim("elsewhere"),
            claim(CLASS),
        ),
        Attack::new(
            "foreign-hostname",
            "an owner's Ingress takes another's hostname",
            hosts,
            ingress(CLASS, "neighbour.attest.invalid"),
            plain_ingress(),
        ),
        Attack::new(
            "all-hostnames",
            "an owner's Ingress takes all hostnames of a domain",
            hosts,
            ingress(CLASS, "*.attest.invalid"),
            plain_ingress(),
        ),
        Attack::new(
            "hostname-by-annotation",
            "an owner's Ingress takes another's hostname by an annotation",
            hosts,
            ingress_with(
                CLASS,
                HOST,
                json!({ "nginx.ingress.kubernetes.io/server-alias": "neighbour.attest.invalid" }),
            ),
            plain_ingress(),
        ),
        Attack::new(
            "foreign-ingress-class",
            "an owner's Ingress has a class that the Tenant doesn't allow",
            hosts,
            ingress("elsewhere", HOST),
            plain_ingress(),
        ),
        Attack::new(
            "node-port",
            "an owner's Service takes a port of every node",
            services,
            service(json!({ "type": "NodePort" })),
            plain_service(),
        ),
        Attack::new(
            "load-balancer",
            "an owner's Service takes a load balancer",
            services,
            service(json!({ "type": "LoadBalancer" })),
            plain_service(),
        ),
        Attack::new(
            "external-name",
            "an owner's Service leads to another host by its name",
            services,
            service(json!({ "type": "ExternalName", "externalName": "neighbour.attest.invalid" })),
            plain_service(),
        ),
        Attack::new(
            "external-address",
            "an owner's Service takes an external address that the Tenant doesn't allow",
            services,
            service(json!({ "externalIPs": ["198.51.100.1"] })),
            plain_service(),
        ),
    ]
}
