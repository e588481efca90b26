//! What one user's long work does to the requests of others.

use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::*;
use crate::authentication::UserInfo;
use crate::{Config, Server};

/// Who may change ConfigMaps everywhere, and is counted.
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
    // As if all of this namespace's share were computing.
    let share = u32::try_from(turns.own.available_permits()).expect("few");
    let held = turns.own.clone().acquire_many_owned(share).await.expect("places");

    let large = configmap("large", 100_000);
    let mut waits = Box::pin(call(&service, Some(GREEDY), "POST", MAPS, &large));
    let same = configmap("same", 100_000);
    let mut waits_too = Box::pin(call(&service, Some(GREEDY_TOO), "POST", MAPS, &same));
    // More than one step: what is before the place is passed by then.
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
        long_work::is_long(&service.shared.registry, &info, &parts.headers, body.as_bytes())
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
