//! Effects of one user's long work on the requests of others.

use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_auth::identity::UserInfo;

use super::*;
use crate::{Config, Server};

/// An account that may change ConfigMaps everywhere, and is counted.
const GREEDY: &str = "system:serviceaccount:greedy:first";
const GREEDY_TOO: &str = "system:serviceaccount:greedy:second";
const OTHER: &str = "system:serviceaccount:other:first";

async fn call(service: &ApiService, user: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(user) = user {
        request = request.header("impersonate-user", user);
    }
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    let response = service.handle(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn configmap(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "y".repeat(bytes)}})
}

async fn server() -> (tempfile::TempDir, ApiService) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::open(Config::new(directory.path())).await.expect("a server");
    let service = server.admin_service();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "writer"}, "rules": rules});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"});
    let binding = json!({"metadata": {"name": "writer"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}});
    let access = "/apis/rbac.authorization.k8s.io/v1";
    for (path, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
        assert_eq!(
            call(&service, None, "POST", &format!("{access}/{path}"), object)
                .await
                .0,
            201
        );
    }
    (directory, service)
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_users_long_work_holds_up_nobody_else() {
    let (_directory, service) = server().await;
    let user = UserInfo {
        name: GREEDY.to_owned(),
        ..UserInfo::default()
    };
    let turns = {
        let place = service.shared.fairness.place(&user).await.expect("a place");
        place.long_work().expect("turns")
    };
    // Takes this namespace's whole share, as if all of it were computing.
    let share = u32::try_from(turns.own[0].available_permits()).expect("few");
    let held = turns.own[0].clone().acquire_many_owned(share).await.expect("places");

    let large = configmap("large", 100_000);
    let mut waits = Box::pin(call(&service, Some(GREEDY), "POST", MAPS, &large));
    let same = configmap("same", 100_000);
    let mut waits_too = Box::pin(call(&service, Some(GREEDY_TOO), "POST", MAPS, &same));
    // Several polls, so that the request passes all steps before the permit.
    for _ in 0..20 {
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert!(
            futures::poll!(waits_too.as_mut()).is_pending(),
            "another account, and the same place"
        );
        tokio::task::yield_now().await;
    }
    let (code, _) = call(&service, Some(GREEDY_TOO), "POST", MAPS, &configmap("small", 10)).await;
    assert_eq!(code, 201, "small requests wait for nothing");
    let (code, _) = call(&service, Some(OTHER), "POST", MAPS, &configmap("others", 100_000)).await;
    assert_eq!(code, 201, "a large one of another user goes through");
    let (code, _) = call(&service, None, "POST", MAPS, &configmap("admins", 100_000)).await;
    assert_eq!(code, 201, "and an administrator's");
    assert!(futures::poll!(waits.as_mut()).is_pending());

    drop(held);
    let (first, second) = futures::join!(waits, waits_too);
    assert_eq!((first.0, second.0), (201, 201));
}

/// Large roles of a tenant delay only requests of the users that they name.
#[tokio::test]
async fn large_roles_hold_up_only_whom_they_name() {
    let (_directory, service) = server().await;
    let names: Vec<String> = (0..5_000).map(|number| format!("n{number}")).collect();
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "long"}, "rules": rules});
    let subject = json!({"kind": "ServiceAccount", "namespace": "greedy", "name": "first"});
    let binding = json!({"metadata": {"name": "long"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "long"}});
    let access = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for (path, object) in [("roles", &role), ("rolebindings", &binding)] {
        let made = call(&service, None, "POST", &format!("{access}/{path}"), object).await;
        assert_eq!(made.0, 201, "{}", made.1);
    }
    let user = UserInfo {
        name: GREEDY.to_owned(),
        ..UserInfo::default()
    };
    let weighs = |namespace: &str| {
        service
            .shared
            .cluster
            .gate
            .rights()
            .with(|rbac| rbac.outweighs(&user, namespace, 4_096))
    };
    assert!(weighs("default"));
    assert!(!weighs("other"));
    // Sent as that account itself: an impersonating user has a share of its own.
    let namespace = json!({"metadata": {"name": "greedy"}});
    assert_eq!(
        call(&service, None, "POST", "/api/v1/namespaces", &namespace).await.0,
        201
    );
    let accounts = "/api/v1/namespaces/greedy/serviceaccounts";
    let account = json!({"metadata": {"name": "first"}});
    assert_eq!(call(&service, None, "POST", accounts, &account).await.0, 201);
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (code, answer) = call(&service, None, "POST", &format!("{accounts}/first/token"), &wanted).await;
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    let outside = ApiService {
        peer: Peer::Anonymous,
        ..service.clone()
    };
    let get = async || {
        let request = Request::get(MAPS).header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        outside.handle(request).await.status().as_u16()
    };
    let turns = {
        let place = service.shared.fairness.place(&user).await.expect("a place");
        place.long_work().expect("turns")
    };
    let share = u32::try_from(turns.own[0].available_permits()).expect("few");
    let held = turns.own[0].clone().acquire_many_owned(share).await.expect("places");
    let mut waits = Box::pin(get());
    for _ in 0..20 {
        assert!(futures::poll!(waits.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(call(&service, Some(OTHER), "GET", MAPS, &Value::Null).await.0, 200);
    drop(held);
    assert_eq!(waits.await, 200);
}

#[tokio::test]
async fn which_requests_are_long() {
    let (_directory, service) = server().await;
    for (name, bytes) in [("small", 10), ("large", 100_000)] {
        assert_eq!(call(&service, None, "POST", MAPS, &configmap(name, bytes)).await.0, 201);
    }
    let is_long = |method: &str, name: &str, (header, form): (&str, &str), body: &str| {
        let path = format!("{MAPS}/{name}");
        let request = Request::builder().method(method).uri(path.trim_end_matches('/'));
        let (parts, ()) = request.header(header, form).body(()).expect("a request").into_parts();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &[]);
        crate::long_requests::measure_request(&service.shared.cluster.registry, &info, &parts.headers, body.as_bytes())
            .is_long
    };
    let json = ("content-type", "application/json");
    let patch = ("content-type", "application/json-patch+json");
    let apply = ("content-type", "application/apply-patch+yaml");
    let (small, large) = ("x".repeat(16 * 1024), "x".repeat(16 * 1024 + 1));
    for (method, name, header, body, want) in [
        ("POST", "", json, small.as_str(), false),
        ("POST", "", json, large.as_str(), true),
        ("GET", "large", json, "", false),
        (
            "GET",
            "large",
            ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
            "",
            true,
        ),
        (
            "GET",
            "small",
            ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
            "",
            false,
        ),
        ("PATCH", "small", apply, "{}", false),
        ("PATCH", "large", apply, "{}", true),
        ("PATCH", "small", apply, "a: &x {}\nb: *x\n", true),
        (
            "PATCH",
            "small",
            ("content-type", "Application/Apply-Patch+YAML"),
            "a: &x {}\nb: *x\n",
            true,
        ),
        (
            "PATCH",
            "small",
            patch,
            r#"[{"op":"add","path":"/data/a","value":"b"}]"#,
            false,
        ),
        (
            "PATCH",
            "small",
            patch,
            r#"[{"op":"copy","from":"/data/x","path":"/data/a"}]"#,
            true,
        ),
        (
            "PATCH",
            "small",
            patch,
            r#"[{"op":"c\u006fpy","from":"/data/x","path":"/data/a"}]"#,
            true,
        ),
        ("DELETE", "", json, "", true),
    ] {
        assert_eq!(is_long(method, name, header, body), want, "{method} {name} {header:?}");
    }
}
