//! Attacks of a tenant with its own registry, or with the fields that name a registry.

use serde_json::{Value, json};
use tenure_registry_server::{Access, Artifact, RegistryServer, pack_entries, pack_files};

use super::{Scene, attack};
use crate::stage::{OCI_REPOSITORY, config_map};

/// Archive entries: tar's type, the path, and the link target.
type Entries = &'static [(u8, &'static str, &'static str)];

/// Layers that no tool would create, by their tags.
const LIES: [(&str, Entries); 5] = [
    ("layer-up", &[(b'0', "../../map.yaml", "")]),
    ("layer-absolute", &[(b'0', "/etc/passwd", "")]),
    ("layer-hard-link", &[(b'1', "map.yaml", "/etc/passwd")]),
    ("layer-device", &[(b'4', "map.yaml", "")]),
    (
        "layer-through-a-link",
        &[(b'2', "out", "/etc"), (b'0', "out/map.yaml", "")],
    ),
];

/// Returns an OCIRepository of mallory's; `spec` is merged over the defaults.
fn artifact(scene: &Scene, registry: &RegistryServer, name: &str, spec: &Value) -> Value {
    let url = format!("oci://{}/app", registry.address());
    let usual = json!({ "url": url, "insecure": true, "interval": "1s" });
    scene.object(OCI_REPOSITORY, name, usual, spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registries_and_their_fields_reach_nothing_else() {
    let registry = RegistryServer::start().await.unwrap();
    // Another registry, with a forbidden token realm.
    let traps = [
        RegistryServer::start().await.unwrap(),
        RegistryServer::start().await.unwrap(),
    ];
    let forbidden = RegistryServer::start().await.unwrap();
    let allowed = [&registry, &traps[0], &traps[1]].map(|server| format!("http://{}", server.address()));
    let scene = Scene::set_allowing("attacks-r", &allowed).await;
    let (evil, alpha) = (scene.evil.clone(), scene.alpha.clone());
    let good = Artifact::from_files(&[("map.yaml", &config_map("from-registry", "x"))]);
    registry.push("app", "latest", &good);
    for (trap, realm) in traps.iter().zip([
        "https://169.254.169.254/latest/meta-data".to_owned(),
        format!("https://{}/token", forbidden.address()),
    ]) {
        trap.require(Access::Token { realm, pair: None });
    }
    let bomb = "0".repeat(65 << 20);
    let bomb = Artifact {
        layers: vec![("x".to_owned(), pack_files(&[("bomb", &bomb)]))],
        annotations: json!({}),
    };
    registry.push("app", "bomb", &bomb);
    for (tag, entries) in LIES {
        let layers = vec![("x".to_owned(), pack_entries(entries))];
        let annotations = json!({});
        registry.push("app", tag, &Artifact { layers, annotations });
    }
    let auths = json!({ "auths": { registry.address().to_string(): { "username": "alpha", "password": "sesame" } } });
    for namespace in [&alpha, &"tenure-system".to_owned()] {
        scene
            .stage
            .admin
            .apply(json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
                "metadata": { "name": "pull-of-alpha", "namespace": namespace },
                "stringData": { ".dockerconfigjson": auths.to_string() }
            }))
            .await
            .unwrap();
    }
    let address = |server: &RegistryServer| format!("oci://{}/app", server.address());
    let attacks = [
        attack(
            "loopback",
            json!({ "url": address(&forbidden) }),
            "a loopback address",
            json!({}),
        ),
        attack(
            "metadata",
            json!({ "url": "oci://169.254.169.254/latest" }),
            "a cloud metadata address",
            json!({}),
        ),
        attack(
            "not-said-to-be-insecure",
            json!({ "insecure": false }),
            "a loopback address",
            json!({}),
        ),
        attack(
            "realm-metadata",
            json!({ "url": address(&traps[0]) }),
            "a cloud metadata address",
            json!({}),
        ),
        attack(
            "realm-loopback",
            json!({ "url": address(&traps[1]) }),
            "a loopback address",
            json!({}),
        ),
        attack(
            "secret-dots",
            json!({ "secretRef": { "name": "../../ALPHA/secrets/pull-of-alpha" } }),
            "spec.secretRef.name",
            json!({}),
        ),
        attack(
            "secret-of-alpha",
            json!({ "secretRef": { "name": "pull-of-alpha" } }),
            "Secret EVIL/pull-of-alpha can't be read as system:serviceaccount:EVIL:EVIL-gitops",
            json!({}),
        ),
        attack(
            "account-of-alpha",
            json!({ "serviceAccountName": "ALPHA:default" }),
            "spec.serviceAccountName",
            json!({ "serviceAccountName": "EVIL-gitops" }),
        ),
        attack(
            "keys-of-alpha",
            json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys-of-alpha" } } }),
            "Secret EVIL/keys-of-alpha can't be read",
            json!({}),
        ),
        attack(
            "keyless",
            json!({ "verify": { "provider": "cosign" } }),
            "spec.verify.secretRef is missing",
            json!({}),
        ),
        attack(
            "cloud",
            json!({ "provider": "aws" }),
            "spec.provider",
            json!({ "provider": "generic" }),
        ),
        attack(
            "proxy",
            json!({ "proxySecretRef": { "name": "../../ALPHA/secrets/x" } }),
            "spec.proxySecretRef",
            json!({}),
        ),
        attack(
            "filter-bomb",
            json!({ "ref": { "semver": "*", "semverFilter": "((a{100}){100}){100}" } }),
            "spec.ref.semverFilter",
            json!({}),
        ),
        attack(
            "tag-path",
            json!({ "ref": { "tag": "../../other/manifests/latest" } }),
            "spec.ref.tag",
            json!({ "ref": { "tag": "latest" } }),
        ),
        // On a busy machine it takes long until so much is unpacked, and meanwhile the tenant unpacks nothing else.
        attack(
            "bomb",
            json!({ "ref": { "tag": "bomb" }, "interval": "10m", "timeout": "10m" }),
            "exceed 64 MiB",
            json!({}),
        ),
        attack(
            "layer-up",
            json!({ "ref": { "tag": "layer-up" } }),
            "\"..\" part",
            json!({}),
        ),
        attack(
            "layer-absolute",
            json!({ "ref": { "tag": "layer-absolute" } }),
            "an empty",
            json!({}),
        ),
        attack(
            "layer-hard-link",
            json!({ "ref": { "tag": "layer-hard-link" } }),
            "neither a file nor a link",
            json!({}),
        ),
        attack(
            "layer-device",
            json!({ "ref": { "tag": "layer-device" } }),
            "neither a file nor a link",
            json!({}),
        ),
        attack(
            "layer-through-a-link",
            json!({ "ref": { "tag": "layer-through-a-link" } }),
            "both a file and a folder",
            json!({}),
        ),
        attack(
            "no-end",
            json!({ "timeout": "9999h" }),
            "spec.timeout",
            json!({ "timeout": "59m" }),
        ),
    ];
    scene
        .check(&attacks, |_, name, spec| artifact(&scene, &registry, name, spec))
        .await;
    assert!(forbidden.requests().is_empty());

    // Other tenants' sources can't be used, of any kind.
    let spec = |name: &str, namespace: &str| json!({ "sourceRef": { "kind": "OCIRepository", "name": name, "namespace": namespace } });
    let attacks = [attack(
        "source-of-alpha",
        spec("app", "ALPHA"),
        "cross-namespace references have been blocked",
        spec("loopback-control", "EVIL"),
    )];
    scene
        .check(&attacks, |_, name, spec| scene.kustomization(name, spec))
        .await;
    assert!(
        scene
            .stage
            .get(("v1", "ConfigMap"), (&evil, "from-registry"))
            .await
            .is_some()
    );
    scene.shut_down().await;
}
