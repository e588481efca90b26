//! `/version`: the Kubernetes release whose API this server implements.

use http::{Response, StatusCode};
use serde_json::json;

use crate::http::Body;
use crate::http::respond;

/// The Kubernetes release whose API this server implements. Clients compare it as a semantic version; the part after
/// the plus names this server.
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
        "platform": machine_platform(),
    });
    respond::with_value(StatusCode::OK, &value)
}

/// Returns this machine's platform in Kubernetes' form.
pub(crate) fn machine_platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}
