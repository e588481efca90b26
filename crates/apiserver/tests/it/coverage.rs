//! Every route is authorized before it answers. Each verb of each resource and subresource in the server's own table
//! is tried without a credential, without the right, and with exactly this right. A newly served resource is tried
//! without a change of this test.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, BACKUP_PATH, Config, Operation, Resource, Server, path_segments};
use tenure_auth::authorization::{Attributes, Refusal};
use tenure_auth::identity::UserInfo;

/// Requests that every authenticated user may make, by `system:basic-user`. This list may only shrink.
const OPEN_TO_ALL: [&str; 3] = [
    "selfsubjectreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
];
const NAMESPACE: &str = "coverage";
const NAME: &str = "nobody-has-this-name";
/// The ClusterRole with the caller's only right.
const RIGHT: &str = "the-right";

/// One possible request: a verb on a resource or subresource.
#[derive(Debug)]
struct Ask {
    method: Method,
    uri: String,
    attributes: Attributes,
}

impl Ask {
    fn new(resource: &Resource, subresource: Option<&str>, verb: &str) -> Self {
        let mut path = match resource.group.as_str() {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let mut attributes = Attributes::resource(verb, &resource.group, &resource.version, &resource.plural);
        if resource.namespaced {
            path.push_str("/namespaces/");
            path.push_str(NAMESPACE);
            attributes.namespace = NAMESPACE.to_owned();
        }
        path.push('/');
        path.push_str(&resource.plural);
        let method = match verb {
            "get" | "list" | "watch" => Method::GET,
            "create" => Method::POST,
            "update" => Method::PUT,
            "patch" => Method::PATCH,
            "delete" | "deletecollection" => Method::DELETE,
            other => panic!("the verb {other} of {} is not known to this test", resource.plural),
        };
        let named = subresource.is_some() || matches!(verb, "get" | "update" | "patch" | "delete");
        if named {
            path.push('/');
            path.push_str(NAME);
            attributes.name = NAME.to_owned();
            if resource.plural == "namespaces" && resource.group.is_empty() {
                attributes.namespace = NAME.to_owned();
            }
        }
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
            attributes.subresource = subresource.to_owned();
        }
        let query = match verb {
            "watch" => "watch=1&timeoutSeconds=1",
            "get" | "list" => "limit=1",
            _ => "dryRun=All",
        };
        Self {
            method,
            uri: format!("{path}?{query}"),
            attributes,
        }
    }

    fn rule(&self) -> Value {
        json!({
            "apiGroups": [self.attributes.group],
            "resources": [self.attributes.combined_resource()],
            "verbs": [self.attributes.verb],
        })
    }

    async fn send(&self, service: &ApiService, token: &str) -> (StatusCode, Value) {
        let body = if self.method == Method::POST || self.method == Method::PUT || self.method == Method::PATCH {
            "{}"
        } else {
            ""
        };
        let content_type = if self.method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.uri)
            .header("content-type", content_type);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = service
            .handle(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap())
            .await;
        let status = response.status();
        if status.is_success() {
            // An admitted watch stays open, and its first bytes are not tested here.
            return (status, Value::Null);
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

/// Returns every request in the server's table.
fn asks(server: &Server) -> Vec<Ask> {
    let catalog = server.registry().catalog();
    let mut asks = Vec::new();
    for resource in catalog.iter() {
        for verb in &resource.verbs {
            asks.push(Ask::new(resource, None, verb));
        }
        for subresource in &resource.subresources {
            for verb in &subresource.verbs {
                asks.push(Ask::new(resource, Some(&subresource.name), verb));
            }
        }
    }
    asks
}

struct Caller {
    server: Server,
    token: String,
    user: UserInfo,
    _directory: tempfile::TempDir,
}

impl Caller {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::open(Config::new(directory.path())).await.unwrap();
        let caller = Self {
            token: String::new(),
            user: UserInfo::service_account(NAMESPACE, "caller", ""),
            server,
            _directory: directory,
        };
        caller
            .create("", "namespaces", None, json!({ "metadata": { "name": NAMESPACE } }))
            .await;
        caller
            .create(
                "",
                "serviceaccounts",
                Some(NAMESPACE),
                json!({ "metadata": { "name": "caller" } }),
            )
            .await;
        let token = caller.server.service_account_token(NAMESPACE, "caller", 3600).unwrap();
        Self { token, ..caller }
    }

    fn operation(&self, group: &str, plural: &str, namespace: Option<&str>) -> Operation {
        let resource: Arc<Resource> = self
            .server
            .registry()
            .catalog()
            .find_any_version(group, plural)
            .unwrap()
            .clone();
        Operation::new(resource, namespace.map(str::to_owned), UserInfo::loopback(), "test")
    }

    async fn create(&self, group: &str, plural: &str, namespace: Option<&str>, mut object: Value) {
        let operation = self.operation(group, plural, namespace);
        object["apiVersion"] = json!(operation.resource.api_version());
        object["kind"] = json!(operation.resource.kind);
        self.server.registry().create(&operation, object).await.unwrap();
    }

    /// Makes this rule the only right of the caller.
    async fn allow_only(&self, rule: Value) {
        let operation = self.operation("rbac.authorization.k8s.io", "clusterroles", None);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": RIGHT },
            "rules": [rule],
        });
        self.server.registry().update(&operation, RIGHT, role).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_of_every_resource_asks_for_its_right() {
    let caller = Caller::open().await;
    let group = "rbac.authorization.k8s.io";
    caller
        .create(
            group,
            "clusterroles",
            None,
            json!({ "metadata": { "name": RIGHT }, "rules": [] }),
        )
        .await;
    caller
        .create(
            group,
            "clusterrolebindings",
            None,
            json!({
                "metadata": { "name": RIGHT },
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": RIGHT },
                "subjects": [{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": "caller" }],
            }),
        )
        .await;
    let definition = crate::cluster::definition("widgets", "Widget");
    caller
        .create("apiextensions.k8s.io", "customresourcedefinitions", None, definition)
        .await;
    let service = caller.server.service();
    let asks = asks(&caller.server);
    assert!(
        asks.iter().any(|ask| ask.attributes.resource == "widgets"),
        "custom resources are among them"
    );
    assert!(asks.len() > 300, "only {} verbs are served", asks.len());
    for ask in &asks {
        let (status, body) = ask.send(&service, "").await;
        assert_eq!(
            (status, &body["reason"]),
            (StatusCode::UNAUTHORIZED, &json!("Unauthorized")),
            "{ask:?}"
        );
        if OPEN_TO_ALL.contains(&ask.attributes.resource.as_str()) {
            continue;
        }
        let (status, body) = ask.send(&service, &caller.token).await;
        let refusal = Refusal::forbidden(&caller.user, &ask.attributes, "");
        assert_eq!(
            (status, body["message"].as_str()),
            (StatusCode::FORBIDDEN, Some(refusal.message.as_str())),
            "{ask:?}"
        );
    }
    for ask in &asks {
        caller.allow_only(ask.rule()).await;
        let (status, body) = ask.send(&service, &caller.token).await;
        // Other tests check refusals for other reasons than a missing right to the request itself.
        let missing_right = Refusal::forbidden(&caller.user, &ask.attributes, "").message;
        assert!(
            status != StatusCode::UNAUTHORIZED && body["message"].as_str() != Some(&missing_right),
            "{ask:?} is refused to who may: {body}"
        );
    }
    caller.server.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_asks_for_its_right() {
    let caller = Caller::open().await;
    let service = caller.server.service();
    let get = |path: &'static str, token: String| {
        let service = service.clone();
        async move {
            let mut request = Request::builder().uri(path);
            if !token.is_empty() {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            service
                .handle(request.body(Full::new(Bytes::new())).unwrap())
                .await
                .status()
        }
    };
    // Open to everyone; open to authenticated users; refused without a right, whether the path exists or not.
    let paths = [
        ("/healthz", 200, 200),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/version", 200, 200),
        ("/livez/ping", 403, 403),
        ("/api", 401, 200),
        ("/apis", 401, 200),
        ("/apis/apps/v1", 401, 200),
        ("/openapi/v2", 401, 200),
        ("/openapi/v3", 401, 200),
        (BACKUP_PATH, 401, 403),
        ("/openid/v1/jwks", 401, 200),
        ("/.well-known/openid-configuration", 401, 200),
        ("/metrics", 401, 403),
        ("/logs", 401, 403),
        ("/no/such/path", 401, 403),
        ("/", 401, 403),
        ("//api//v1/secrets", 401, 403),
        ("/api/v1/secrets", 401, 403),
    ];
    for segment in path_segments() {
        let is_below = |path: &str| path.split('/').nth(1) == Some(segment);
        assert!(
            paths.iter().any(|(path, _, _)| is_below(path)),
            "nobody asks who may read /{segment}"
        );
    }
    for (path, anonymous, known) in paths {
        let found = (
            get(path, String::new()).await.as_u16(),
            get(path, caller.token.clone()).await.as_u16(),
        );
        assert_eq!(found, (anonymous, known), "{path}");
    }
    caller.server.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_with_its_account() {
    let caller = Caller::open().await;
    let service = caller.server.service();
    let ask = || async {
        let request = Request::builder()
            .uri("/api")
            .header("authorization", format!("Bearer {}", caller.token));
        service
            .handle(request.body(Full::new(Bytes::new())).unwrap())
            .await
            .status()
    };
    assert_eq!(ask().await, StatusCode::OK);
    let operation = caller.operation("", "serviceaccounts", Some(NAMESPACE));
    let options = tenure_apiserver::DeleteOptions::default();
    caller
        .server
        .registry()
        .delete(&operation, "caller", &options)
        .await
        .unwrap();
    assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
    caller
        .create(
            "",
            "serviceaccounts",
            Some(NAMESPACE),
            json!({ "metadata": { "name": "caller" } }),
        )
        .await;
    assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
    caller.server.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_creates_needs_the_right_to_create() {
    let caller = Caller::open().await;
    let group = "rbac.authorization.k8s.io";
    caller
        .create(
            group,
            "clusterroles",
            None,
            json!({ "metadata": { "name": RIGHT }, "rules": [] }),
        )
        .await;
    let binding = json!({
        "metadata": { "name": RIGHT },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": RIGHT },
        "subjects": [{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": "caller" }],
    });
    caller.create(group, "clusterrolebindings", None, binding).await;
    let service = caller.server.service();
    let put = || async {
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "new" } });
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!(
                "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/new"
            ))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", caller.token))
            .body(Full::new(Bytes::from(lease.to_string())));
        let response = service.handle(request.unwrap()).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let rule =
        |verbs: &[&str]| json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs });
    caller.allow_only(rule(&["update"])).await;
    let (status, body) = put().await;
    assert_eq!(
        (status, body["message"].as_str()),
        (
            StatusCode::FORBIDDEN,
            Some(
                "leases.coordination.k8s.io \"new\" is forbidden: User \"system:serviceaccount:coverage:caller\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"coverage\""
            )
        )
    );
    caller.allow_only(rule(&["update", "create"])).await;
    assert_eq!(put().await.0, StatusCode::CREATED);
    caller.allow_only(rule(&["update"])).await;
    // Allowed, and refused only because a replaced Lease needs a resourceVersion.
    assert_eq!(put().await.0, StatusCode::UNPROCESSABLE_ENTITY);
    caller.server.shutdown();
}
