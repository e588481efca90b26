//! An API server that serves less than a current kube-apiserver: only older discovery formats, fewer kinds, a group
//! that does not answer.
//!
//! The requests pass through [`Reductions`], in front of an embedded or a real server. The answers are those of a kcp
//! workspace (406) and of a kube-apiserver (404, 503) for the same requests.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;

/// The features that a reduced API server leaves out: discovery formats, kinds and groups. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Reductions(Arc<Mutex<State>>);

/// The features that a reduced server leaves out, and its count of discovery requests.
#[derive(Debug, Default)]
struct State {
    discovery: DiscoveryForm,
    /// Groups and plurals that are not served.
    hidden: BTreeSet<(String, String)>,
    /// Paths of versions of groups that answer 503.
    failing: BTreeSet<String>,
    /// Number of requests for discovery documents.
    asked: usize,
}

/// The answer to a request for aggregated discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// The requested format.
    #[default]
    Aggregated,
    /// The older format, as from a server before Kubernetes 1.26.
    Older,
    /// The status 406, as from a kcp workspace.
    Refused,
}

impl Reductions {
    /// Sets the answer to requests for aggregated discovery.
    pub fn set_discovery(&self, form: DiscoveryForm) {
        self.0.lock().discovery = form;
    }

    /// Stops serving a kind, by group and plural.
    pub fn hide(&self, group: &str, plural: &str) {
        self.0.lock().hidden.insert((group.to_owned(), plural.to_owned()));
    }

    /// Serves all kinds again.
    pub fn show_all(&self) {
        self.0.lock().hidden.clear();
    }

    /// Makes a version of a group (`/apis/GROUP/VERSION`) answer 503.
    pub fn fail_group(&self, path: &str) {
        self.0.lock().failing.insert(path.to_owned());
    }

    /// Returns the number of requests for discovery documents since the last call.
    #[must_use]
    pub fn take_discovery_requests(&self) -> usize {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// Answers a request as the reduced server. Other requests go to the full server through `send`.
    ///
    /// # Errors
    /// Those of the server behind.
    pub async fn pass<F>(
        &self,
        mut request: Request<Body>,
        send: impl FnOnce(Request<Body>) -> F,
    ) -> Result<Response<Body>, BoxError>
    where
        F: Future<Output = Result<Response<Body>, BoxError>>,
    {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let is_discovery = is_discovery(&path);
        let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_aggregated = accept.is_some_and(|accept| accept.contains("apidiscovery.k8s.io"));
        let hidden = {
            let mut state = self.0.lock();
            state.asked += usize::from(is_discovery);
            if is_aggregated && state.discovery == DiscoveryForm::Refused {
                return Ok(make_refusal(
                    406,
                    "NotAcceptable",
                    "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
                ));
            }
            if state.failing.iter().any(|failing| is_at(&path, failing)) {
                return Ok(make_refusal(503, "ServiceUnavailable", "service unavailable"));
            }
            if is_aggregated && (state.discovery == DiscoveryForm::Older) {
                request
                    .headers_mut()
                    .insert(ACCEPT, HeaderValue::from_static("application/json"));
            }
            state.hidden.clone()
        };
        if find_resource(&path).is_some_and(|resource| hidden.contains(&resource)) {
            let mut answer = Response::new(Body::from(b"404 page not found\n".to_vec()));
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            return Ok(answer);
        }
        let answer = send(request).await?;
        if !is_discovery || hidden.is_empty() || !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut head, body) = answer.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let mut document: Value = serde_json::from_slice(&bytes)?;
        remove_hidden(&mut document, &path, &hidden);
        head.headers.remove(http::header::CONTENT_LENGTH);
        Ok(Response::from_parts(
            head,
            Body::from(document.to_string().into_bytes()),
        ))
    }
}

/// Checks whether a path is that of a discovery document.
fn is_discovery(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    matches!(parts.as_slice(), ["api" | "apis"] | ["api", _] | ["apis", _, _])
}

fn is_at(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the group and the plural of the resource at a path.
fn find_resource(path: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let plural = match rest {
        ["namespaces", _, plural, ..] => plural,
        [plural, ..] => plural,
        [] => return None,
    };
    Some((group.to_owned(), (*plural).to_owned()))
}

/// Removes the hidden kinds from a discovery document.
fn remove_hidden(document: &mut Value, path: &str, hidden: &BTreeSet<(String, String)>) {
    let is_hidden = |group: &str, resource: &Value, field: &str| {
        let name = resource.get(field).and_then(Value::as_str).unwrap_or_default();
        let plural = name.split('/').next().unwrap_or_default();
        hidden.contains(&(group.to_owned(), plural.to_owned()))
    };
    let of_version = match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
        ["apis", group, _] => (*group).to_owned(),
        _ => String::new(),
    };
    if let Some(resources) = document.get_mut("resources").and_then(Value::as_array_mut) {
        resources.retain(|resource| !is_hidden(&of_version, resource, "name"));
    }
    let groups = document.get_mut("items").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        let name = group
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = name.to_owned();
        let versions = group.get_mut("versions").and_then(Value::as_array_mut);
        for version in versions.into_iter().flatten() {
            if let Some(resources) = version.get_mut("resources").and_then(Value::as_array_mut) {
                resources.retain(|resource| !is_hidden(&name, resource, "resource"));
            }
        }
    }
}

fn make_refusal(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
