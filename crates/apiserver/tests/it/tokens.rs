//! ServiceAccount tokens: created, verified, and refused in kube-apiserver's words after their objects are deleted.

use std::collections::HashMap;
use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_apiserver::authentication::{
    Authenticator, ServiceAccountTokens, SigningKey, Unauthorized, request_token, secret_token, self_subject_review,
    token_review,
};
use tenure_apiserver::certificates::{Authority, loopback_names};
use tenure_auth::identity::ObjectLookup;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Default)]
struct Objects(HashMap<String, Arc<Value>>);

impl Objects {
    fn key(resource: &str, namespace: Option<&str>, name: &str) -> String {
        format!("{resource}/{}/{name}", namespace.unwrap_or_default())
    }

    fn put(&mut self, resource: &str, namespace: Option<&str>, name: &str, mut object: Value) {
        let metadata = object
            .as_object_mut()
            .unwrap()
            .entry("metadata")
            .or_insert_with(|| json!({}));
        metadata["name"] = json!(name);
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        self.0.insert(Self::key(resource, namespace, name), Arc::new(object));
    }

    fn remove(&mut self, resource: &str, namespace: Option<&str>, name: &str) {
        self.0.remove(&Self::key(resource, namespace, name));
    }
}

impl ObjectLookup for Objects {
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        assert_eq!(group, "");
        self.0.get(&Self::key(resource, namespace, name)).cloned()
    }
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

fn tokens() -> ServiceAccountTokens {
    let key = SigningKey::from_pkcs8(&SigningKey::generate_pkcs8().unwrap()).unwrap();
    ServiceAccountTokens::new(ISSUER, key)
}

fn objects() -> Objects {
    let mut objects = Objects::default();
    objects.put(
        "serviceaccounts",
        Some("shop"),
        "bot",
        json!({ "metadata": { "uid": "sa-1" } }),
    );
    objects.put(
        "secrets",
        Some("shop"),
        "keys",
        json!({ "metadata": { "uid": "se-1" } }),
    );
    objects.put("nodes", None, "n1", json!({ "metadata": { "uid": "no-1" } }));
    objects.put(
        "pods",
        Some("shop"),
        "web",
        json!({ "metadata": { "uid": "po-1" }, "spec": { "serviceAccountName": "bot", "nodeName": "n1" } }),
    );
    objects.put(
        "pods",
        Some("shop"),
        "other",
        json!({ "metadata": { "uid": "po-2" }, "spec": { "serviceAccountName": "default" } }),
    );
    objects
}

fn request(tokens: &ServiceAccountTokens, objects: &Objects, spec: Value) -> String {
    let body = json!({ "spec": spec });
    let granted = request_token(tokens, "shop", "bot", &body, objects, now()).unwrap();
    granted.response["status"]["token"].as_str().unwrap().to_owned()
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

/// Returns the status of a TokenReview for `token` at `time`.
fn review(tokens: &ServiceAccountTokens, objects: &Objects, token: &str, time: Timestamp) -> Value {
    let review = json!({ "spec": { "token": token } });
    token_review(&review, tokens, objects, time).unwrap()["status"].clone()
}

#[test]
fn a_token_says_what_the_real_one_says() {
    let (tokens, objects) = (tokens(), objects());
    let token = request(&tokens, &objects, json!({}));
    let mut found = claims(&token);
    assert!(found["jti"].as_str().unwrap().len() == 36);
    found["jti"] = json!("x");
    let start = now().as_second();
    assert_eq!(
        found,
        json!({
            "aud": [ISSUER],
            "exp": start + 3600,
            "iat": start,
            "iss": ISSUER,
            "jti": "x",
            "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": "bot", "uid": "sa-1" } },
            "nbf": start,
            "sub": "system:serviceaccount:shop:bot",
        })
    );
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap()).unwrap();
    assert_eq!(header["alg"], "ES256");
    assert_eq!(header["kid"], tokens.json_web_keys()["keys"][0]["kid"]);
}

#[test]
fn a_token_review_answers_as_the_real_one() {
    let (tokens, objects) = (tokens(), objects());
    let token = request(
        &tokens,
        &objects,
        json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "web" } }),
    );
    let jti = claims(&token)["jti"].as_str().unwrap().to_owned();
    assert_eq!(
        review(&tokens, &objects, &token, now()),
        json!({
            "authenticated": true,
            "user": {
                "username": "system:serviceaccount:shop:bot",
                "uid": "sa-1",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/credential-id": [format!("JTI={jti}")],
                    "authentication.kubernetes.io/node-name": ["n1"],
                    "authentication.kubernetes.io/node-uid": ["no-1"],
                    "authentication.kubernetes.io/pod-name": ["web"],
                    "authentication.kubernetes.io/pod-uid": ["po-1"],
                },
            },
            "audiences": [ISSUER],
        })
    );
    assert_eq!(
        review(&tokens, &objects, "abc", now()),
        json!({ "user": {}, "error": "invalid bearer token" })
    );
    let foreign = json!({ "spec": { "token": token, "audiences": ["z", "y"] } });
    assert_eq!(
        token_review(&foreign, &tokens, &objects, now()).unwrap()["status"],
        json!({
            "user": {},
            "error": format!("[invalid bearer token, token audiences [\"{ISSUER}\"] is invalid for the target audiences [\"z\" \"y\"]]"),
        })
    );
    let refusal = token_review(&json!({ "spec": {} }), &tokens, &objects, now()).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (400, "token is required for TokenReview in authentication")
    );
}

#[test]
fn a_token_ends_with_what_it_names() {
    let bound =
        |kind: &str, name: &str| json!({ "boundObjectRef": { "kind": kind, "apiVersion": "v1", "name": name } });
    type Change = fn(&mut Objects);
    let cases: [(Value, Change, &str); 10] = [
        (
            json!({}),
            |objects| objects.remove("serviceaccounts", Some("shop"), "bot"),
            "serviceaccounts \"bot\" not found",
        ),
        (
            json!({}),
            |objects| {
                objects.put(
                    "serviceaccounts",
                    Some("shop"),
                    "bot",
                    json!({ "metadata": { "uid": "sa-2" } }),
                )
            },
            "service account UID (sa-2) does not match claim (sa-1)",
        ),
        (
            json!({}),
            |objects| {
                objects.put(
                    "serviceaccounts",
                    Some("shop"),
                    "bot",
                    json!({ "metadata": { "uid": "sa-1", "deletionTimestamp": "2026-01-02T03:00:00Z" } }),
                )
            },
            "service account shop/bot has been deleted",
        ),
        (
            bound("Secret", "keys"),
            |objects| objects.remove("secrets", Some("shop"), "keys"),
            "service account token has been invalidated",
        ),
        (
            bound("Secret", "keys"),
            |objects| {
                objects.put(
                    "secrets",
                    Some("shop"),
                    "keys",
                    json!({ "metadata": { "uid": "se-2" } }),
                )
            },
            "secret UID (se-2) does not match service account secret ref claim (se-1)",
        ),
        (
            bound("Pod", "web"),
            |objects| objects.remove("pods", Some("shop"), "web"),
            "service account token has been invalidated",
        ),
        (
            bound("Pod", "web"),
            |objects| objects.put("pods", Some("shop"), "web", json!({ "metadata": { "uid": "po-9" } })),
            "pod UID (po-9) does not match service account pod ref claim (po-1)",
        ),
        (
            bound("Node", "n1"),
            |objects| objects.remove("nodes", None, "n1"),
            "service account token has been invalidated",
        ),
        (
            bound("Node", "n1"),
            |objects| objects.put("nodes", None, "n1", json!({ "metadata": { "uid": "no-2" } })),
            "node UID (no-2) does not match service account node ref claim (no-1)",
        ),
        (
            bound("Secret", "keys"),
            |objects| {
                objects.put(
                    "secrets",
                    Some("shop"),
                    "keys",
                    json!({ "metadata": { "uid": "se-1", "deletionTimestamp": "2026-01-02T03:00:00Z" } }),
                )
            },
            "service account token has been invalidated",
        ),
    ];
    for (spec, change, want) in cases {
        let (tokens, mut objects) = (tokens(), objects());
        let token = request(&tokens, &objects, spec);
        assert_eq!(review(&tokens, &objects, &token, now())["authenticated"], json!(true));
        change(&mut objects);
        assert_eq!(
            review(&tokens, &objects, &token, now())["error"],
            json!(format!("[invalid bearer token, {want}]"))
        );
    }
}

#[test]
fn times_are_judged_with_a_minute_of_leeway() {
    let (tokens, objects) = (tokens(), objects());
    let token = request(&tokens, &objects, json!({ "expirationSeconds": 600 }));
    for (offset, want) in [
        (
            -61,
            json!("[invalid bearer token, service account token is not valid yet]"),
        ),
        (-60, Value::Null),
        (600, Value::Null),
        (660, Value::Null),
        (661, json!("[invalid bearer token, service account token has expired]")),
    ] {
        let status = review(&tokens, &objects, &token, later(offset));
        assert_eq!(status.get("error").cloned().unwrap_or(Value::Null), want, "{offset}");
    }
}

#[test]
fn forged_tokens_are_not_looked_into() {
    let (ours, objects) = (tokens(), objects());
    let token = request(&ours, &objects, json!({}));
    let parts: Vec<&str> = token.split('.').collect();
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut other_claims = claims(&token);
    other_claims["sub"] = json!("system:serviceaccount:shop:admin");
    let foreign = request(&tokens(), &objects, json!({}));
    for forged in [
        foreign,
        format!("{}.{}.{}", parts[0], encode(other_claims), parts[2]),
        format!("{}.{}.", encode(json!({ "alg": "none" })), parts[1]),
        format!("{}.{}.{}", encode(json!({ "alg": "HS256" })), parts[1], parts[2]),
        format!(
            "{}.{}.{}",
            encode(json!({ "alg": "ES256", "kid": "other" })),
            parts[1],
            parts[2]
        ),
        format!("{}.{}.{}x", parts[0], parts[1], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        "..".to_owned(),
        "a".repeat(20_000),
        String::from("\u{1F980}.\u{1F980}.\u{1F980}"),
    ] {
        assert_eq!(
            review(&ours, &objects, &forged, now()),
            json!({ "user": {}, "error": "invalid bearer token" }),
            "{forged}"
        );
    }
}

#[test]
fn token_requests_are_refused_as_by_the_real_server() {
    let (tokens, objects) = (tokens(), objects());
    let bound = |reference: Value| json!({ "spec": { "boundObjectRef": reference } });
    for (name, body, code, want) in [
        (
            "bot",
            json!({ "spec": { "expirationSeconds": 599 } }),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            "bot",
            json!({ "spec": { "expirationSeconds": 4_294_967_297_i64 } }),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            "bot",
            json!({ "metadata": { "name": "zz" } }),
            422,
            "TokenRequest.authentication.k8s.io \"bot\" is invalid: metadata.name: Invalid value: \"zz\": must match the service account name if specified",
        ),
        (
            "bot",
            json!({ "metadata": { "namespace": "other" } }),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "bot",
            json!({ "metadata": { "uid": "zz" } }),
            409,
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"bot\": the UID in the token request (zz) does not match the UID of the service account (sa-1)",
        ),
        ("nope", json!({}), 404, "serviceaccounts \"nope\" not found"),
        (
            "bot",
            bound(json!({ "kind": "Secret", "apiVersion": "v1", "name": "no" })),
            404,
            "secrets \"no\" not found",
        ),
        (
            "bot",
            bound(json!({ "kind": "Secret", "apiVersion": "v1", "name": "keys", "uid": "zz" })),
            409,
            "Operation cannot be fulfilled on Secret \"keys\": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            "bot",
            bound(json!({ "kind": "Deployment", "apiVersion": "apps/v1", "name": "x" })),
            400,
            "cannot bind token to object of type apps/v1, Kind=Deployment",
        ),
        (
            "bot",
            bound(json!({ "kind": "Pod", "apiVersion": "v1", "name": "other" })),
            400,
            "cannot bind token for serviceaccount \"bot\" to pod running with different serviceaccount name.",
        ),
    ] {
        let refusal = request_token(&tokens, "shop", name, &body, &objects, now()).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (code, want));
    }
}

#[test]
fn secret_token_is_valid_while_its_secret_holds_it() {
    let (tokens, mut objects) = (tokens(), objects());
    let account = objects.get("", "serviceaccounts", Some("shop"), "bot").unwrap();
    let token = secret_token(&tokens, &account, "bot-token").unwrap();
    assert_eq!(
        review(&tokens, &objects, &token, now())["error"],
        json!("[invalid bearer token, Token has been invalidated]")
    );
    objects.put(
        "secrets",
        Some("shop"),
        "bot-token",
        json!({ "data": { "token": STANDARD.encode(&token) } }),
    );
    let status = review(&tokens, &objects, &token, later(1 << 33));
    assert_eq!(status["user"]["username"], "system:serviceaccount:shop:bot");
    objects.put(
        "secrets",
        Some("shop"),
        "bot-token",
        json!({ "data": { "token": STANDARD.encode("other") } }),
    );
    assert_eq!(
        review(&tokens, &objects, &token, now())["error"],
        json!("[invalid bearer token, Token does not match server's copy]")
    );
}

#[test]
fn callers_get_only_unauthorized() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path(), &loopback_names(), now()).unwrap();
    let objects = objects();
    let tokens = Arc::new(tokens());
    let token = request(&tokens, &objects, json!({}));
    let authenticator = Authenticator::new(authority.client_certificates().unwrap(), Arc::clone(&tokens));
    let ask = |authorization: &[u8], path: &str| {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert("authorization", HeaderValue::from_bytes(authorization).unwrap());
        }
        authenticator
            .authenticate(&[], &headers, path, &objects, now())
            .map(|authenticated| authenticated.user.name)
    };
    let bearer = format!("Bearer {token}");
    assert_eq!(
        ask(bearer.as_bytes(), "/api").unwrap(),
        "system:serviceaccount:shop:bot"
    );
    assert_eq!(
        ask(bearer.replace("Bearer", "bearer").as_bytes(), "/version").unwrap(),
        "system:serviceaccount:shop:bot"
    );
    for (authorization, path, want) in [
        (&b""[..], "/version", Some("system:anonymous")),
        (b"", "/healthz", Some("system:anonymous")),
        (b"", "/livez/ping", Some("system:anonymous")),
        (b"", "/healthzz", None),
        (b"", "/api", None),
        (b"Basic YTpi", "/api", None),
        (b"Basic YTpi", "/readyz", Some("system:anonymous")),
        (b"Bearer nonsense", "/version", None),
        (b"Bearer ", "/version", Some("system:anonymous")),
        (b"Bearer \xff\xfe", "/api", None),
    ] {
        assert_eq!(ask(authorization, path).ok().as_deref(), want, "{path}");
    }
    assert_eq!(ask(b"", "/api").unwrap_err(), Unauthorized::Missing);
}

#[test]
fn a_self_review_names_the_caller() {
    let user = tenure_auth::identity::UserInfo::loopback();
    assert_eq!(
        self_subject_review(&user, now()),
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": { "creationTimestamp": "2026-01-02T03:04:05Z" },
            "status": { "userInfo": { "username": "system:apiserver", "groups": ["system:masters", "system:authenticated"] } },
        })
    );
}
