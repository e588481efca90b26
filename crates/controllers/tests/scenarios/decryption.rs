//! `spec.decryption`: the decrypted files, the account that reads the keys, and the messages of failures. The real sops made the files, for
//! `crates/sops`.

use std::path::Path;

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, condition, config_map};
use crate::tenants::{surface, surface_ready, tenant};

const SECRET: (&str, &str) = ("v1", "Secret");
/// Parts of clear values and of keys, which must not appear in any status or event.
const VALUES: [&str; 3] = ["p@ss", "p=ss", "AGE-SECRET-KEY-1"];

fn read_recorded(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sops/tests/data");
    std::fs::read_to_string(folder.join(path)).unwrap()
}

fn keys(namespace: &str, entries: &[(&str, &str)]) -> Value {
    let entry = |(name, file): &(&str, &str)| {
        (
            (*name).to_owned(),
            Value::String(read_recorded(&format!("keys/{file}"))),
        )
    };
    let data: serde_json::Map<String, Value> = entries.iter().map(entry).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": namespace }, "stringData": data,
    })
}

/// Creates a stage that searches for the age key of most files, and for their values.
async fn set_listening(namespace: &str) -> Stage {
    let mut stage = Stage::set(namespace).await.planting(&[]).await;
    let key = read_recorded("keys/first.agekey");
    let key = key.lines().find(|line| line.starts_with("AGE-SECRET-KEY-1")).unwrap();
    for value in [key, "p@ss: word # and more", "p=ss word#1"] {
        stage.listen_beside_secrets(value);
    }
    stage
}

/// Creates the stage with that key in the namespace.
async fn set_with_key(namespace: &str) -> Stage {
    let stage = set_listening(namespace).await;
    let key = keys(namespace, &[("a.agekey", "first.agekey")]);
    stage.admin.apply(key).await.unwrap();
    stage
}

fn decryption() -> Value {
    json!({ "decryption": { "provider": "sops", "secretRef": { "name": "keys" } } })
}

async fn is_nowhere(stage: &Stage, namespace: &str) {
    let status = stage.get(KUSTOMIZATION, (namespace, "app")).await.unwrap()["status"].to_string();
    let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
    let texts = events.iter().map(ToString::to_string).chain([status]);
    for text in texts {
        assert!(VALUES.iter().all(|value| !text.contains(value)), "{text}");
    }
}

async fn until_ready(stage: &Stage, namespace: &str, status: &str, words: &str) {
    let is_reported = |object: Option<&Value>| {
        let ready = object.and_then(|object| condition(object, "Ready"));
        ready.is_some_and(|ready| ready["status"] == status && ready["message"].as_str().unwrap().contains(words))
    };
    stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_reported).await;
    is_nowhere(stage, namespace).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_encrypted_by_sops_are_decrypted() {
    let namespace = "decryption-a";
    let stage = Stage::set(namespace).await;
    let entries = [
        ("one.agekey", "first.agekey"),
        ("two.asc", "rsa.asc"),
        ("notes", "public.asc"),
    ];
    stage.admin.apply(keys(namespace, &entries)).await.unwrap();
    let kustomization = "resources: [secret.yaml, plain.yaml]\ngeneratorOptions: {disableNameSuffixHash: true}\nsecretGenerator:\n- name: env\n  envs: [app.env]\n- name: files\n  files: [note.bin, settings.ini=app.ini, values.yaml=sealed]\nconfigMapGenerator:\n- name: map\n  files: [config.json]\n";
    let files = [
        ("kustomization.yaml", kustomization),
        ("secret.yaml", &read_recorded("encrypted/secret.yaml")),
        ("plain.yaml", &config_map("plain", "mac: ENC[AES256_GCM,data:x]")),
        ("app.env", &read_recorded("encrypted/rsa.env")),
        ("note.bin", &read_recorded("encrypted/note.bin")),
        ("app.ini", &read_recorded("encrypted/app.ini")),
        ("config.json", &read_recorded("encrypted/config.json")),
        ("sealed", &read_recorded("encrypted/only-encrypted.yaml")),
    ];
    stage.repository(namespace, "app", &files).await;
    stage.kustomization(namespace, "app", "app", decryption()).await;
    until_ready(&stage, namespace, "True", "Applied revision").await;
    let data = async |name: &str, key: &str| {
        use base64::Engine as _;
        let secret = stage.get(SECRET, (namespace, name)).await.unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(secret["data"][key].as_str().unwrap());
        String::from_utf8(bytes.unwrap()).unwrap()
    };
    assert_eq!(data("database", "password").await, "p@ss: word # and more");
    assert_eq!(data("env", "PASSWORD").await, "p=ss word#1");
    assert_eq!(data("files", "note.bin").await, read_recorded("clear/note.bin"));
    assert_eq!(data("files", "settings.ini").await, read_recorded("clear/app.ini"));
    assert!(data("files", "values.yaml").await.contains("\"p@ss: word # and more\""));
    let plain = stage.get(CONFIG_MAP, (namespace, "plain")).await.unwrap();
    assert!(
        plain["data"].to_string().contains("mac: ENC["),
        "a text in it is not encrypted itself"
    );
    let map = stage.get(CONFIG_MAP, (namespace, "map")).await.unwrap();
    assert_eq!(map["data"]["config.json"], read_recorded("clear/config.json"));
    stage.shut_down().await;
}

/// The keys are read as the account that applies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_wrong_decryption_keys_are_named() {
    let namespace = "decryption-b";
    let stage = set_listening(namespace).await;
    let repository = stage
        .repository(namespace, "app", &[("a.yaml", &read_recorded("encrypted/secret.yaml"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    until_ready(
        &stage,
        namespace,
        "False",
        "is SOPS encrypted, configuring decryption is required",
    )
    .await;
    let patch = json!({ "spec": decryption() });
    stage
        .admin
        .patch(KUSTOMIZATION, (namespace, "app"), patch)
        .await
        .unwrap();
    until_ready(&stage, namespace, "False", "/keys': not found").await;
    // A key that does not fit these files.
    stage
        .admin
        .apply(keys(namespace, &[("a.agekey", "stranger.agekey")]))
        .await
        .unwrap();
    until_ready(
        &stage,
        namespace,
        "False",
        "cannot decrypt a.yaml: none of the keys opens it",
    )
    .await;
    for (entries, words) in [
        (
            [("a.agekey", "rsa.asc")],
            "failed to import 'a.agekey' of spec.decryption.secretRef: line 1",
        ),
        (
            [("a.asc", "locked.asc")],
            "failed to import 'a.asc' of spec.decryption.secretRef: the key has a passphrase",
        ),
        (
            [("sops.vault-token", "first.agekey")],
            "sops.vault-token is a key of HashiCorp Vault, which is not supported",
        ),
    ] {
        stage.admin.delete(SECRET, (namespace, "keys")).await.unwrap();
        stage.admin.apply(keys(namespace, &entries)).await.unwrap();
        until_ready(&stage, namespace, "False", words).await;
    }
    stage.admin.delete(SECRET, (namespace, "keys")).await.unwrap();
    stage
        .admin
        .apply(keys(namespace, &[("a.agekey", "first.agekey")]))
        .await
        .unwrap();
    until_ready(&stage, namespace, "True", "Applied revision").await;

    // Only a key service could open it.
    commit(&repository, &[("a.yaml", &read_recorded("encrypted/changed-kms.yaml"))]).await;
    until_ready(
        &stage,
        namespace,
        "False",
        "a.yaml: it is encrypted for AWS KMS only, which is not asked",
    )
    .await;
    let account = json!({ "spec": { "decryption": { "serviceAccountName": "kms" } } });
    stage
        .admin
        .patch(KUSTOMIZATION, (namespace, "app"), account)
        .await
        .unwrap();
    until_ready(&stage, namespace, "False", "spec.decryption.serviceAccountName").await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_file_is_reported_and_broken_file_is_refused() {
    let namespace = "decryption-c";
    let stage = set_with_key(namespace).await;
    let repository = stage
        .repository(
            namespace,
            "app",
            &[("a.yaml", &read_recorded("encrypted/changed-clear.yaml"))],
        )
        .await;
    stage.kustomization(namespace, "app", "app", decryption()).await;
    let words = "encrypted files were changed afterwards, or their MAC is missing: a.yaml";
    until_ready(&stage, namespace, "True", words).await;
    let is_warning = |event: &Value| event["type"] == "Warning" && event["message"].as_str().unwrap().contains(words);
    let events = stage.wait_for_event(namespace, is_warning).await;
    let warnings = events.iter().filter(|event| is_warning(event));
    assert_eq!(warnings.count(), 1, "{events:#?}");
    assert!(stage.get(SECRET, (namespace, "databank")).await.is_some());

    for (name, words) in [
        (
            "changed-swap",
            "cannot decrypt a.yaml: the value at stringData:user was changed, moved from another key",
        ),
        (
            "changed-value",
            "cannot decrypt a.yaml: the value at stringData:password was changed",
        ),
        (
            "changed-plain-value",
            "the value at stringData:password should be encrypted and isn't",
        ),
        (
            "changed-no-recipients",
            "a.yaml: its SOPS metadata: there are no recipients",
        ),
        ("changed-two-rules", "can't both be set"),
    ] {
        commit(
            &repository,
            &[("a.yaml", &read_recorded(&format!("encrypted/{name}.yaml")))],
        )
        .await;
        until_ready(&stage, namespace, "False", words).await;
    }
    // Not decrypted, on purpose.
    let left = read_recorded("encrypted/stranger.yaml").replace(
        "    name: ",
        "    annotations:\n        kustomize.toolkit.fluxcd.io/decrypt: Disabled\n    name: ",
    );
    commit(&repository, &[("a.yaml", &left)]).await;
    until_ready(&stage, namespace, "False", "ENC[AES256_GCM").await;
    stage.shut_down().await;
}

/// The API server quotes refused objects, and a build does too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decrypted_content_is_in_no_status_or_event() {
    let namespace = "decryption-d";
    let stage = set_with_key(namespace).await;
    let copied = "resources: [m.yaml]\nconfigMapGenerator:\n- name: env\n  envs: [app.env]\n  options: {disableNameSuffixHash: true}\nreplacements:\n- source: {kind: ConfigMap, name: env, fieldPath: data.PASSWORD}\n  targets:\n  - select: {kind: ConfigMap, name: m}\n    fieldPaths: [metadata.labels.p]\n    options: {create: true}\n";
    let files = [
        ("kustomization.yaml", copied),
        ("m.yaml", &config_map("m", "x")),
        ("app.env", &read_recorded("encrypted/app.env")),
    ];
    let repository = stage.repository(namespace, "app", &files).await;
    stage.kustomization(namespace, "app", "app", decryption()).await;
    until_ready(&stage, namespace, "False", "metadata.labels").await;
    // A build that fails only over a clear text: a part of it is not a number.
    let number = "resources: [m.yaml, d.yaml]\nconfigMapGenerator:\n- name: env\n  envs: [app.env]\n  options: {disableNameSuffixHash: true}\nreplacements:\n- source: {kind: ConfigMap, name: env, fieldPath: data.PASSWORD, options: {delimiter: 'ENC', index: 1}}\n  targets:\n  - select: {kind: ConfigMap, name: m}\n    fieldPaths: [data.value]\n";
    let fails = [("kustomization.yaml", number), ("d.yaml", &config_map("d", "x"))];
    commit(&repository, &fails).await;
    until_ready(
        &stage,
        namespace,
        "False",
        "the reason is not shown, since it can quote them. Decrypted were app.env",
    )
    .await;
    stage.shut_down().await;
}

/// Flux reads the keys as its own controller: a user that may write a Kustomization can use every key beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_unreadable_for_account_decrypts_nothing() {
    let namespace = "decryption-e";
    let stage = set_with_key(namespace).await;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited", "namespace": namespace } });
    stage.admin.apply(account).await.unwrap();
    stage
        .repository(namespace, "app", &[("a.yaml", &read_recorded("encrypted/secret.yaml"))])
        .await;
    let mut spec = decryption();
    spec["serviceAccountName"] = json!("limited");
    stage.kustomization(namespace, "app", "app", spec).await;
    let words = format!("/keys': system:serviceaccount:{namespace}:limited may not get this Secret");
    until_ready(&stage, namespace, "False", &words).await;
    assert!(stage.get(SECRET, (namespace, "database")).await.is_none());
    stage.shut_down().await;
}

/// A tenant's repository has its encrypted Secrets, and the keys are in its home namespace. Another tenant's Surface can't use that name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surface_decrypts_with_keys_of_its_home_namespace() {
    let stage = set_listening("decryption-f").await;
    for name in ["decryption-f1", "decryption-f2"] {
        tenant(&stage, name).await;
    }
    let key = keys("decryption-f1", &[("a.agekey", "first.agekey")]);
    stage.admin.apply(key).await.unwrap();
    let files = [("a.yaml", read_recorded("encrypted/secret.yaml"))];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    for name in ["decryption-f1", "decryption-f2"] {
        surface(&stage, name, "apps", &files, decryption()).await;
    }
    surface_ready(&stage, ("decryption-f1", "apps")).await;
    let made = stage.get(SECRET, ("decryption-f1", "database")).await.unwrap();
    assert!(made.get("sops").is_none(), "it is decrypted");
    let is_refused = |object: Option<&Value>| {
        let ready = object.and_then(|object| condition(object, "Ready"));
        ready.is_some_and(|ready| ready["status"] == "False" && ready["message"].as_str().unwrap().contains("keys"))
    };
    let other = ("decryption-f2", "apps-app");
    stage.wait_for(KUSTOMIZATION, other, is_refused).await;
    assert!(stage.get(SECRET, ("decryption-f2", "database")).await.is_none());
    stage.shut_down().await;
}
