//! Requests as data, and the answers of an API server: the form of recordings of a real server, and of comparisons
//! between two servers. This module has the request's form, its references to earlier answers, and the normalisation
//! of values that differ between runs.
//!
//! In a request `@NS` is the story's own namespace, `${step:a/b}` a value from the answer to the step with that
//! `save`, and `edit` the whole object of such an answer, changed by a merge patch. In an answer `<uid:1>`, `<rv:1>`,
//! `<name:1>`, `<address:1>` and `<port:1>` stand for values that the server chose, numbered in order of appearance;
//! `<time>`, `<continue>`, `<hash>` and `<age>` stand for values that differ each time.

mod compare;
mod normal;

use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;
use http::Request;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use compare::list_differences;
pub use normal::{Normal, strip_numbers};

/// A request of a recorded story, with the recorded answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: null means none, a text is sent unchanged, anything else as JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The body is a changed object of an earlier answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
    /// The name under which later steps refer to the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<String>,
    /// Paths at which the embedded server intentionally answers differently, with the reason.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub known: Map<String, Value>,
    /// Seconds that the recorder waited until the real server had noticed earlier requests; a replay does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<f64>,
    /// Values in the answer, by pointer, until which the request is repeated: a controller sets them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub until: Map<String, Value>,
    /// Further observations that were recorded while the real server answered, such as calls of webhooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Value>,
    /// The real server's answer, if recorded.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub want: Value,
}

/// The body of a request: an object from an earlier answer, changed by a merge patch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The step with that answer.
    pub of: String,
    /// The change, as a merge patch.
    pub merge: Value,
}

/// Placeholders for a story's environment in its steps, such as `@NS`, with their values in this run.
pub type Names<'a> = &'a [(&'a str, &'a str)];

/// The answers to earlier steps, by the name in the step's `save`.
pub type Saved = HashMap<String, Value>;

impl Step {
    /// Checks whether an answer has all values that the step waits for.
    #[must_use]
    pub fn is_settled(&self, answer: &Value) -> bool {
        self.until
            .iter()
            .all(|(pointer, value)| answer.pointer(pointer) == Some(value))
    }

    /// Sends the request. Returns status, warnings and body as one value, without normalisation.
    ///
    /// # Errors
    /// If the request can't be built or the connection fails; no answer of the server is an error.
    pub async fn ask(&self, client: &kube::Client, names: Names<'_>, saved: &Saved) -> anyhow::Result<Value> {
        let fill = |text: &str| fill_placeholders(text, names, saved);
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(fill(&self.path))
            .header("user-agent", "exchange/1");
        for (name, value) in &self.headers {
            if let Some(headers) = request.headers_mut() {
                headers.insert(
                    http::HeaderName::try_from(name)?,
                    http::HeaderValue::try_from(fill(value))?,
                );
            }
        }
        let body = match (&self.edit, &self.body) {
            (Some(edit), _) => {
                let mut object = saved.get(&edit.of).cloned().unwrap_or(Value::Null);
                merge(&mut object, &serde_json::from_str(&fill(&edit.merge.to_string()))?);
                object.to_string()
            }
            (None, Value::Null) => String::new(),
            (None, Value::String(text)) => fill(text),
            (None, other) => fill(&other.to_string()),
        };
        let response = client
            .send(request.body(Body::from(body.into_bytes()))?)
            .await
            .with_context(|| format!("{} {}", self.method, self.path))?;
        let status = response.status().as_u16();
        let warnings: Vec<String> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        let text = String::from_utf8(response.into_body().collect_bytes().await?.to_vec())?;
        let body = serde_json::from_str(&text).unwrap_or_else(|_| {
            let lines: Option<Vec<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
            lines
                .filter(|lines| !lines.is_empty())
                .map_or_else(|| json!(text), Value::from)
        });
        Ok(json!({"status": status, "body": body, "warnings": warnings}))
    }
}

/// Replaces placeholders and references to earlier answers in a text. A missing value becomes `0`, as a version or a
/// name.
fn fill_placeholders(text: &str, names: Names<'_>, saved: &Saved) -> String {
    let text = names
        .iter()
        .fold(text.to_owned(), |text, (stands, is)| text.replace(stands, is));
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((reference, rest)) = part.split_once('}') else {
            out.push_str("${");
            out.push_str(part);
            continue;
        };
        let (step, pointer) = reference.split_once(':').unwrap_or((reference, ""));
        let value = saved
            .get(step)
            .and_then(|answer| answer.pointer(&format!("/{pointer}")))
            .and_then(Value::as_str);
        out.push_str(value.unwrap_or("0"));
        out.push_str(rest);
    }
    out
}

/// Applies a merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in changes {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}
