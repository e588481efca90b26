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
        let place = service.shared.fairness.wait_for_permit(&user).await.expect("a place");
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
            .with_index(|rbac| rbac.outweighs(&user, namespace, 4_096))
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
        let place = service.shared.fairness.wait_for_permit(&user).await.expect("a place");
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

fn is_long(service: &ApiService, method: &str, path: &str, (header, form): (&str, &str), body: &str) -> bool {
    let request = Request::builder().method(method).uri(path).header(header, form);
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    let query = Query::parse(parts.uri.query());
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query.0);
    let request = crate::long_requests::RequestParts {
        info: &info,
        query: &query,
        headers: &parts.headers,
        body: body.as_bytes(),
    };
    crate::long_requests::measure_request(&service.shared.cluster.registry, &request).is_long
}

#[tokio::test]
async fn which_requests_are_long() {
    let (_directory, service) = server().await;
    for (name, bytes) in [("small", 10), ("large", 100_000)] {
        assert_eq!(call(&service, None, "POST", MAPS, &configmap(name, bytes)).await.0, 201);
    }
    let is_long = |method: &str, name: &str, header: (&str, &str), body: &str| {
        let path = format!("{MAPS}/{name}");
        is_long(&service, method, path.trim_end_matches('/'), header, body)
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

/// The work on a request grows with its terms. All of these bodies and objects have few bytes.
#[tokio::test]
async fn requests_of_many_terms_are_long() {
    let (_directory, service) = server().await;
    let managers = async |name: &str, count: usize| {
        for number in 0..count {
            let path = format!("{MAPS}/{name}?fieldManager=m{number}&force=true");
            let metadata = json!({"name": name});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}});
            let object = object.to_string();
            let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
            let request = request.body(Full::new(Bytes::from(object))).expect("a request");
            assert!(service.handle(request).await.status().is_success());
        }
    };
    managers("few", 10).await;
    managers("many", 100).await;
    let (few, many) = (format!("{MAPS}/few"), format!("{MAPS}/many"));
    let listed = |count: usize| {
        let finalizers: Vec<String> = (0..count).map(|number| format!("a/{number}")).collect();
        json!({"metadata": {"finalizers": finalizers}}).to_string()
    };
    let terms = |count: usize| {
        let terms: Vec<String> = (0..count).map(|number| format!("k{number}!=v")).collect();
        format!("{MAPS}?labelSelector={}", terms.join(","))
    };
    let merge = ("content-type", "application/merge-patch+json");
    let apply = ("content-type", "application/apply-patch+yaml");
    let protobuf = ("content-type", "application/vnd.kubernetes.protobuf");
    let table = ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let json = ("content-type", "application/json");
    let yaml = format!("data:\n{}", "  a:\n".repeat(600));
    let eviction = "/api/v1/namespaces/default/pods/a/eviction";
    for (method, path, header, body, want) in [
        ("PATCH", few.as_str(), merge, "{}", false),
        ("PATCH", many.as_str(), merge, "{}", true),
        ("GET", many.as_str(), json, "", false),
        ("GET", few.as_str(), table, "", false),
        ("GET", many.as_str(), table, "", true),
        ("PATCH", few.as_str(), merge, listed(100).as_str(), false),
        ("PATCH", few.as_str(), merge, listed(600).as_str(), true),
        (
            "PATCH",
            few.as_str(),
            merge,
            &format!("{{\"a\":\"{}\"}}", ",".repeat(600)),
            false,
        ),
        ("PATCH", few.as_str(), apply, yaml.as_str(), true),
        ("PATCH", few.as_str(), apply, listed(600).as_str(), true),
        ("POST", MAPS, protobuf, "nothing that can be read", false),
        ("GET", terms(100).as_str(), json, "", false),
        ("GET", terms(300).as_str(), json, "", true),
        ("GET", few.as_str(), ("accept", &"a,".repeat(10_000)), "", true),
        ("POST", eviction, json, "{}", true),
    ] {
        assert_eq!(
            is_long(&service, method, path, header, body),
            want,
            "{method} {}",
            &path[..60.min(path.len())]
        );
    }
}

/// A search that visits many objects, or has many terms, waits for a permit of its user. Other users don't wait.
#[tokio::test]
async fn searches_take_their_users_share() {
    let (_directory, service) = server().await;
    for number in 0..30 {
        let made = call(&service, None, "POST", MAPS, &configmap(&format!("m{number}"), 2_000)).await;
        assert_eq!(made.0, 201);
    }
    let user = UserInfo {
        name: GREEDY.to_owned(),
        ..UserInfo::default()
    };
    let turns = {
        let place = service.shared.fairness.wait_for_permit(&user).await.expect("a place");
        place.long_work().expect("turns")
    };
    let terms: Vec<String> = (0..300).map(|number| format!("k{number}!=v")).collect();
    let terms = terms.join(",");
    let long = format!("{MAPS}?labelSelector={terms}");
    let absent = format!("{MAPS}?labelSelector=a&limit=1");
    let watch = format!("{MAPS}?watch=true&labelSelector={terms}");
    let begin = |user: &'static str, path: String| {
        let service = service.clone();
        Box::pin(async move {
            let request = Request::get(path).header("impersonate-user", user);
            let request = request.body(Full::new(Bytes::new())).expect("a request");
            service.handle(request).await.status().as_u16()
        })
    };
    for path in [long, absent, watch] {
        let share = u32::try_from(turns.own[0].available_permits()).expect("few");
        let held = turns.own[0].clone().acquire_many_owned(share).await.expect("places");
        let mut waits = begin(GREEDY, path.clone());
        for _ in 0..20 {
            assert!(futures::poll!(waits.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(begin(OTHER, path).await, 200);
        assert_eq!(begin(GREEDY, format!("{MAPS}?limit=1")).await, 200, "no search");
        drop(held);
        assert_eq!(waits.await, 200, "a part of long work needs no further permit");
    }
}

/// Each watch with a selector decodes each change: a large change is decoded within the share of the watch's user.
#[tokio::test]
async fn watch_decodes_large_changes_in_its_users_share() {
    let (_directory, service) = server().await;
    let user = UserInfo {
        name: GREEDY.to_owned(),
        ..UserInfo::default()
    };
    let turns = {
        let place = service.shared.fairness.wait_for_permit(&user).await.expect("a place");
        place.long_work().expect("turns")
    };
    let revision = call(&service, None, "GET", MAPS, &Value::Null).await.1["metadata"]["resourceVersion"].clone();
    let revision = revision.as_str().expect("a revision");
    let open = async |user: &str| {
        // A revision, as the initial objects would be read within the share, too.
        let path = format!("{MAPS}?watch=true&labelSelector=!a&resourceVersion={revision}");
        let request = Request::get(path).header("impersonate-user", user);
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        service.handle(request).await.into_body()
    };
    let (mut greedy, mut other) = (open(GREEDY).await, open(OTHER).await);
    let share = u32::try_from(turns.own[0].available_permits()).expect("few");
    let held = turns.own[0].clone().acquire_many_owned(share).await.expect("places");
    for (name, bytes) in [("small", 10), ("large", 100_000)] {
        assert_eq!(call(&service, None, "POST", MAPS, &configmap(name, bytes)).await.0, 201);
    }
    let wants = async |body: &mut Body, name: &str| {
        let mut text = String::new();
        while !text.contains(&format!("\"name\":\"{name}\"")) {
            let frame = body.frame().await.expect("a frame").expect("no error");
            text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
        }
    };
    wants(&mut other, "large").await;
    wants(&mut greedy, "small").await;
    {
        let mut waits = Box::pin(wants(&mut greedy, "large"));
        for _ in 0..20 {
            assert!(futures::poll!(waits.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        drop(held);
        waits.await;
    }
}

/// A watch holds its selectors for as long as its client wants.
#[tokio::test]
async fn selectors_of_a_watch_are_charged_until_it_ends() {
    let (_directory, service) = server().await;
    let held = || service.shared.fairness.ledger(MemoryUse::Objects).held_bytes().0;
    let open = async |selector: &str| {
        let path = format!("{MAPS}?watch=true&labelSelector={selector}");
        let request = Request::get(path).header("impersonate-user", GREEDY);
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        service.handle(request).await
    };
    let usual = open("app=web").await;
    assert_eq!((usual.status().as_u16(), held()), (200, 0));
    let terms: Vec<String> = (0..5_000).map(|number| format!("k{number}!=v")).collect();
    let long = open(&terms.join(",")).await;
    assert_eq!(long.status(), 200);
    // Each term is a key, a value, and the memory around them.
    assert!(held() > 5_000 * 200, "{}", held());
    drop(long);
    assert_eq!(held(), 0);
}
