//! A copy of everything that is stored, while the server goes on: for those whose role names this path, which of the
//! roles of every cluster is cluster-admin alone. Keys and certificates are not in it.

use futures::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tenure_store::backup::Pieces;

use crate::http::Body;
use crate::http::body::BoxError;
use crate::registry::Registry;

/// Where the copy is served.
pub const PATH: &str = "/tenure/backup";

/// The copy, made as it is read.
pub(crate) fn serve(registry: &Registry) -> Response<Body> {
    let pieces = futures::stream::iter(Pieces::new(registry.store().snapshot()));
    let body = StreamBody::new(pieces.map(|piece| Ok::<_, BoxError>(Frame::data(piece)))).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
