//! Definitions of Flux's kinds that nobody here serves, which take anything: what is judged of them is judged before anybody reads it.

use serde_json::json;
use tenure_testkit::{Admin, SOON, eventually};

use crate::table::{FLUX, STAND_INS};

const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Serves them, and waits until they are.
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

/// Takes them away again, from a cluster that others look at next.
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
