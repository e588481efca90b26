//! Facts of a Pod that decide whether it controls its node, and which program it runs.

use serde_json::Value;

use crate::object::{is_true, read_list};

/// Checks whether a Pod controls its node: by a path of the host, its namespaces, or a privileged container.
pub(crate) fn is_privileged(spec: &Value) -> bool {
    let shares_host = ["/hostPID", "/hostNetwork", "/hostIPC"]
        .iter()
        .any(|pointer| is_true(spec, pointer));
    let mut volumes = read_list(spec, "/volumes").iter();
    let has_path = volumes.any(|volume| volume.get("hostPath").is_some());
    let has_container = ["/containers", "/initContainers"]
        .iter()
        .flat_map(|pointer| read_list(spec, pointer))
        .any(|container| is_true(container, "/securityContext/privileged"));
    shares_host || has_path || has_container
}

/// Returns the last part of an image's name, without tag and digest.
pub(crate) fn image_name(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}
