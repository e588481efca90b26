//! Attacks by templates: a StatefulSet's author may not create these objects, so Kubernetes' controller may not create them for the author.
//!
//! The controller itself would take its time. So each attack is the request that the controller would send, in its name.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;

use super::fixtures::CLASS;
use super::rights::{make_pod, set};
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let create = |plural: &str, object: Value| {
        let path = format!("/api/v1/namespaces/{}/{plural}", names.tenant());
        AttackRequest::new(Sender::Controller, Verb::Create, path, object)
    };
    let claim = |field: &str, value: Value| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "attest" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": { "requests": { "storage": "1Gi" } } },
        });
        set(&mut object, "/spec", field, value);
        create("persistentvolumeclaims", object)
    };
    let plain_claim = || claim("volumeMode", json!("Filesystem"));
    let make_pod = |change: &dyn Fn(&mut Value)| create("pods", make_pod("attest", change));
    let volumes = ExpectedDefense::Rule(Rule::PersistentVolumes);
    vec![
        Attack::new(
            "volume-of-another-by-template",
            "a StatefulSet's template for claims names a PersistentVolume that isn't the tenant's",
            volumes,
            claim("volumeName", json!("attest-of-another")),
            plain_claim(),
        ),
        Attack::new(
            "volumes-by-label-by-template",
            "a StatefulSet's template for claims selects PersistentVolumes by a label that another tenant's bear",
            volumes,
            claim(
                "selector",
                json!({ "matchLabels": { "attest.tenure.dev/of": "another" } }),
            ),
            plain_claim(),
        ),
        Attack::new(
            "foreign-storage-by-template",
            "a StatefulSet's template for claims has a StorageClass that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::StorageClasses),
            claim("storageClassName", json!("elsewhere")),
            plain_claim(),
        ),
        Attack::new(
            "foreign-image-by-template",
            "a template for Pods has an image of a registry that the Tenant doesn't allow",
            ExpectedDefense::Rule(Rule::ContainerRegistries),
            make_pod(&|pod| {
                let image = json!("elsewhere.attest.invalid/a:1");
                set(pod, "/spec/containers/0", "image", image);
            }),
            make_pod(&|_| ()),
        ),
        Attack::new(
            "account-by-template",
            "a template for Pods runs as the account of the tenant's surfaces",
            ExpectedDefense::Rule(Rule::GitopsAccount),
            make_pod(&|pod| set(pod, "/spec", "serviceAccountName", json!(names.account()))),
            make_pod(&|_| ()),
        ),
    ]
}
