//! `/openapi/v3`: the index, and one document per group and version under a URL with its hash. `/openapi/v2`: one
//! document of all kinds, made from those.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderValue, LOCATION, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};
use tenure_kinds::openapi_v2;
use tenure_kinds::schema::openapi::{self, Document};

use super::version;

use crate::catalog::Catalog;
use crate::http::negotiate::parse_accept;
use crate::http::query::Query;
use crate::http::{ApiError, Body, etag, respond};
use crate::registry::Registry;

const ROOT: &str = "/openapi/v3";
const VERSION_2: &str = "/openapi/v2";

/// Answers an OpenAPI path; `None` for an unknown name.
pub(crate) fn serve(path: &str, query: &Query, headers: &HeaderMap, registry: &Registry) -> Option<Response<Body>> {
    let catalog = registry.catalog();
    if path.trim_end_matches('/') == VERSION_2 {
        return Some(version_2(headers, registry, &catalog));
    }
    let below = path.strip_prefix(ROOT)?;
    match below.trim_matches('/') {
        "" => Some(serve_index(&catalog, headers)),
        name => {
            if let Some((_, hash)) = catalog.custom_documents().find(|(path, _)| *path == name) {
                let text = registry.contents().openapi_document(name)?;
                return Some(answer_hashed_url(path, query, hash, || {
                    respond::with_bytes(StatusCode::OK, respond::JSON, text)
                }));
            }
            let document = openapi::find_document(name).filter(|document| is_served(&catalog, document.path))?;
            Some(answer_hashed_url(path, query, document.hash, || {
                built_in(&document, headers)
            }))
        }
    }
}

/// The format of version 2 that client-go reads. It asks with an `@`, which the answer's type lacks.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn version_2(headers: &HeaderMap, registry: &Registry, catalog: &Catalog) -> Response<Body> {
    let rendered = catalog.openapi_v2(|| {
        let built_in = openapi::list_documents()
            .filter(|document| is_served(catalog, document.path))
            .map(|document| document.text());
        let custom = catalog
            .custom_documents()
            .filter_map(|(path, _)| registry.contents().openapi_document(path));
        let texts = built_in.chain(custom);
        openapi_v2::render_openapi(
            texts.filter_map(|text| serde_json::from_slice(&text).ok()),
            version::MINOR,
        )
    });
    for range in parse_accept(headers) {
        match range.media_type.as_str() {
            ASKED | PROTOBUF => return etag::respond_with_etag(headers, PROTOBUF, rendered.protobuf.clone()),
            "application/json" | "application/*" | "*/*" => {
                return etag::respond_with_etag(headers, respond::JSON, rendered.json.clone());
            }
            _ => {}
        }
    }
    respond::with_error(&ApiError::not_acceptable(&[respond::JSON, ASKED]))
}

fn serve_index(catalog: &Catalog, headers: &HeaderMap) -> Response<Body> {
    let mut paths = Map::new();
    let mut add = |name: &str, hash: &str| {
        paths.insert(
            name.to_owned(),
            json!({"serverRelativeURL": format!("{ROOT}/{name}?hash={hash}")}),
        );
    };
    for document in openapi::list_documents().filter(|document| is_served(catalog, document.path)) {
        add(document.path, document.hash);
    }
    for (path, hash) in catalog.custom_documents() {
        add(path, hash);
    }
    etag::respond_with_etag(
        headers,
        respond::JSON,
        json!({"paths": Value::Object(paths)}).to_string(),
    )
}

/// Checks whether a resource is served in a document's group and version. Documents of other paths are always served.
fn is_served(catalog: &Catalog, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["api", version] => catalog.has_version("", version),
        ["apis", group, version] => catalog.has_version(group, version),
        ["apis", group] => catalog.groups().iter().any(|(name, _)| name == group),
        _ => matches!(path, "api" | "apis" | "version"),
    }
}

/// Answers a URL with a hash: the right hash may be cached forever, another hash is redirected to the right one.
fn answer_hashed_url(
    path: &str,
    query: &Query,
    hash: &str,
    document: impl FnOnce() -> Response<Body>,
) -> Response<Body> {
    match query.get("hash") {
        Some(asked) if asked != hash => {
            let mut response = respond::with_text(StatusCode::MOVED_PERMANENTLY, "");
            if let Ok(location) = HeaderValue::from_str(&format!("{path}?hash={hash}")) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        }
        asked => {
            let mut response = document();
            let headers = response.headers_mut();
            if asked.is_some() {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            }
            if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
                headers.insert(ETAG, tag);
            }
            headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
            response
        }
    }
}

/// Returns a recorded document, in its stored form for clients that accept gzip.
fn built_in(document: &Document, headers: &HeaderMap) -> Response<Body> {
    let gzip = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|coding| coding.trim().starts_with("gzip")));
    if !gzip {
        return respond::with_bytes(StatusCode::OK, respond::JSON, document.text());
    }
    let mut response = respond::with_bytes(StatusCode::OK, respond::JSON, Bytes::from_static(document.gzip));
    response
        .headers_mut()
        .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}
