//! `tenure check`: its findings with their places and headings, its output for programs, and that it writes nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::commands::{Place, apply};
use crate::process::{client, fails, tenure};

async fn get(data: &Path, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client(data).await.request(request).await.unwrap_or(Value::Null)
}

/// Returns names and versions of the objects that a check could have written.
async fn list_versions(data: &Path) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for path in [
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/api/v1/services",
        "/apis/apps/v1/deployments",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/roles",
    ] {
        let list = get(data, path).await;
        for object in list["items"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &object["metadata"];
            found.push((
                path.to_owned(),
                text(&metadata["name"]),
                text(&metadata["resourceVersion"]),
            ));
        }
    }
    found
}

async fn make_tenant(data: &Path, name: &str) {
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name },
        "spec": { "owners": [{ "kind": "User", "name": "alice" }], "containerRegistries": { "allowed": ["registry.example"] } }
    });
    let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}");
    apply(data, tenant, &path).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    loop {
        let tenant = get(data, &path).await;
        if tenant["status"]["conditions"][0]["status"] == "True" {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{tenant:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn config_map(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  key: ours\n"
    )
}

fn write_files(folder: &Path, files: &[(&str, String)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Returns files with every sort of mistake, and some valid ones.
fn wrong() -> Vec<(&'static str, String)> {
    let text = |text: &str| text.to_owned();
    vec![
        (
            "good.yaml",
            text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n"),
        ),
        ("clash.yaml", config_map("clash", "blue")),
        ("foreign.yaml", config_map("foreign", "default")),
        (
            "cluster-role.yaml",
            text("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: wide}\nrules: []\n"),
        ),
        (
            "quota.yaml",
            text(
                "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: more, namespace: blue}\nspec: {hard: {pods: '9'}}\n",
            ),
        ),
        (
            "grant.yaml",
            text(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: too-much, namespace: blue}\nrules:\n- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}\n",
            ),
        ),
        (
            "pod.yaml",
            text(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: stranger\n  namespace: blue\nspec:\n  containers:\n  - name: a\n    image: elsewhere.example/a:1\n",
            ),
        ),
        (
            "service.yaml",
            text(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: blue\nspec:\n  ports:\n  - port: 123456\n",
            ),
        ),
        (
            "unknown.yaml",
            text("apiVersion: example.org/v1\nkind: Nothing\nmetadata: {name: it, namespace: blue}\n"),
        ),
        (
            "definition.yaml",
            text(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.org}\nspec: {group: example.org, names: {kind: Thing, plural: things}, scope: Namespaced, versions: []}\n",
            ),
        ),
        (
            "thing.yaml",
            text("apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: it, namespace: blue}\n"),
        ),
        (
            "new.yaml",
            text("apiVersion: v1\nkind: Namespace\nmetadata: {name: blue-new}\n"),
        ),
        ("in-new.yaml", config_map("in-new", "blue-new")),
        (
            "secret.yaml",
            text("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: blue}\ndata: {password: hunter2!}\n"),
        ),
        (
            "sealed.yaml",
            text(
                "apiVersion: v1\nkind: Secret\nmetadata: {name: sealed, namespace: blue}\ndata: {password: 'ENC[AES256_GCM,data:x]'}\nsops: {version: 3.9.0}\n",
            ),
        ),
        (
            "kustomization.yaml",
            text(
                "resources: [good.yaml, clash.yaml, foreign.yaml, cluster-role.yaml, quota.yaml, grant.yaml, pod.yaml, service.yaml, unknown.yaml, definition.yaml, thing.yaml, new.yaml, in-new.yaml, secret.yaml, sealed.yaml]\n",
            ),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_each_mistake_and_writes_nothing() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    make_tenant(&data, "blue").await;
    let folder = place.folder.path().join("files");
    write_files(&folder, &wrong());
    let path = folder.to_str().unwrap();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clash", "namespace": "blue"}, "data": {"key": "theirs"}});
    apply(&data, theirs, "/api/v1/namespaces/blue/configmaps/clash").await;
    let before = list_versions(&data).await;

    let check = ["check", path, "--tenant", "blue"];
    let expected = [
        "clash.yaml:7: warning: ownership: ConfigMap/blue/clash: .data.key: conflict with \"test\"",
        "foreign.yaml:1: error: admission: ConfigMap/default/foreign:",
        "does not belong to tenant blue",
        "cluster-role.yaml:1: error: admission: ClusterRole/wide:",
        "quota.yaml:1: error: rbac: ResourceQuota/blue/more: system:serviceaccount:blue:blue-gitops may not patch and create resourcequotas in namespace blue",
        "grant.yaml:1: error: rbac: Role/blue/too-much:",
        "pod.yaml:8: error: admission: Pod/blue/stranger:",
        "(container-registries)",
        "service.yaml:8: error: schema: Service/blue/web: spec.ports[0].port:",
        "unknown.yaml:1: error: schema: Nothing/blue/it:",
        "thing.yaml:1: note: schema: Thing/blue/it: can't be checked before CustomResourceDefinition/things.example.org exists",
        "in-new.yaml:1: note: schema: ConfigMap/blue-new/in-new: can't be checked before Namespace/blue-new exists",
        "secret.yaml:1: error: schema: Secret/blue/s:",
        "sealed.yaml:1: note: schema: Secret/blue/sealed: is encrypted with SOPS",
    ];
    place.check(
        &check,
        1,
        &expected,
        &["15 objects checked as system:serviceaccount:blue:blue-gitops"],
    );
    let output = place.run(&check);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(
        !text.contains("ConfigMap/blue/good"),
        "valid objects are not reported: {text}"
    );

    let report: Value = serde_json::from_slice(&place.run(&[&check[..], &["-o", "json"]].concat()).stdout).unwrap();
    assert_eq!(report["objects"], 15);
    let found = report["findings"].as_array().unwrap();
    assert!(
        found
            .iter()
            .all(|finding| finding["origin"]["line"].as_u64().unwrap() > 0),
        "{report:#}"
    );
    let log: Value = serde_json::from_slice(&place.run(&[&check[..], &["-o", "sarif"]].concat()).stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!((log["version"].as_str(), results.len()), (Some("2.1.0"), found.len()));
    for (result, finding) in results.iter().zip(found) {
        let location = &result["locations"][0]["physicalLocation"];
        assert_eq!(result["ruleId"], finding["category"]);
        assert_eq!(location["artifactLocation"]["uri"], finding["origin"]["path"]);
        assert_eq!(location["region"]["startLine"], finding["origin"]["line"]);
    }

    // Mistakes in the files are reported before any request to the cluster.
    write_files(
        &folder,
        &[("good.yaml", "apiVersion: v1\nkind: ConfigMap\n".to_owned())],
    );
    place.check(&check, 1, &["good.yaml:1: error: rendering:"], &["0 objects checked"]);
    assert_eq!(list_versions(&data).await, before, "a check writes nothing");

    // The control: a valid folder has no findings.
    let right = place.folder.path().join("right");
    write_files(&right, &[("map.yaml", config_map("map", "blue"))]);
    let right = right.to_str().unwrap();
    place.check(
        &["check", right, "--tenant", "blue"],
        0,
        &[],
        &["0 errors, 0 warnings, 0 notes"],
    );
    assert_eq!(list_versions(&data).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_surface_says_as_whom_and_for_which_namespace() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    make_tenant(&data, "blue").await;
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "app", "namespace": "blue"},
        "spec": {"suspend": true, "sources": [{"name": "app", "url": "https://git.example/app.git", "paths": [
            {"name": "web", "path": "web", "targetNamespace": "blue"}, {"name": "other", "path": "other"}]}]}});
    apply(&data, surface, "/apis/tenure.dev/v1alpha1/namespaces/blue/surfaces/app").await;
    let root = place.folder.path().join("repository");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\n".to_owned();
    write_files(
        &root,
        &[
            ("web/map.yaml", map.clone()),
            ("other/map.yaml", map),
            (".git/HEAD", String::new()),
        ],
    );
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    place.check(
        &["check", &path("web"), "--surface", "blue/app"],
        0,
        &[],
        &["as system:serviceaccount:blue:blue-gitops"],
    );
    // A name without a namespace is of the namespace of -n, or of the context's.
    let own = ["check", &path("web"), "--surface", "app", "-n", "blue"];
    place.check(&own, 0, &[], &["as system:serviceaccount:blue:blue-gitops"]);
    let elsewhere = ["check", &path("web"), "--surface", "app"];
    place.check(&elsewhere, 3, &[], &["there is no Surface app in namespace default"]);
    let without = [
        "other/map.yaml:1: error: schema: ConfigMap/map:",
        "namespace not specified",
    ];
    place.check(&["check", &path("other"), "--surface", "blue/app"], 1, &without, &[]);

    place.check(
        &["check", &path("web"), "--surface", "blue/none"],
        3,
        &[],
        &["there is no Surface none in namespace blue"],
    );
    place.check(&["check", &path("web"), "--surface", "a/b/c"], 2, &[], &["hint:"]);
    place.check(&["check", &path("web"), "--tenant", "red"], 3, &[], &["not found"]);
    place.check(
        &["check", &path("nowhere"), "--tenant", "blue"],
        2,
        &[],
        &["must build at directory"],
    );
}

#[test]
fn the_identity_of_a_check_is_set_exactly_once() {
    fails(&["check", "."], 2, &["--surface", "--tenant"]);
    fails(
        &["check", ".", "--surface", "a/b", "--tenant", "a"],
        2,
        &["cannot be used with"],
    );
    fails(
        &["check", ".", "--tenant", "a", "--platform", ".", "--context", "c"],
        2,
        &["cannot be used with"],
    );
}

const PLATFORM: &str = r"
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: blue}
spec:
  owners: [{kind: User, name: alice}]
  resourceQuotas:
    scope: Namespace
    items: [{hard: {services: '1'}}]
---
apiVersion: v1
kind: Namespace
metadata: {name: blue-dev, labels: {capsule.clastix.io/tenant: blue}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: labelled}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations:
  - expression: has(object.metadata.labels) && 'team' in object.metadata.labels
    message: say whose it is by the label team
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: labelled}
spec:
  policyName: labelled
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchExpressions: [{key: capsule.clastix.io/tenant, operator: Exists}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: unreachable}
webhooks:
- name: unreachable.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: 'https://127.0.0.1:1/'}
  rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]
---
apiVersion: example.org/v1
kind: Nobodys
metadata: {name: it}
";

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: blue-dev}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

/// Without a cluster, the platform repository's own policies and quotas apply. No Git server, webhook or kubeconfig exists.
#[test]
fn a_platform_repository_stands_for_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    write_files(&folder.path().join("platform"), &[("all.yaml", PLATFORM.to_owned())]);
    let labelled = config_map("fine", "blue-dev").replace("metadata:\n", "metadata:\n  labels: {team: blue}\n");
    let files = [
        ("fine.yaml", labelled),
        ("unlabelled.yaml", config_map("unlabelled", "blue")),
        ("one.yaml", service("one")),
        ("two.yaml", service("two")),
        ("\u{1b}[31m.yaml", config_map("strange", "default")),
    ];
    write_files(&folder.path().join("app"), &files);
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("app/notes.txt")).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = tenure(&[
        "check",
        &path("app"),
        "--tenant",
        "blue",
        "--platform",
        &path("platform"),
    ])
    .output()
    .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(1), "{out}\n{error}");
    for word in [
        "unlabelled.yaml:1: error: admission: ConfigMap/blue/unlabelled: ",
        "say whose it is by the label team",
        "two.yaml:1: error: quota: Service/blue-dev/two: ",
        "\\u{1b}[31m.yaml:1: error: admission: ConfigMap/default/strange: ",
    ] {
        assert!(out.contains(word), "{word}: {out}\n{error}");
    }
    for word in ["Service/blue-dev/one", "ConfigMap/blue-dev/fine", "\u{1b}"] {
        assert!(!out.contains(word), "{word}: {out}\n{error}");
    }
    for word in [
        "ValidatingWebhookConfiguration/unreachable is left out",
        "Nobodys/it is of a kind that is not served here",
        "5 objects checked",
    ] {
        assert!(error.contains(word), "{word}: {error}");
    }

    // A mistake in the platform repository is no finding about the folder.
    std::fs::write(
        folder.path().join("platform/all.yaml"),
        PLATFORM.replace("services: '1'", "services: many"),
    )
    .unwrap();
    let wrong = [
        "check",
        &path("app"),
        "--tenant",
        "blue",
        "--platform",
        &path("platform"),
    ];
    fails(&wrong, 3, &["hint:"]);
    std::fs::write(folder.path().join("platform/all.yaml"), "kind: [").unwrap();
    fails(&wrong, 2, &["--platform"]);
}

/// A check of an untrusted folder reads nothing outside of it, and ends.
#[test]
fn a_hostile_folder_is_bounded_as_a_build_is() {
    let folder = tempfile::tempdir().unwrap();
    write_files(&folder.path().join("platform"), &[("all.yaml", PLATFORM.to_owned())]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let app = folder.path().join("app");
    write_files(
        &app,
        &[
            (".git/HEAD", String::new()),
            (
                "kustomization.yaml",
                "resources: [map.yaml]\nconfigMapGenerator: [{name: a, files: [out]}]\n".to_owned(),
            ),
            ("map.yaml", config_map("map", "blue")),
        ],
    );
    std::os::unix::fs::symlink("/etc/hostname", app.join("out")).unwrap();
    let check = |more: &[&str]| {
        let (app, platform) = (path("app"), path("platform"));
        let arguments = [&["check", &app, "--tenant", "blue", "--platform", &platform], more].concat();
        let output = tenure(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    let output = check(&[]);
    assert!(
        output.contains("error: rendering:") && output.contains("leaves the tree"),
        "{output}"
    );
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    assert!(host.trim().is_empty() || !output.contains(host.trim()), "{output}");
    write_files(&app, &[("kustomization.yaml", "resources: [map.yaml]\n".to_owned())]);
    let output = check(&["--rendering-bytes", "1"]);
    assert!(output.contains("set the budget with --rendering-bytes"), "{output}");
}
