//! A copy of the whole store while the server runs. Only users whose role has this path may read it; of the roles of
//! every cluster, only cluster-admin has it. The copy has no keys and certificates.

use futures::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tenure_store::backup::Pieces;

use crate::http::Body;
use crate::http::body::BoxError;
use crate::registry::Registry;

/// The path of the copy.
pub const PATH: &str = "/tenure/backup";

/// Returns the answer with a backup of the store, which is encoded while the client reads it.
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
