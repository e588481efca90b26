//! An API server's answer to a case of the table.

use http::Response;
use kube::client::Body;
use serde_json::Value;

/// The answer to a case.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The object as answered, and the warnings.
    Allowed(Value, Vec<String>),
    /// Code, reason and message.
    Refused(u64, String, String),
}

/// Reads an answer with its body.
pub(crate) async fn read_answer(answer: Response<Body>) -> Answer {
    let (parts, body) = answer.into_parts();
    let warnings = parts.headers.get_all("warning").iter();
    let warnings = warnings
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    if parts.status.is_success() {
        return Answer::Allowed(value, warnings);
    }
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Answer::Refused(parts.status.as_u16().into(), text("reason"), text("message"))
}
