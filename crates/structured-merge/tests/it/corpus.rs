//! The recorded cases: sequences of writes to one object by several managers, with the answers of a real kube-apiserver.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The writes to one object.
#[derive(Serialize, Deserialize)]
pub(crate) struct Case {
    /// The behaviour that the case shows.
    pub(crate) title: String,
    /// The kind of the object.
    pub(crate) kind: String,
    /// The writes, in order.
    pub(crate) steps: Vec<Step>,
}

/// A write.
#[derive(Serialize, Deserialize)]
pub(crate) struct Step {
    /// `create`, `replace`, `merge` (patch) or `apply`.
    pub(crate) verb: String,
    /// The field manager.
    pub(crate) manager: String,
    /// Whether the apply is forced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) force: bool,
    /// The subresource written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subresource: Option<String>,
    /// The version written in, if it isn't v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The body of the request.
    pub(crate) body: Value,
    /// The answer; missing before it has been recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Answer>,
}

/// The server's answer.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The object after the write, if it succeeded: without resourceVersion and generation, with made-up
    /// uid and times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<Value>,
    /// Whether the write changed the object's resourceVersion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) changed: bool,
    /// The Status' message, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The Status' reason, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The causes, as `field: message`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<String>,
}

/// Returns the folder of the corpus.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Loads the cases, sorted by name.
pub(crate) fn load() -> Vec<(String, Case)> {
    let mut cases: Vec<(String, Case)> = std::fs::read_dir(folder().join("cases"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let case = serde_json::from_str(&std::fs::read_to_string(&path).unwrap())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, case)
        })
        .collect();
    cases.sort_by(|left, right| left.0.cmp(&right.0));
    cases
}

/// Writes a case with one line a step, so that a change of one answer is a change of one line.
pub(crate) fn store(name: &str, case: &Case) {
    let steps: Vec<String> = case
        .steps
        .iter()
        .map(|step| serde_json::to_string(step).unwrap())
        .collect();
    let text = format!(
        "{{\"title\": {}, \"kind\": {}, \"steps\": [\n{}\n]}}\n",
        serde_json::to_string(&case.title).unwrap(),
        serde_json::to_string(&case.kind).unwrap(),
        steps.join(",\n")
    );
    std::fs::write(folder().join("cases").join(format!("{name}.json")), text).unwrap();
}

/// Returns a file of `tests/corpus/kinds`.
pub(crate) fn kind_file(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join("kinds").join(name)).unwrap()).unwrap()
}
