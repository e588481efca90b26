//! A leaked canary is found in every searched place: otherwise an empty result would prove nothing.

use serde_json::json;
use tenure_testkit::{CANARY, Canary, Cluster};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_is_found_in_every_place() {
    let cluster = Cluster::start().await.unwrap();
    let admin = &cluster.admin;
    for name in ["canary-a", "canary-b"] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        admin.apply(namespace).await.unwrap();
    }
    let mut canary = Canary::plant(admin, &["canary-a"]).await.unwrap();
    let recorded = "recorded-somewhere-else";
    canary.listen_beside_secrets(recorded);
    let value = canary.find_value("canary-a").unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let texts = [("figures", "a_total{name=\"a\"} 1")];
    canary.check(admin, &texts, &[folder.path()]).await.unwrap();

    let assert_found = async |texts: &[(&str, &str)], place: &str| {
        let error = canary.check(admin, texts, &[folder.path()]).await.unwrap_err();
        assert!(error.contains(place), "{error}");
        assert!(!error.contains(&value), "the error has no value: {error}");
    };
    assert_found(&[("figures", &format!("a_total{{name=\"{value}\"}} 1"))], "figures").await;
    let encode = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    for before in ["", "x", "xx", "user:"] {
        assert_found(&[("answer", &encode(format!("{before}{value} and more")))], "answer").await;
    }

    // In another namespace; in the own one outside of its Secrets; in a status, and in an event.
    for namespace in ["canary-a", "canary-b"] {
        let map = |data: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": namespace }, "data": { "a": data } });
        admin.apply(map(&value)).await.unwrap();
        assert_found(&[], &format!("configmaps {namespace}/m")).await;
        admin.apply(map("nothing")).await.unwrap();
        canary.check(admin, &[], &[]).await.unwrap();
    }
    let secret = |data: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CANARY, "namespace": "canary-b" }, "stringData": { "a": data } });
    admin.apply(secret(&value)).await.unwrap();
    assert_found(&[], "secrets canary-b/canary").await;
    // A value that other Secrets may hold is accepted in those Secrets, and nowhere else.
    admin.apply(secret(recorded)).await.unwrap();
    canary.check(admin, &[], &[]).await.unwrap();
    assert_found(&[("answer", recorded)], "answer").await;
    admin.apply(secret("nothing")).await.unwrap();
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "k", "namespace": "canary-b" },
        "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "none" } }
    });
    admin.apply(kustomization).await.unwrap();
    let kind = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let says = |message: &str| {
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "A", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
    };
    admin.patch_status(kind, ("canary-b", "k"), says(&value)).await.unwrap();
    assert_found(&[], "kustomizations canary-b/k").await;
    admin
        .patch_status(kind, ("canary-b", "k"), says("nothing"))
        .await
        .unwrap();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "canary-b" }, "message": value,
        "involvedObject": { "kind": "ConfigMap", "name": "m", "namespace": "canary-b" }, "type": "Warning", "reason": "A"
    });
    admin.create(event).await.unwrap();
    assert_found(&[], "events canary-b/e").await;
    admin.delete(("v1", "Event"), ("canary-b", "e")).await.unwrap();
    canary.check(admin, &[], &[]).await.unwrap();

    // In plain and in compressed files.
    std::fs::write(folder.path().join("plain"), &value).unwrap();
    assert_found(&[], "plain").await;
    std::fs::remove_file(folder.path().join("plain")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, value.as_bytes()).unwrap();
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    std::fs::write(folder.path().join("deep/packed.tar.gz"), packed.finish().unwrap()).unwrap();
    assert_found(&[], "packed.tar.gz").await;
    std::fs::remove_dir_all(folder.path().join("deep")).unwrap();
    canary.check(admin, &[], &[]).await.unwrap();

    // In the log, at any level; an earlier log line is still found.
    tracing::trace!(target: "tenure_controllers", "it says {value}");
    assert_found(&[], "the log").await;
}
