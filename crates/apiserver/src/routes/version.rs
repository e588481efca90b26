//! `/version`: which Kubernetes this server answers like.

use http::{Response, StatusCode};
use serde_json::json;

use crate::http::Body;
use crate::http::respond;

/// Clients compare this as a semantic version; the part behind the plus says who answers.
pub(crate) const GIT_VERSION: &str = "v1.36.3+tenure";

pub(crate) fn serve() -> Response<Body> {
    let value = json!({
        "major": "1",
        "minor": "36",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    });
    respond::value(StatusCode::OK, &value)
}

/// The name that Kubernetes has for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
