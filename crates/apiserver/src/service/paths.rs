//! The paths beside objects. A path outside of the table is not served.

use super::ApiService;
use crate::http::query::Query;
use crate::http::{ApiError, Body, RequestInfo, respond};
use crate::routes;
use http::Response;

/// Answers the paths below one first segment; `None` for a missing path.
type AnswersPath = fn(&ApiService, &str, &Query, &http::HeaderMap) -> Option<Response<Body>>;

/// The served paths beside objects, by first segment.
const PATHS: [(&str, AnswersPath); 11] = [
    ("version", |_, _, _, _| Some(routes::serve_version())),
    ("healthz", serve_health),
    ("livez", serve_health),
    ("readyz", serve_health),
    ("api", serve_discovery),
    ("apis", serve_discovery),
    ("openapi", |service, path, query, headers| {
        routes::serve_openapi(path, query, headers, &service.shared.cluster.registry)
    }),
    ("metrics", |service, _, _, _| {
        let shared = &service.shared;
        Some(
            shared
                .metrics
                .serve(&shared.cluster.registry, &shared.fairness, &shared.surroundings),
        )
    }),
    ("tenure", |service, path, _, _| {
        (path == routes::BACKUP_PATH).then(|| routes::serve_backup(&service.shared.cluster.registry))
    }),
    (".well-known", |service, path, _, _| service.serve_openid(path)),
    ("openid", |service, path, _, _| service.serve_openid(path)),
];

/// Returns the first segments of all paths beside objects, for a check of their authorization.
pub fn path_segments() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|(segment, _)| *segment)
}

fn serve_health(service: &ApiService, path: &str, query: &Query, _: &http::HeaderMap) -> Option<Response<Body>> {
    let shared = &service.shared;
    let checks = shared.surroundings.checks();
    routes::serve_health(
        path,
        query,
        &shared.cluster.registry,
        shared.shutdown.is_cancelled(),
        checks,
    )
}

fn serve_discovery(service: &ApiService, path: &str, _: &Query, headers: &http::HeaderMap) -> Option<Response<Body>> {
    let shared = &service.shared;
    routes::serve_discovery(
        path,
        headers,
        &shared.cluster.registry.catalog(),
        &shared.address.read(),
    )
}

impl ApiService {
    pub(super) fn answer_path(&self, info: &RequestInfo, query: &Query, headers: &http::HeaderMap) -> Response<Body> {
        if !matches!(info.verb.as_str(), "get" | "head") {
            return respond::with_error(&ApiError::method_not_allowed());
        }
        let path = info.path.as_str();
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        PATHS
            .iter()
            .find(|(segment, _)| *segment == first)
            .and_then(|(_, answer)| answer(self, path, query, headers))
            .unwrap_or_else(respond::not_found)
    }

    /// Returns the documents for verifiers of ServiceAccount tokens.
    fn serve_openid(&self, path: &str) -> Option<Response<Body>> {
        let tokens = self.shared.cluster.gate.authenticator().tokens();
        let value = match path {
            "/.well-known/openid-configuration" => {
                let address = self.shared.address.read().clone();
                tokens.openid_configuration(&format!("https://{address}/openid/v1/jwks"))
            }
            "/openid/v1/jwks" => tokens.json_web_keys(),
            _ => return None,
        };
        Some(respond::with_value(http::StatusCode::OK, &value))
    }
}
