//! One request on the wire: its token, its timeout and its answer. An answer without an end is refused.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use serde_json::Value;

use crate::error::{ClusterError, with_causes};
use crate::remote_cluster::{RemoteClusterLimits, TextReservation};
use crate::requests::RequestCounts;
use crate::server_clock::ServerClock;
use crate::token::Token;
use crate::wire::{Channel, Wire};
use tenure_tenancy::Identity;

/// The timeout of one request; a watch has its own rule.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer that is read. No object is longer, and lists come in pages.
pub(crate) const LONGEST_ANSWER: usize = 64 << 20;

/// A request to the API server, without its identity and token.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    /// The longest answer, in bytes.
    pub(crate) longest: usize,
}

pub(crate) const JSON: &str = "application/json";

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            accept: JSON,
            content_type: JSON,
            body: Vec::new(),
            longest: LONGEST_ANSWER,
        }
    }

    pub(crate) fn with_body(method: Method, path: String, content_type: &'static str, body: &Value) -> Self {
        Self {
            method,
            path,
            accept: JSON,
            content_type,
            body: body.to_string().into_bytes(),
            longest: LONGEST_ANSWER,
        }
    }

    /// Returns the method and the path without the query, for messages.
    pub(crate) fn what(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// The text of an answer, and the warnings of the API server. The type can't be printed, because the text may be a Secret or a token.
pub(crate) struct Answer {
    pub(crate) text: Bytes,
    pub(crate) warnings: Vec<String>,
    /// The memory that the text takes.
    _room: TextReservation,
}

impl Answer {
    /// Reads the text as JSON.
    pub(crate) fn read(&self, call: &Call) -> Result<Value, ClusterError> {
        serde_json::from_slice(&self.text).map_err(|error| ClusterError::Decode {
            what: call.what(),
            problem: error.to_string(),
        })
    }
}

/// The wire and the shared connections for a request, with the counts and the clock that its answer updates.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) channel: &'a Channel,
    pub(crate) requests: &'a RequestCounts,
    pub(crate) clock: &'a ServerClock,
}

/// Sends a request and returns the response after its head has arrived. An error answer is read and mapped.
pub(crate) async fn open_response(
    route: Route<'_>,
    identity: &Identity,
    token: Option<&Token>,
    call: &Call,
    terms: Option<&RemoteClusterLimits>,
) -> Result<Response<Body>, ClusterError> {
    let opened = open_unlimited(route, identity, token, call, terms).await;
    opened.map_err(|error| match terms {
        Some(terms) => terms.limit_error_text(error),
        None => error,
    })
}

/// Does the work of [`open_response`]. The texts of its errors are unlimited.
async fn open_unlimited(
    route: Route<'_>,
    identity: &Identity,
    token: Option<&Token>,
    call: &Call,
    terms: Option<&RemoteClusterLimits>,
) -> Result<Response<Body>, ClusterError> {
    let authorization = match token {
        Some(token) => Some(token.header().ok_or_else(|| ClusterError::Unauthorized {
            identity: identity.clone(),
            message: "its token is not one".to_owned(),
        })?),
        None => None,
    };
    let make = || {
        let mut builder = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(ACCEPT, call.accept);
        if !call.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(authorization) = &authorization {
            builder = builder.header(AUTHORIZATION, authorization.clone());
        }
        builder
            .body(Body::from(call.body.clone()))
            .map_err(|error| ClusterError::Request {
                what: call.what(),
                problem: error.to_string(),
            })
    };
    let unreachable = |error: &(dyn std::error::Error + 'static)| ClusterError::Unreachable {
        problem: with_causes(error),
    };
    let sent = tokio::time::timeout(REQUEST_TIMEOUT, route.wire.send(route.channel, make, unreachable)).await;
    let code = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok());
    route
        .requests
        .count(&call.method, code.map(|response| response.status().as_u16()));
    let response = sent.map_err(|_| ClusterError::Timeout { after: REQUEST_TIMEOUT })??;
    route.clock.update(response.headers());
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .map(Duration::from_secs);
    let body = read(call, response, terms)
        .await
        .map(|(body, _)| body)
        .unwrap_or_default();
    Err(refusal(identity, code, retry_after, &body))
}

/// Sends a request and reads its whole answer.
pub(crate) fn send_request<'a>(
    route: Route<'a>,
    identity: &'a Identity,
    token: Option<&'a Token>,
    call: &'a Call,
    terms: Option<&'a RemoteClusterLimits>,
) -> BoxFuture<'a, Result<Answer, ClusterError>> {
    // A future with its own type would be compiled again in each crate that calls this function.
    Box::pin(async move {
        let response = open_response(route, identity, token, call, terms).await?;
        let warnings = warnings(&response);
        let read = read(call, response, terms).await;
        let (warnings, (text, room)) = match terms {
            Some(terms) => (
                terms.limit_warnings(warnings),
                read.map_err(|error| terms.limit_error_text(error))?,
            ),
            None => (warnings, read?),
        };
        Ok(Answer {
            text,
            warnings,
            _room: room,
        })
    })
}

fn refusal(identity: &Identity, code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ClusterError {
    ClusterError::from_answer(identity, code.as_u16(), retry_after, body)
}

async fn read(
    call: &Call,
    response: Response<Body>,
    terms: Option<&RemoteClusterLimits>,
) -> Result<(Bytes, TextReservation), ClusterError> {
    let longest = terms.map_or(call.longest, |terms| call.longest.min(terms.longest));
    let reading = async {
        let mut room = TextReservation::default();
        let Some(terms) = terms else {
            let collected = Limited::new(response.into_body(), longest).collect().await;
            return collected
                .map(|collected| (collected.to_bytes(), room))
                .map_err(|error| {
                    if error.is::<LengthLimitError>() {
                        too_long(call, longest)
                    } else {
                        ClusterError::Unreachable {
                            problem: error.to_string(),
                        }
                    }
                });
        };
        // The body is counted frame by frame, so no uncounted bytes of another cluster are held.
        let (mut body, mut text) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ClusterError::Unreachable {
                problem: error.to_string(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let length = text.len().saturating_add(data.len());
            if length > longest {
                return Err(too_long(call, longest));
            }
            room.grow_to(length, Some(terms))?;
            text.extend_from_slice(&data);
        }
        Ok((Bytes::from(text), room))
    };
    let read = tokio::time::timeout(REQUEST_TIMEOUT, reading).await;
    read.map_err(|_| ClusterError::Timeout { after: REQUEST_TIMEOUT })?
}

fn too_long(call: &Call, longest: usize) -> ClusterError {
    ClusterError::TooLong {
        what: call.what(),
        longest,
    }
}

/// Returns the texts of `Warning` headers: `299 - "text"`.
fn warnings(response: &Response<Body>) -> Vec<String> {
    response
        .headers()
        .get_all(WARNING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter_map(|value| {
            let (_, text) = value.split_once('"')?;
            let text = text.rsplit_once('"').map_or(text, |(text, _)| text);
            Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
        })
        .collect()
}
