//! `tenure access audit`: its output about a tenant's credentials for each user, and that it prints no value.

use serde_json::{Value, json};

use crate::commands::{Place, apply};
use crate::inspect::{CANARY, grant, impersonate, set_with};

/// A public key as ssh-keygen wrote it, and its fingerprint by `ssh-keygen -l`.
const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFG+TWz9HSuUoQA7o3wjbisd4Sdh9VuRN4pVYfdyaeyp c";
const FINGERPRINT: &str = "SHA256:VFujM5k/lqpCmwwyCY9WqjvuWbaCfGdXgtR4w/5qXMY";

/// Runs the audit, checks the exit code, and checks that neither output has a value in plain form or in the API server's encoding.
fn audit(place: &Place, arguments: &[&str], code: i32) -> (String, String) {
    let output = place.run(&[&["access", "audit", "-n", "shop"], arguments].concat());
    let outputs = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {outputs:?}");
    // `canary-5af1` in base64, for every start position in a value.
    for value in [CANARY, "Y2FuYXJ5LTVhZj", "NhbmFyeS01YW", "jYW5hcnktNWFm"] {
        assert!(!outputs.iter().any(|text| text.contains(value)), "{value}: {outputs:?}");
    }
    let [out, error] = outputs;
    (out, error)
}

fn check(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

async fn write(place: &Place, path: &str, object: Value) {
    apply(&place.folder.path().join("data"), object, path).await;
}

async fn write_secret(place: &Place, name: &str, labels: Value, data: Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop", "labels": labels}, "stringData": data});
    write(place, &format!("/api/v1/namespaces/shop/secrets/{name}"), secret).await;
}

/// Adds to the basic credentials of the Surface: a key for ssh, a deploy key, a login at a registry, and a missing Secret.
async fn set() -> Place {
    let place = set_with(tempfile::tempdir().unwrap(), &[]).await;
    let pair = json!({"identity": CANARY, "identity.pub": PUBLIC, "known_hosts": "git.example ssh-ed25519 AAAA"});
    write_secret(&place, "ssh", json!({}), pair.clone()).await;
    let labels =
        json!({"tenure.dev/credential": "deploy-key", "tenure.dev/surface": "keys", "tenure.dev/source": "app"});
    write_secret(&place, "keys-app-deploy-key", labels, pair).await;
    let config = json!({"auths": {"ghcr.io": {"auth": CANARY}}}).to_string();
    write_secret(&place, "login", json!({}), json!({".dockerconfigjson": config})).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller", "namespace": "shop"}, "imagePullSecrets": [{"name": "login"}]});
    write(&place, "/api/v1/namespaces/shop/serviceaccounts/puller", account).await;
    let sources = "/apis/source.toolkit.fluxcd.io/v1/namespaces/shop";
    let git = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "deep", "namespace": "shop"},
        "spec": {"suspend": true, "interval": "1h", "url": "ssh://git@git.example/deep", "secretRef": {"name": "ssh"}, "proxySecretRef": {"name": "none"}}});
    write(&place, &format!("{sources}/gitrepositories/deep"), git).await;
    let oci = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": {"name": "image", "namespace": "shop"},
        "spec": {"suspend": true, "interval": "1h", "url": "oci://ghcr.io/shop/image", "serviceAccountName": "puller"}});
    write(&place, &format!("{sources}/ocirepositories/image"), oci).await;
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "keys", "namespace": "shop"},
        "spec": {"suspend": true, "sources": [{"name": "app", "url": "ssh://git@git.example/app", "interval": "1h", "path": "./",
            "deployKey": {"knownHosts": "git.example ssh-ed25519 AAAA"}}]}});
    write(
        &place,
        "/apis/tenure.dev/v1alpha1/namespaces/shop/surfaces/keys",
        surface,
    )
    .await;
    place
}

#[tokio::test]
async fn every_credential_is_reported_and_no_value_is() {
    let place = set().await;
    let data = place.folder.path().join("data");
    grant(&data, "edna", "edit").await;

    // An administrator sees everything.
    let (text, _) = audit(&place, &[], 0);
    let words = [
        "shop/credentials  young enough\n  form         basic\n",
        "GitRepository/web-web .spec.secretRef, Surface/web .spec.sources[0].secretRef",
        "shown to     http://127.0.0.1:",
        "shop/ssh  young enough\n  form         ssh key\n",
        "shown to     ssh://git.example/deep",
        FINGERPRINT,
        "shop/keys-app-deploy-key  young enough",
        "labelled     deploy-key",
        "Surface/keys .spec.sources[0].deployKey",
        "shop/login  young enough\n  form         dockerconfigjson\n",
        "registries   ghcr.io",
        "OCIRepository/image .spec.serviceAccountName: imagePullSecrets of puller",
        "shop/none  does not exist",
        "namespace    edna reads it (RoleBinding edna)",
        "namespace    edna makes Pods, which can mount it (RoleBinding edna)",
        "cluster      reads it: group system:masters (ClusterRoleBinding cluster-admin)",
        "5 credentials: 0 older than 90d",
    ];
    check(&text, &words);
    let (text, _) = audit(&place, &["-o", "json"], 0);
    let report: Value = serde_json::from_str(&text).unwrap();
    let credentials = report["credentials"].as_array().unwrap();
    let names: Vec<&str> = credentials.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["credentials", "keys-app-deploy-key", "login", "none", "ssh"]);
    assert_eq!(credentials[4]["fingerprint"], FINGERPRINT);
    assert_eq!(credentials[2]["registries"], json!(["ghcr.io"]));
    assert_eq!(credentials[3]["verdict"], "absent");
    place.check(&["access", "audit", "--older-than", "0d"], 2, &[], &["less than a day"]);
}

#[tokio::test]
async fn each_user_sees_only_the_readable_part() {
    let place = set().await;
    let data = place.folder.path().join("data");
    // A user that may read the namespace with its Secrets and bindings, and nothing cluster-wide.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"}, "rules": [
        {"apiGroups": ["source.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "notification.toolkit.fluxcd.io", "tenure.dev"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets", "serviceaccounts"], "verbs": ["get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["list"]}]});
    write(&place, "/apis/rbac.authorization.k8s.io/v1/clusterroles/looks", role).await;
    grant(&data, "olga", "looks").await;
    let olga = impersonate(&place, "olga").display().to_string();
    let (text, _) = audit(&place, &["--kubeconfig", &olga], 0);
    let words = [
        "shop/credentials  young enough",
        FINGERPRINT,
        "namespace    olga has rights that could not be read (RoleBinding olga)",
        "cluster      its readers are not known: ",
    ];
    check(&text, &words);

    // A user that may read everything in the namespace except its Secrets and bindings.
    grant(&data, "victor", "view").await;
    let victor = impersonate(&place, "victor").display().to_string();
    let (text, _) = audit(&place, &["--kubeconfig", &victor], 1);
    let words = [
        "shop/credentials  you may not look into it\n  used by      GitRepository/web-web .spec.secretRef",
        "namespace    its readers are not known: ",
        "shown to     ssh://git.example/deep",
    ];
    check(&text, &words);
    let (text, _) = audit(&place, &["--kubeconfig", &victor, "-o", "json"], 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["credentials"][0]["verdict"], "unjudged");
    assert_eq!(report["credentials"][0]["readers"]["namespace"]["known"], false);

    // Neither user sees another namespace.
    place.check(
        &["access", "audit", "-A", "--kubeconfig", &victor],
        3,
        &[],
        &["nothing that uses a credential can be listed", "-n NAMESPACE"],
    );
}
