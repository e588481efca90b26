//! Attacks with the values and the sources of `spec.postBuild` variables.

use serde_json::{Value, json};

use super::{Attack, Scene, attack};
use crate::stage::{CONFIG_MAP, config_map};

const SECRET: (&str, &str) = ("v1", "Secret");

/// Returns a Secret whose last field is a variable: text after a line break in the variable is read as further fields.
fn secret(name: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\ntype: ${{v}}\n")
}

fn with(value: &str) -> Value {
    json!({ "postBuild": { "substitute": { "v": value } } })
}

/// Returns each attack with its file.
fn attacks() -> Vec<(Attack, String)> {
    let from = |account: Value, name: &str| {
        json!({
            "serviceAccountName": account,
            "postBuild": { "substituteFrom": [{ "kind": "Secret", "name": name, "optional": true }] },
        })
    };
    let reads = |name, attempt, expected| {
        let control = from(json!("EVIL-gitops"), "hidden");
        (
            attack(name, attempt, expected, control),
            config_map(name, "${word:=none}"),
        )
    };
    let says = |name, value: &str, expected| (attack(name, with(value), expected, with("Opaque")), secret(name));
    let foreign = "does not belong to tenant EVIL";
    let mut named = attack("namespace-by-name", with("ALPHA"), foreign, with("EVIL"));
    for spec in [&mut named.attempt, &mut named.control] {
        spec["targetNamespace"] = Value::Null;
    }
    let in_namespace = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: namespace-by-name\n  namespace: ${v}\n";
    let kind = attack(
        "kind-by-name",
        with("Namespace"),
        "can't be created for the tenant",
        with("ConfigMap"),
    );
    let of_kind = "apiVersion: v1\nkind: ${v}\nmetadata:\n  name: kind-by-name\n";
    vec![
        reads(
            "secret-as-nobody",
            from(Value::Null, "hidden"),
            "substitute from 'Secret/hidden' error: system:serviceaccount:EVIL:default may not get this Secret",
        ),
        reads(
            "secret-elsewhere",
            from(json!("EVIL-gitops"), "../../ALPHA/secrets/hidden"),
            "spec.postBuild.substituteFrom[0].name",
        ),
        (named, in_namespace.to_owned()),
        (kind, of_kind.to_owned()),
        says(
            "namespace-by-line",
            "Opaque\rmetadata: {name: namespace-by-line, namespace: ALPHA}",
            foreign,
        ),
        says(
            "kind-by-line",
            "Opaque\u{2028}kind: ClusterRole\u{2028}apiVersion: rbac.authorization.k8s.io/v1",
            "cluster-scoped",
        ),
        says(
            "document",
            "Opaque\r---\rkind: Namespace",
            "one object would become several",
        ),
        says(
            "list",
            "Opaque\rkind: List\ritems: [{apiVersion: v1, kind: Namespace, metadata: {name: EVIL-more}}]",
            "makes a list of the object",
        ),
        says("nothing", "Opaque\rkind:", "without a kind or name"),
        says("laughs", "&a [x]\rb: &b [*a, *a]\rc: [*b, *b", "can't be read"),
        says("bad-name", "Opaque\rmetadata: {name: ../x}", "name"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_reach_nothing_outside_their_tenant() {
    let scene = Scene::set("attacks-variables").await;
    for namespace in ["EVIL", "ALPHA"] {
        let hidden = scene.value(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hidden", "namespace": namespace },
            "stringData": { "word": "x731731" },
        }));
        scene.stage.admin.apply(hidden).await.unwrap();
    }
    let attacks = attacks();
    let files: Vec<(String, String)> = attacks
        .iter()
        .map(|(attack, text)| (format!("own/{}/a.yaml", attack.name), text.clone()))
        .collect();
    scene.serve(&files).await;
    let attacks: Vec<Attack> = attacks.into_iter().map(|(attack, _)| attack).collect();
    scene
        .check(&attacks, |attack, name, spec| {
            scene.own_kustomization(attack, name, spec)
        })
        .await;
    scene
        .absent(&[
            (CONFIG_MAP, "ALPHA", "namespace-by-name"),
            (SECRET, "ALPHA", "namespace-by-line"),
            (("rbac.authorization.k8s.io/v1", "ClusterRole"), "", "kind-by-line"),
            (("v1", "Namespace"), "", "kind-by-name"),
            (("v1", "Namespace"), "", "EVIL-more"),
        ])
        .await;
    scene.shut_down().await;
}
