//! `/version`: which Kubernetes this server answers like.

use http::{Response, StatusCode};
use serde_json::json;

use crate::http::Body;
use crate::http::respond;

/// The release of Kubernetes that this server answers like. Clients compare it as a semantic version; the part behind
/// the plus says who answers.
pub const GIT_VERSION: &str = "v1.36.3+tenure";
pub(crate) const MAJOR: &str = "1";
pub(crate) const MINOR: &str = "36";

pub(crate) fn serve() -> Response<Body> {
    let value = json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform(),
    });
    respond::value(StatusCode::OK, &value)
}

/// This machine as Kubernetes calls it.
pub(crate) fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}
