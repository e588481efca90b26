//! Definitions of Flux's kinds that accept every object. No controller in these tests reads such objects; admission checks them first.

use serde_json::json;
use tenure_testkit::{Admin, SOON, eventually};

use crate::table::{FLUX, STAND_INS};

const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Creates the definitions, and waits until the server serves them.
pub(crate) async fn serve(admin: &Admin) {
    for (kind, version, plural) in known() {
        let (group, version) = version.split_once('/').unwrap();
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = json!({
            "apiVersion": DEFINITION.0, "kind": DEFINITION.1, "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": anything } }]
            }
        });
        admin.apply(definition).await.unwrap();
    }
    for (kind, version, _) in known() {
        let served = eventually(SOON, || async {
            admin
                .list((version, kind), "")
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        });
        served.await.unwrap();
    }
}

/// Removes the definitions from a cluster that other tests use next.
pub(crate) async fn take_away(admin: &Admin) {
    for (_, version, plural) in known() {
        let (group, _) = version.split_once('/').unwrap();
        admin
            .delete(DEFINITION, ("", &format!("{plural}.{group}")))
            .await
            .unwrap();
    }
}

fn known() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    FLUX.into_iter().filter(|(kind, _, _)| STAND_INS.contains(kind))
}
