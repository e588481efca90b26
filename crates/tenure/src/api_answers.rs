//! One request as given, and the API server's answer: code, message and warnings. A refusal is an answer and no error.

use http::{Method, Request};
use kube::client::Body;
use serde_json::Value;
use tenure_api::ObjectView;

/// The API server's answer to one request, whether the request succeeded or was refused.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The message of a refusal.
    pub(crate) message: String,
    /// The warnings.
    pub(crate) warnings: Vec<String>,
    /// The returned object.
    pub(crate) object: Value,
}

impl Answer {
    /// Whether the request succeeded.
    pub(crate) fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Checks whether the message of the answer names this rule as the reason of the denial.
    pub(crate) fn is_denied_by(&self, rule: &str) -> bool {
        self.code == 403 && self.message.ends_with(&format!("({rule})"))
    }

    /// Returns the code and the message.
    pub(crate) fn describe(&self) -> String {
        format!("{}: {}", self.code, self.message)
    }
}

/// Sends a request as the client's user. A patch is a merge patch. A body that isn't an object is left out.
pub(crate) async fn send_request(
    client: &kube::Client,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Answer, String> {
    let content = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    send_as(client, method, content, path, body).await
}

/// Sends a server-side apply; the path names the field manager.
pub(crate) async fn apply_object(client: &kube::Client, path: &str, body: &Value) -> Result<Answer, String> {
    send_as(client, Method::PATCH, "application/apply-patch+yaml", path, body).await
}

/// Sends a JSON patch.
pub(crate) async fn patch_object(client: &kube::Client, path: &str, patch: &Value) -> Result<Answer, String> {
    send_as(client, Method::PATCH, "application/json-patch+json", path, patch).await
}

async fn send_as(
    client: &kube::Client,
    method: Method,
    content: &str,
    path: &str,
    body: &Value,
) -> Result<Answer, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .body(Body::from(if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        }))
        .map_err(|error| error.to_string())?;
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings
        .filter_map(|value| read_warning(value.to_str().ok()?))
        .collect();
    let bytes = response.into_body().collect_bytes().await;
    let bytes = bytes.map_err(|error| error.to_string())?;
    let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(Answer {
        code,
        message: ObjectView::new(&object).read_text("/message").to_owned(),
        warnings,
        object,
    })
}

/// Reads the text of a warning in the form of RFC 7234: `299 - "text"`.
fn read_warning(header: &str) -> Option<String> {
    let (_, text) = header.split_once('"')?;
    let text = text.strip_suffix('"')?;
    Some(text.replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_read_unchanged() {
        assert_eq!(read_warning(r#"299 - "a \"b\" c""#).as_deref(), Some(r#"a "b" c"#));
        assert_eq!(read_warning("299 - nothing"), None);
    }
}
