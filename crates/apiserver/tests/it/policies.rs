//! ValidatingAdmissionPolicies behave as in a real kube-apiserver, and withstand attempts to bypass them.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::{Config, Server};

use crate::exchanges::list_scenario_differences;

/// Contents of policies and bindings, the rights to write them, and their effect on requests match the recording.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_hold_as_on_a_real_server() {
    let directory = tempfile::tempdir().unwrap();
    // The recording had no controller manager, which would write into the policies' status.
    let config = Config {
        controllers: false,
        ..Config::new(directory.path())
    };
    let server = Server::open(config).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = list_scenario_differences(&server, "policies", &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{out}");
}

/// The status of a policy reports the type errors of its expressions after the controller has checked them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_are_checked_as_by_a_real_controller() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = list_scenario_differences(&server, "policy_status", &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{out}");
}

/// A server that receives requests of chosen users.
struct Site {
    server: Server,
    _directory: tempfile::TempDir,
}

const NAMESPACE: &str = "/api/v1/namespaces/default";
const JARS: &str = "/apis/test.io/v1/namespaces/default/jars";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

impl Site {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::open(Config::new(directory.path())).await.unwrap();
        let site = Self {
            server,
            _directory: directory,
        };
        let binding = json!({
            "metadata": {"name": "mallory"}, "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        assert_eq!(site.ask(None, "POST", path, &binding).await.0, 201);
        site
    }

    async fn ask(&self, user: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.ask_with(user, method, path, "application/json", body).await
    }

    async fn ask_with(
        &self,
        user: Option<&str>,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> (u16, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content);
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = self.server.admin_service().handle(request).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Puts a policy into force. `spec` has the fields beyond the common ones.
    async fn enforce(&self, name: &str, spec: Value, actions: Value) {
        let policy = json!({"metadata": {"name": name}, "spec": spec});
        let (status, answer) = self.ask(None, "POST", POLICIES, &policy).await;
        assert_eq!(status, 201, "{answer}");
        let mut binding = json!({"policyName": name});
        binding
            .as_object_mut()
            .unwrap()
            .extend(actions.as_object().unwrap().clone());
        let binding = json!({"metadata": {"name": name}, "spec": binding});
        let (status, answer) = self.ask(None, "POST", BINDINGS, &binding).await;
        assert_eq!(status, 201, "{answer}");
    }
}

fn rules(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": groups, "apiVersions": versions, "operations": ["*"], "resources": resources,
    }]})
}

/// A policy sees the final object, whichever way the request takes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_leads_around_a_policy() {
    let site = Site::open().await;
    let versions = ["v1", "v2"].map(|name| {
        json!({
            "name": name, "served": true, "storage": name == "v2",
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        })
    });
    let definition = json!({
        "metadata": {"name": "jars.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced", "names": {"kind": "Jar", "plural": "jars"},
            "versions": versions},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(site.ask(None, "POST", definitions, &definition).await.0, 201);
    let jar = |replicas: u64| json!({"apiVersion": "test.io/v1", "kind": "Jar", "metadata": {"name": "a"}, "spec": {"replicas": replicas}});
    assert_eq!(site.ask(None, "POST", JARS, &jar(1)).await.0, 201);
    let map = json!({"metadata": {"name": "kept", "labels": {"kept": "yes"}}, "data": {"a": "1"}});
    let maps = format!("{NAMESPACE}/configmaps");
    assert_eq!(site.ask(None, "POST", &maps, &map).await.0, 201);

    let few = json!({
        "matchConstraints": rules(&["test.io"], &["v2"], &["jars", "jars/scale", "jars/status"]),
        "validations": [{"expression": "!has(object.spec) || object.spec.replicas < 5", "message": "too many"}],
    });
    site.enforce("few", few, json!({"validationActions": ["Deny"]})).await;
    let kept = json!({
        "matchConstraints": rules(&[""], &["v1"], &["configmaps"]),
        "matchConditions": [{"name": "kept", "expression": "oldObject != null && oldObject.metadata.?labels.kept.orValue('') == 'yes'"}],
        "validations": [{"expression": "object != null && object.data == oldObject.data && object.metadata.?labels.kept.orValue('') == 'yes'", "message": "it stays"}],
    });
    site.enforce("kept", kept, json!({"validationActions": ["Deny"]})).await;

    let one = format!("{JARS}/a");
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let patch = "application/json-patch+json";
    let nine = json!({"spec": {"replicas": 9}});
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 9}]);
    let mut put = site.ask(None, "GET", &one, &Value::Null).await.1;
    put["spec"]["replicas"] = json!(9);
    let mut new = jar(9);
    new["metadata"]["name"] = json!("b");
    let generated =
        json!({"apiVersion": "test.io/v1", "kind": "Jar", "metadata": {"generateName": "b"}, "spec": {"replicas": 9}});
    let kept_one = format!("{maps}/kept");
    for (method, path, content, body) in [
        ("POST", JARS.to_owned(), "application/json", &new),
        ("POST", JARS.to_owned(), "application/json", &generated),
        ("POST", format!("{JARS}?dryRun=All"), "application/json", &new),
        ("PUT", one.clone(), "application/json", &put),
        ("PUT", format!("{one}?dryRun=All"), "application/json", &put),
        ("PATCH", one.clone(), merge, &nine),
        ("PATCH", one.clone(), patch, &replace),
        ("PATCH", format!("{one}?fieldManager=m&force=true"), apply, &jar(9)),
        ("PATCH", format!("{JARS}/b?fieldManager=m"), apply, &new),
        ("PATCH", format!("{one}/scale"), merge, &nine),
        ("PATCH", kept_one.clone(), merge, &json!({"data": {"a": "2"}})),
        (
            "PATCH",
            kept_one.clone(),
            "application/strategic-merge-patch+json",
            &json!({"metadata": {"labels": {"kept": null}}}),
        ),
        ("DELETE", kept_one.clone(), "application/json", &Value::Null),
        (
            "DELETE",
            format!("{kept_one}?dryRun=All"),
            "application/json",
            &Value::Null,
        ),
        (
            "DELETE",
            format!("{kept_one}?propagationPolicy=Orphan"),
            "application/json",
            &Value::Null,
        ),
        ("DELETE", maps.clone(), "application/json", &Value::Null),
    ] {
        let (status, answer) = site.ask_with(Some("mallory"), method, &path, content, body).await;
        assert_eq!(status, 422, "{method} {path} {answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("denied request: "), "{message}");
    }
    // Requests that the policies allow succeed.
    for (method, path, content, body) in [
        ("PATCH", one.clone(), merge, json!({"spec": {"replicas": 4}})),
        ("PATCH", format!("{one}/scale"), merge, json!({"spec": {"replicas": 3}})),
        (
            "PATCH",
            kept_one.clone(),
            merge,
            json!({"metadata": {"labels": {"more": "yes"}}}),
        ),
    ] {
        let (status, answer) = site.ask_with(Some("mallory"), method, &path, content, &body).await;
        assert_eq!(status, 200, "{method} {path} {answer}");
    }
    // A user with all rights in a namespace can't remove the policy either.
    for path in [POLICIES, BINDINGS] {
        for name in ["few", "kept"] {
            let path = format!("{path}/{name}");
            assert_eq!(site.ask(Some("mallory"), "DELETE", &path, &Value::Null).await.0, 403);
        }
    }
    // Without its binding a policy has no effect on the next request.
    assert_eq!(
        site.ask(None, "DELETE", &format!("{BINDINGS}/few"), &Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(site.ask_with(Some("mallory"), "PATCH", &one, merge, &nine).await.0, 200);
    site.server.close().await;
}

/// A policy that can't be evaluated refuses the requests that it matches, and no others. Its own removal stays
/// possible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_policy_can_be_taken_away() {
    let site = Site::open().await;
    let broken = json!({
        "matchConstraints": rules(&["*"], &["*"], &["*/*"]),
        "paramKind": {"apiVersion": "nowhere.io/v1", "kind": "Gone"},
        "validations": [{"expression": "params.x == 1"}],
    });
    let bound = json!({"validationActions": ["Deny"], "paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}});
    site.enforce("broken", broken, bound).await;
    let map = json!({"metadata": {"name": "a"}});
    let maps = format!("{NAMESPACE}/configmaps");
    let (status, answer) = site.ask(None, "POST", &maps, &map).await;
    assert_eq!(status, 422, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.ends_with("failed to find resource referenced by paramKind: 'nowhere.io/v1, Kind=Gone'"),
        "{message}"
    );
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(site.ask(None, "POST", reviews, &review).await.0, 201);
    assert_eq!(
        site.ask(None, "DELETE", &format!("{POLICIES}/broken"), &Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(site.ask(None, "POST", &maps, &map).await.0, 201);
    site.server.close().await;
}

/// Expressions and parameters have a cost budget. Requests that meet a costly policy are refused, and other requests
/// are not delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_costly_policy_is_stopped() {
    let site = Site::open().await;
    let maps = format!("{NAMESPACE}/configmaps");
    let big = "x".repeat(500_000);
    for number in 0..8 {
        let map =
            json!({"metadata": {"name": format!("p{number}"), "labels": {"param": "yes"}}, "data": {"text": big}});
        assert_eq!(site.ask(None, "POST", &maps, &map).await.0, 201);
    }
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let loops: String = (0..9).map(|depth| format!("{ten}.all(v{depth},")).collect();
    let burning = format!("{loops}v0>0{}", ")".repeat(9));
    for (name, expression) in [
        ("loops", burning.as_str()),
        (
            "texts",
            "params.data.text.matches('(x+x+)+y') || params.data.text.contains(params.data.text + 'y')",
        ),
        (
            "copies",
            "[params.data.text].map(a, a + a).map(b, b + b).map(c, c + c).map(d, d + d).map(e, e + e).map(f, f + f).map(g, g + g).map(h, h + h).map(i, i + i).size() == 2",
        ),
    ] {
        let policy = json!({
            "matchConstraints": rules(&[""], &["v1"], &["secrets"]),
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": expression}],
        });
        let bound = json!({"validationActions": ["Deny"], "paramRef": {"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Deny"}});
        site.enforce(name, policy, bound).await;
        let secrets = format!("{NAMESPACE}/secrets");
        let secret = json!({"metadata": {"name": "a"}});
        let (refused, other) = futures::join!(
            site.ask(None, "POST", &secrets, &secret),
            site.ask(None, "GET", "/api/v1/namespaces/default", &Value::Null)
        );
        assert_eq!(other.0, 200);
        let message = refused.1["message"].as_str().unwrap();
        assert_eq!(refused.0, 422, "{message:.300}");
        let stopped = message.ends_with("operation cancelled: actual cost limit exceeded")
            || message.contains("running out of cost budget");
        assert!(stopped, "{name}: {message:.300}");
        assert_eq!(
            site.ask(None, "DELETE", &format!("{BINDINGS}/{name}"), &Value::Null)
                .await
                .0,
            200
        );
    }
    site.server.close().await;
}

/// The right to write policies gives no access to Secrets. A policy's parameters appear in no answer unless the
/// policy's author prints them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_give_no_secret_away() {
    let site = Site::open().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "author"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
    ]});
    let bound = json!({
        "metadata": {"name": "author"}, "subjects": [{"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "author", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let secret = json!({"metadata": {"name": "token"}, "stringData": {"token": "hunter2"}});
    for (path, object) in [
        (format!("{rbac}/clusterroles"), &role),
        (format!("{rbac}/clusterrolebindings"), &bound),
        (format!("{NAMESPACE}/secrets"), &secret),
    ] {
        let (status, answer) = site.ask(None, "POST", &path, object).await;
        assert_eq!(status, 201, "{answer}");
    }
    let policy = |name: &str, kind: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": kind},
            "matchConstraints": rules(&[""], &["v1"], &["configmaps"]),
            "validations": [
                {"expression": "object.data.guess != params.data.token", "messageExpression": "'no: ' + params.data.token"},
                {"expression": "int(params.data.token) == 1"},
            ],
        }})
    };
    let binding = |policy: &str| {
        json!({"metadata": {"name": "peek"}, "spec": {
            "policyName": policy, "validationActions": ["Warn"],
            "paramRef": {"name": "token", "namespace": "default", "parameterNotFoundAction": "Deny"},
        }})
    };
    let carol = Some("carol");
    assert_eq!(site.ask(carol, "POST", POLICIES, &policy("own", "Secret")).await.0, 422);
    let (status, answer) = site.ask(carol, "POST", POLICIES, &policy("maps", "ConfigMap")).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(site.ask(carol, "POST", BINDINGS, &binding("maps")).await.0, 201);
    // A binding's policy can't change its kind of parameters, and the binding can't be pointed to another author's
    // policy.
    let merge = "application/merge-patch+json";
    let to_secrets = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "Secret"}}});
    let path = format!("{POLICIES}/maps");
    assert_eq!(site.ask_with(carol, "PATCH", &path, merge, &to_secrets).await.0, 422);
    assert_eq!(
        site.ask(None, "POST", POLICIES, &policy("admins", "Secret")).await.0,
        201
    );
    let to_admins = json!({"spec": {"policyName": "admins"}});
    let path = format!("{BINDINGS}/peek");
    assert_eq!(site.ask_with(carol, "PATCH", &path, merge, &to_admins).await.0, 422);
    // The author of a policy on Secrets decides which values its messages contain. A failure prints none.
    let deny = json!({"spec": {"policyName": "admins", "validationActions": ["Deny"]}});
    assert_eq!(site.ask_with(None, "PATCH", &path, merge, &deny).await.0, 200);
    let maps = format!("{NAMESPACE}/configmaps");
    let guess = json!({"metadata": {"name": "a"}, "data": {"guess": "x"}});
    let (status, answer) = site.ask(carol, "POST", &maps, &guess).await;
    assert_eq!(status, 422, "{answer}");
    for secret in ["hunter2", "aHVudGVyMg"] {
        assert!(!answer.to_string().contains(secret), "{answer}");
    }
    site.server.close().await;
}
