//! `/openapi/v3`: the index, and one document per group and version under a URL with its hash.

use http::{HeaderMap, Response};

use crate::http::Body;
use crate::http::query::Query;
use crate::registry::Registry;

/// Answers an OpenAPI path; `None` if nothing of that name is served.
pub(crate) fn serve(_path: &str, _query: &Query, _headers: &HeaderMap, _registry: &Registry) -> Option<Response<Body>> {
    None
}
