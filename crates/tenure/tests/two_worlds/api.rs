//! Raw requests to an API server as one user, and their answers.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status code; 0 if there was no answer.
    pub(crate) code: u16,
    /// The object, or the Status.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns the message of a refusal.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// A user of an API server: an administrator, one that the administrator impersonates, or the bearer of a token.
#[derive(Clone)]
pub(crate) struct User {
    client: kube::Client,
    impersonated: Option<(String, Vec<String>)>,
}

impl User {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self {
            client,
            impersonated: None,
        }
    }

    /// Returns the same connection with the rights of another user.
    pub(crate) fn impersonating(&self, name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self {
            client: self.client.clone(),
            impersonated: Some((name.to_owned(), groups)),
        }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Sends a request. A patch is a JSON merge patch unless the path names a field manager: then it is an apply.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let content = match (&method, path.contains("fieldManager=")) {
            (&Method::PATCH, true) => "application/apply-patch+yaml",
            (&Method::PATCH, false) => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", "application/json");
        if let Some((name, groups)) = &self.impersonated {
            request = request.header("impersonate-user", name);
            for group in groups {
                request = request.header("impersonate-group", group);
            }
        }
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let answered = self.client.send(request.body(Body::from(bytes)).unwrap()).await;
        let Ok(answered) = answered else {
            return Answer {
                code: 0,
                body: Value::Null,
            };
        };
        let code = answered.status().as_u16();
        let read = answered.into_body().collect().await.map(|body| body.to_bytes());
        let body = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Answer {
            code,
            body: body.unwrap_or_default(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &Value::Null).await
    }

    /// Applies an object by force, as a field manager of its own.
    pub(crate) async fn apply(&self, object: &Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{}/{name}?fieldManager=two-worlds&force=true", collection_of(object));
        self.send(Method::PATCH, &path, object).await
    }

    pub(crate) async fn create(&self, object: &Value) -> Answer {
        self.send(Method::POST, &collection_of(object), object).await
    }
}

/// Returns the path of an object's collection. Every kind used here has the usual plural.
pub(crate) fn collection_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    collection(&version, &plural(&kind), object["metadata"]["namespace"].as_str())
}

/// Returns the path of a collection.
pub(crate) fn collection(version: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match namespace {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

/// Returns the plural of a kind, in lower case.
pub(crate) fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.as_str() {
        "endpoints" => lower,
        _ if lower.ends_with('y') => format!("{}ies", lower.trim_end_matches('y')),
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ => format!("{lower}s"),
    }
}
