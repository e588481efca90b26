//! Malformed input through the HTTP interface: bodies in every format, patches of every kind, queries, selectors,
//! continue tokens, options, impersonation, tokens. The test sends thousands of broken variants of good requests, the
//! same in every run. Each answer is an object or a Status with the reason, and never a fault of the server.

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_apiserver::ApiService;

use crate::cluster::Cluster;

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// A pseudo-random sequence that is the same in every run (xorshift).
struct Chance(u64);

impl Chance {
    fn choose_below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn choose_item<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.choose_below(list.len())]
    }

    /// Returns a variant of `good` with some faults.
    fn broken(&mut self, good: &[u8]) -> Vec<u8> {
        const PIECES: [&[u8]; 34] = [
            b"null",
            b"{}",
            b"[]",
            b"\"",
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b",",
            b"-",
            b"- ",
            b"\n",
            b"\0",
            b"\xff\xfe",
            b"\\u0000",
            b"\\ud800",
            b"1e999",
            b"-0",
            b"99999999999999999999",
            b"0.1",
            b"true",
            b"&a *a",
            b"<<: *a",
            b"!!binary x",
            b"--- ",
            b"%",
            b"%00",
            b"..",
            b"$patch",
            b"\"metadata\":",
            b"\"managedFields\":[{}],",
            b"\"finalizers\":[\"a/b\"],",
            b"\"name\":\"\",",
        ];
        let mut bytes = good.to_vec();
        for _ in 0..=self.choose_below(3) {
            let at = self.choose_below(bytes.len() + 1);
            match self.choose_below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.choose_below(8),
                1 => bytes.truncate(at),
                2 => {
                    let end = (at + 1 + self.choose_below(24)).min(bytes.len());
                    bytes.drain(at.min(end)..end);
                }
                3 => {
                    let end = (at + 1 + self.choose_below(40)).min(bytes.len());
                    let copy = bytes[at.min(end)..end].to_vec();
                    let to = self.choose_below(bytes.len() + 1);
                    bytes.splice(to..to, copy);
                }
                4 if at < bytes.len() => bytes[at] = u8::try_from(self.choose_below(256)).unwrap(),
                _ => {
                    let piece = PIECES[self.choose_below(PIECES.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
            }
        }
        bytes
    }
}

/// Returns good objects and their paths.
fn seeds() -> Vec<(&'static str, Value)> {
    let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}});
    vec![
        (
            MAPS,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"x": "y"}}),
        ),
        (
            "/api/v1/namespaces/shop/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s-"}, "data": {"x": "eQ=="}}),
        ),
        (
            "/api/v1/namespaces/shop/services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}}}),
        ),
        (
            "/apis/apps/v1/namespaces/shop/deployments",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": "things.test.example"},
            "spec": {"group": "test.example", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "default": 2},
                        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "pattern": "^a"}}}}}}}}}}]}}),
        ),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "a.b.c"}}),
        ),
    ]
}

/// Sends a request. Returns the status code, and checks that a client can use the answer.
async fn send_request(service: &ApiService, request: Request<Full<Bytes>>, what: &dyn Fn() -> String) -> u16 {
    let response = service.handle(request).await;
    let code = response.status().as_u16();
    let form = response.headers().get("content-type").cloned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    if form.is_some_and(|form| form.as_bytes().starts_with(b"application/json")) {
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {}", what()));
        if code >= 400 {
            assert_eq!(
                (&value["kind"], &value["code"]),
                (&json!("Status"), &json!(code)),
                "{}",
                what()
            );
            let message = value["message"].as_str().unwrap_or_default();
            assert!(!message.is_empty(), "{code} without a word: {}", what());
            // kube-apiserver answers some requests with 500 and no reason: repeated keys in a list of an apply.
            let known = value["reason"].is_null() || value["reason"] == json!("");
            assert!(code < 500 || known, "{code} {value}: {}", what());
        }
    } else {
        assert!(code < 500, "{code}: {}", what());
    }
    code
}

fn build_request(method: &str, path: &str, form: &str, body: Vec<u8>) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method).uri(path);
    if !form.is_empty() {
        request = request.header("content-type", form);
    }
    request.body(Full::new(Bytes::from(body))).ok()
}

async fn service() -> (Cluster, ApiService) {
    let cluster = Cluster::with_namespace(false).await;
    let service = cluster.server.admin_service();
    (cluster, service)
}

/// Returns a protobuf message: numbered fields with a length.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, content) in fields {
        out.push(number << 3 | 2);
        assert!(content.len() < 128);
        out.push(u8::try_from(content.len()).unwrap());
        out.extend_from_slice(content);
    }
    out
}

#[tokio::test]
async fn bodies() {
    let (_cluster, service) = service().await;
    let mut chance = Chance(0xb0d1e5);
    let (mut good, mut refused) = (0, 0);
    let entry = message(&[(1, b"k"), (2, b"v")]);
    let map = message(&[(1, &message(&[(1, b"from-protobuf")])), (2, &entry)]);
    let kind = message(&[(1, b"v1"), (2, b"ConfigMap")]);
    let frame = [b"k8s\0".to_vec(), message(&[(1, &kind), (2, &map)])].concat();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let whole = build_request("POST", &format!("{MAPS}?dryRun=All"), protobuf, frame.clone()).unwrap();
    assert_eq!(
        send_request(&service, whole, &|| "the whole protobuf".to_owned()).await,
        201
    );
    for round in 0..1_600 {
        let (path, object) = chance.choose_item(&seeds()).clone();
        let (form, body) = match round % 4 {
            0 => (protobuf, chance.broken(&frame)),
            1 => ("application/yaml", chance.broken(kustomizable(&object).as_bytes())),
            _ => ("application/json", chance.broken(object.to_string().as_bytes())),
        };
        let path = if round % 4 == 0 { MAPS } else { path };
        let validation = chance.choose_item(&["Strict", "Warn", "Ignore"]);
        let url = format!("{path}?dryRun=All&fieldValidation={validation}");
        let what = || format!("POST {url} {form} {:?}", String::from_utf8_lossy(&body));
        let code = send_request(
            &service,
            build_request("POST", &url, form, body.clone()).unwrap(),
            &what,
        )
        .await;
        if code < 300 { good += 1 } else { refused += 1 }
    }
    assert!(
        good > 50 && refused > 500,
        "{good} accepted, {refused} refused: the faults are of one sort"
    );
}

/// Returns the object as YAML in block style. JSON is YAML, but uses other paths of a parser.
fn kustomizable(object: &Value) -> String {
    fn write(out: &mut String, value: &Value, indent: usize) {
        let pad = "  ".repeat(indent);
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    out.push_str(&format!("\n{pad}{key}:"));
                    write(out, value, indent + 1);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                for item in list {
                    out.push_str(&format!("\n{pad}-"));
                    write(out, item, indent + 1);
                }
            }
            other => out.push_str(&format!(" {other}")),
        }
    }
    let mut out = String::new();
    write(&mut out, object, 0);
    out
}

#[tokio::test]
async fn patches() {
    let (_cluster, service) = service().await;
    for (path, object) in seeds().into_iter().take(6) {
        let mut object = object;
        object["metadata"]["name"] = json!(if path.ends_with("definitions") {
            "things.test.example"
        } else {
            "it"
        });
        let body = object.to_string().into_bytes();
        let code = send_request(
            &service,
            build_request("POST", path, "application/json", body).unwrap(),
            &|| path.to_owned(),
        )
        .await;
        assert_eq!(code, 201, "{path}");
    }
    let mut chance = Chance(0x9a7c4e5);
    let json_patch = json!([{"op": "test", "path": "/kind", "value": "x"}, {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
        {"op": "move", "from": "/metadata/labels/k", "path": "/metadata/annotations"}, {"op": "remove", "path": "/data"}]);
    let (mut good, mut refused) = (0, 0);
    for round in 0..1_600 {
        let (path, object) = chance.choose_item(&seeds()[..6]).clone();
        let name = if path.ends_with("definitions") {
            "things.test.example"
        } else {
            "it"
        };
        let mut apply = object.clone();
        apply["metadata"] = json!({"name": name, "labels": {"k": "w"}});
        let (form, seed) = match round % 4 {
            0 => ("application/json-patch+json", json_patch.to_string()),
            1 => ("application/merge-patch+json", object.to_string()),
            2 => (
                "application/strategic-merge-patch+json",
                json!({"metadata": {"labels": {"k": null}}, "spec": {"template": {"spec": {"containers": [
                    {"name": "c", "$patch": "merge", "ports": [{"containerPort": 80, "$patch": "delete"}]}],
                    "$setElementOrder/containers": [{"name": "c"}], "$retainKeys": ["containers"]}}}})
                .to_string(),
            ),
            _ => ("application/apply-patch+yaml", apply.to_string()),
        };
        let body = chance.broken(seed.as_bytes());
        let force = if round % 4 == 3 { "&force=true" } else { "" };
        let url = format!("{path}/{name}?dryRun=All&fieldManager=m{force}");
        let what = || format!("PATCH {url} {form} {:?}", String::from_utf8_lossy(&body));
        let code = send_request(
            &service,
            build_request("PATCH", &url, form, body.clone()).unwrap(),
            &what,
        )
        .await;
        if code < 300 { good += 1 } else { refused += 1 }
    }
    assert!(good > 50 && refused > 300, "{good} accepted, {refused} refused");
}

#[tokio::test]
async fn queries_selectors_and_continue_tokens() {
    let (_cluster, service) = service().await;
    for name in ["a", "b", "c"] {
        let body = json!({"metadata": {"name": name, "labels": {"k": name}}})
            .to_string()
            .into_bytes();
        send_request(&service, build_request("POST", MAPS, "", body).unwrap(), &|| {
            name.to_owned()
        })
        .await;
    }
    let page = service
        .handle(build_request("GET", &format!("{MAPS}?limit=1"), "", Vec::new()).unwrap())
        .await;
    let page: Value = serde_json::from_slice(&page.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut chance = Chance(0x9e1e);
    let seeds = [
        format!("limit=1&continue={token}"),
        "labelSelector=k%20in%20(a,b),!x,y%20notin%20(c),k!=d,k".to_owned(),
        "fieldSelector=metadata.name=a,metadata.namespace!=b".to_owned(),
        "resourceVersion=3&resourceVersionMatch=Exact&limit=7".to_owned(),
        "resourceVersion=1&resourceVersionMatch=NotOlderThan".to_owned(),
        "pretty=true&timeoutSeconds=1&allowWatchBookmarks=true&includeObject=Metadata".to_owned(),
        "dryRun=All&propagationPolicy=Orphan&gracePeriodSeconds=0&orphanDependents=true".to_owned(),
    ];
    let mut asked = 0;
    for round in 0..1_500 {
        let query = chance.broken(chance_seed(&seeds, round).as_bytes());
        let query = String::from_utf8_lossy(&query).into_owned();
        // A request with a future resourceVersion would wait for it, which is not tested here.
        if query.contains("resourceVersion") && query.bytes().filter(u8::is_ascii_digit).count() > 1 {
            continue;
        }
        let (method, path) = match round % 5 {
            4 => ("DELETE", format!("{MAPS}/nothing?{query}")),
            3 => ("GET", format!("/api/v1/namespaces/shop/configmaps/a?{query}")),
            _ => ("GET", format!("{MAPS}?{query}")),
        };
        let Some(request) = build_request(method, &path, "", Vec::new()) else {
            continue;
        };
        asked += 1;
        send_request(&service, request, &|| format!("{method} {path}")).await;
    }
    assert!(asked > 500, "{asked}");
}

fn chance_seed(seeds: &[String], round: usize) -> &str {
    &seeds[round % seeds.len()]
}

#[tokio::test]
async fn options_of_deletions() {
    let (_cluster, service) = service().await;
    let mut chance = Chance(0xde1e7e);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "gracePeriodSeconds": 3,
        "preconditions": {"uid": "u", "resourceVersion": "7"}, "dryRun": ["All"], "orphanDependents": null});
    let frame = [
        b"k8s\0".to_vec(),
        message(&[
            (1, &message(&[(1, b"v1"), (2, b"DeleteOptions")])),
            (2, &message(&[(4, b"Orphan")])),
        ]),
    ]
    .concat();
    for round in 0..800 {
        let (form, body) = match round % 3 {
            0 => ("application/vnd.kubernetes.protobuf", chance.broken(&frame)),
            1 => ("application/yaml", chance.broken(kustomizable(&options).as_bytes())),
            _ => ("application/json", chance.broken(options.to_string().as_bytes())),
        };
        let what = || format!("DELETE {form} {:?}", String::from_utf8_lossy(&body));
        let request = build_request("DELETE", &format!("{MAPS}/nothing"), form, body.clone()).unwrap();
        assert!(send_request(&service, request, &what).await >= 400, "{}", what());
    }
}

#[tokio::test]
async fn impersonation_and_tokens_in_headers() {
    let (cluster, service) = service().await;
    cluster
        .create(
            "",
            "serviceaccounts",
            Some("shop"),
            json!({"metadata": {"name": "bot"}}),
        )
        .await;
    let token = cluster.server.service_account_token("shop", "bot", 3600).unwrap();
    let stranger = cluster.server.service();
    let mut chance = Chance(0x70cec);
    let mut forged = 0;
    for round in 0..1_200 {
        let request = |name: &str, value: &[u8]| {
            let name = http::HeaderName::try_from(name).ok()?;
            let mut request = build_request("GET", MAPS, "", Vec::new())?;
            request.headers_mut().insert(name, HeaderValue::from_bytes(value).ok()?);
            Some(request)
        };
        let (name, seed): (&str, &str) = match round % 6 {
            0 => ("impersonate-user", "system:serviceaccount:shop:bot"),
            1 => ("impersonate-group", "system:masters"),
            2 => ("impersonate-extra-scopes%2fa", "view"),
            3 => ("impersonate-uid", "0-1"),
            _ => ("authorization", "Bearer "),
        };
        if name != "authorization" {
            let Some(mut request) = request(name, &chance.broken(seed.as_bytes())) else {
                continue;
            };
            if round % 2 == 0 {
                request
                    .headers_mut()
                    .insert("impersonate-user", HeaderValue::from_static("somebody"));
            }
            send_request(&service, request, &|| format!("{name} {round}")).await;
            continue;
        }
        let mut broken = chance.broken(token.as_bytes());
        broken.retain(|byte| byte.is_ascii_graphic());
        let changed = broken != token.as_bytes();
        let Some(request) = request(name, &[seed.as_bytes(), &broken].concat()) else {
            continue;
        };
        let code = send_request(&stranger, request, &|| format!("a token {round}")).await;
        // Base64 leaves bits unused at the end of a part: a change of these bits changes no signed byte.
        if changed && broken.len() != token.len() {
            assert_eq!(code, 401, "{}", String::from_utf8_lossy(&broken));
            forged += 1;
        }
    }
    assert!(forged > 100, "{forged}");
}
