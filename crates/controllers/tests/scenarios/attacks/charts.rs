//! Attacks of a tenant with its own repository of charts, or with the fields that name one.

use serde_json::{Value, json};
use tenure_registry_server::{Answer, RecordedRequest, RegistryServer, pack_entries, pack_files};

use super::{Scene, attack};
use crate::stage::{HELM_CHART, HELM_REPOSITORY};

/// Files of a chart that nobody would package: their path, and the content.
type Files = &'static [(&'static str, &'static str)];

const METADATA: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
/// The indexes of repositories by their path, each with the address of one chart.
const LEADING: [(&str, &str); 6] = [
    ("metadata", "http://169.254.169.254/latest/meta-data"),
    ("mapped", "http://[::ffff:a9fe:a9fe]/x"),
    ("private", "http://10.0.0.1/x.tgz"),
    ("file", "file:///etc/passwd"),
    ("outside", "outside.tgz"),
    ("bomb", "bomb.tgz"),
];

/// Answers as a web server with repositories: a good one, and those that lead elsewhere.
fn answer(request: &RecordedRequest) -> Option<Answer> {
    let index = |url: &str| format!("apiVersion: v1\nentries:\n  app:\n  - {{version: 1.0.0, urls: ['{url}']}}\n");
    let target = request.target.as_str();
    if let Some((folder, "index.yaml")) = target.trim_start_matches('/').split_once('/') {
        let leading = LEADING.iter().find(|(name, _)| *name == folder);
        return Some(Answer::new(200, index(leading.map_or("app.tgz", |(_, url)| url))));
    }
    let good: Files = &[("app/Chart.yaml", METADATA), ("app/values.yaml", "a: 1\n")];
    Some(match target.rsplit('/').next()? {
        "app.tgz" => Answer::new(200, pack_files(good)),
        "outside.tgz" => {
            let entries = [(b'0', "app/Chart.yaml", ""), (b'0', "app/../../../etc/passwd", "")];
            Answer::new(200, pack_entries(&entries))
        }
        "bomb.tgz" => {
            let zeros = "0".repeat(5 << 20);
            let paths: Vec<String> = (0..25).map(|number| format!("app/{number}")).collect();
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), zeros.as_str())).collect();
            Answer::new(200, pack_files(&files))
        }
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_repositories_reach_nothing_else() {
    let server = RegistryServer::start().await.unwrap();
    server.answer_with(answer);
    let forbidden = RegistryServer::start().await.unwrap();
    let redirecting = RegistryServer::start().await.unwrap();
    redirecting.answer_with(|_| Some(Answer::new(302, "").with("Location", "http://169.254.169.254/index.yaml")));
    let allowed = [&server, &redirecting].map(|server| format!("http://{}", server.address()));
    let scene = Scene::set_allowing("attacks-h", &allowed).await;
    for namespace in [&scene.alpha, &"tenure-system".to_owned()] {
        scene
            .stage
            .admin
            .apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "charts-of-alpha", "namespace": namespace },
                "stringData": { "username": "alpha", "password": "sesame" }
            }))
            .await
            .unwrap();
    }
    let url = |server: &RegistryServer| format!("http://{}/good", server.address());
    let attacks = [
        attack(
            "loopback",
            json!({ "url": url(&forbidden) }),
            "a loopback address",
            json!({}),
        ),
        attack(
            "metadata",
            json!({ "url": "http://169.254.169.254/latest" }),
            "a cloud metadata address",
            json!({}),
        ),
        attack(
            "redirect",
            json!({ "url": url(&redirecting) }),
            "a cloud metadata address",
            json!({}),
        ),
        attack("scheme", json!({ "url": "file:///etc" }), "spec.url", json!({})),
        attack(
            "secret-dots",
            json!({ "secretRef": { "name": "../../ALPHA/secrets/charts-of-alpha" } }),
            "spec.secretRef.name",
            json!({}),
        ),
        attack(
            "secret-of-alpha",
            json!({ "secretRef": { "name": "charts-of-alpha" } }),
            "Secret EVIL/charts-of-alpha can't be read as system:serviceaccount:EVIL:EVIL-gitops",
            json!({}),
        ),
        attack(
            "certificates-of-alpha",
            json!({ "certSecretRef": { "name": "charts-of-alpha" } }),
            "Secret EVIL/charts-of-alpha can't be read",
            json!({}),
        ),
        attack(
            "no-end",
            json!({ "timeout": "900m" }),
            "spec.timeout",
            json!({ "timeout": "59m" }),
        ),
    ];
    let repository = |name: &str, spec: &Value| {
        let usual = json!({ "url": url(&server), "interval": "1s" });
        scene.object(HELM_REPOSITORY, name, usual, spec)
    };
    scene.check(&attacks, |_, name, spec| repository(name, spec)).await;
    assert!(forbidden.requests().is_empty());

    for (name, _) in LEADING {
        let url = format!("http://{}/{name}", server.address());
        scene
            .mallory
            .apply(repository(&format!("to-{name}"), &json!({ "url": url })))
            .await
            .unwrap();
    }
    let registry = json!({ "type": "oci", "url": format!("oci://{}/charts", forbidden.address()), "insecure": true });
    scene.mallory.apply(repository("to-registry", &registry)).await.unwrap();
    let of = |name: &str| json!({ "sourceRef": { "kind": "HelmRepository", "name": name } });
    let leading = |name: &'static str, from: &str, expected: &str| attack(name, of(from), expected, json!({}));
    let attacks = [
        leading("chart-metadata", "to-metadata", "a cloud metadata address"),
        leading("chart-mapped", "to-mapped", "a cloud metadata address"),
        leading("chart-private", "to-private", "a private address"),
        leading("chart-file", "to-file", "no http or https URL"),
        leading("chart-outside", "to-outside", "parent directory"),
        leading("chart-bomb", "to-bomb", "more than 100 MiB"),
        leading("chart-registry", "to-registry", "a loopback address"),
        attack(
            "chart-source-dots",
            json!({ "sourceRef": { "kind": "HelmRepository", "name": "../ALPHA/charts" } }),
            "not found",
            json!({}),
        ),
        attack(
            "chart-up",
            json!({ "chart": "../../etc/passwd" }),
            "spec.chart",
            json!({}),
        ),
        attack(
            "chart-keys-of-alpha",
            json!({ "sourceRef": { "kind": "HelmRepository", "name": "to-registry" }, "verify": { "provider": "cosign", "secretRef": { "name": "charts-of-alpha" } } }),
            "Secret EVIL/charts-of-alpha can't be read",
            json!({}),
        ),
        attack(
            "chart-values-up",
            json!({ "valuesFiles": ["../../../etc/passwd"] }),
            "no values file found",
            json!({ "valuesFiles": ["values.yaml", "./values.yaml"] }),
        ),
    ];
    let chart = |name: &str, spec: &Value| {
        let usual = json!({
            "chart": "app", "interval": "1s", "sourceRef": { "kind": "HelmRepository", "name": "loopback-control" }
        });
        scene.object(HELM_CHART, name, usual, spec)
    };
    scene.check(&attacks, |_, name, spec| chart(name, spec)).await;
    assert!(forbidden.requests().is_empty());
    scene.shut_down().await;
}
