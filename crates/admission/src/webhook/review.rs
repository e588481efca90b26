//! Reads AdmissionReviews (`admission.k8s.io/v1`) from bytes, checks their required fields, and writes their answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The only supported version. Every API server since 1.16 speaks it.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// The longest uid that is sent back. Real ones have 36 characters.
const LONGEST_UID: usize = 128;

/// The admission phase in which the API server sends a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The object can still be changed.
    Mutating,
    /// The object has the form that will be stored.
    Validating,
}

/// A review that can be answered.
#[derive(Clone, Debug)]
pub struct Review {
    /// The uid that the answer repeats.
    pub uid: String,
    /// The request of the review.
    pub request: Value,
}

/// The reason why a body is no review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is no JSON.
    #[error("the body is no JSON: {0}")]
    Json(String),
    /// The body is another object.
    #[error("the body is no {API_VERSION} AdmissionReview: its {field} is {found}")]
    Kind {
        /// The field that shows it.
        field: &'static str,
        /// The value of this field.
        found: String,
    },
    /// A required field is missing.
    #[error("the AdmissionReview has no proper {0}")]
    Field(&'static str),
}

/// Reads a review.
///
/// # Errors
/// [`ReviewError`].
pub fn read_review(body: &[u8]) -> Result<Review, ReviewError> {
    let mut review: Value = serde_json::from_slice(body).map_err(|error| ReviewError::Json(error.to_string()))?;
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", "AdmissionReview")] {
        let found = review.get(field).and_then(Value::as_str);
        if found != Some(wanted) {
            let found = found.map_or_else(|| "missing".to_owned(), |found| format!("{:?}", clip(found)));
            return Err(ReviewError::Kind { field, found });
        }
    }
    let request = review.get_mut("request").map(Value::take).unwrap_or_default();
    if !request.is_object() {
        return Err(ReviewError::Field("request"));
    }
    let uid = request.get("uid").and_then(Value::as_str).unwrap_or_default();
    if uid.is_empty() || uid.len() > LONGEST_UID {
        return Err(ReviewError::Field("request.uid"));
    }
    Ok(Review {
        uid: uid.to_owned(),
        request,
    })
}

/// Returns the beginning of a text for a message.
fn clip(text: &str) -> String {
    text.chars().take(LONGEST_UID).collect()
}

/// The answer to a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The write is allowed.
    Allow {
        /// The operations that change the object first.
        patch: Vec<Value>,
        /// The warnings for the user.
        warnings: Vec<String>,
    },
    /// The write is denied.
    Deny {
        /// The status code, as in HTTP.
        code: u16,
        /// The reason, as in Kubernetes.
        reason: &'static str,
        /// The cause of the denial, and an alternative.
        message: String,
    },
}

impl Verdict {
    /// Returns a denial in the form of RBAC's.
    #[must_use]
    pub fn forbid(message: String) -> Self {
        Self::Deny {
            code: 403,
            reason: "Forbidden",
            message,
        }
    }
}

/// Writes the answer to a review.
#[must_use]
pub fn write_answer(uid: &str, verdict: Verdict) -> Value {
    let mut response = json!({ "uid": uid });
    let mut set = |key: &str, value: Value| {
        if let Some(response) = response.as_object_mut() {
            response.insert(key.to_owned(), value);
        }
    };
    match verdict {
        Verdict::Allow { patch, warnings } => {
            set("allowed", json!(true));
            if !patch.is_empty() {
                set("patchType", json!("JSONPatch"));
                set("patch", json!(STANDARD.encode(Value::Array(patch).to_string())));
            }
            if !warnings.is_empty() {
                set("warnings", json!(warnings));
            }
        }
        Verdict::Deny { code, reason, message } => {
            set("allowed", json!(false));
            set(
                "status",
                json!({ "code": code, "status": "Failure", "reason": reason, "message": message }),
            );
        }
    }
    json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_review_is_answered_with_its_problem() {
        let cases = [
            ("", "no JSON: EOF"),
            ("{", "no JSON: EOF"),
            ("\u{0}", "no JSON: expected value"),
            ("[]", "its apiVersion is missing"),
            ("{}", "its apiVersion is missing"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
                r#"its apiVersion is "admission.k8s.io/v1beta1""#,
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}"#,
                r#"its kind is "Pod""#,
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
                "no proper request",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":[]}"#,
                "no proper request",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#,
                "no proper request.uid",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}"#,
                "no proper request.uid",
            ),
        ];
        for (text, problem) in cases {
            let error = read_review(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        // A body that is nested deeper than any stack is no review.
        let deep = "[".repeat(1 << 20);
        assert!(matches!(read_review(deep.as_bytes()), Err(ReviewError::Json(_))));
    }

    #[test]
    fn answer_has_uid_of_its_review() {
        let denied = write_answer("u", Verdict::forbid("no: do that (rule)".to_owned()));
        assert_eq!(denied["response"]["uid"], "u");
        assert_eq!(denied["response"]["status"]["code"], 403);
        assert_eq!(denied["response"]["status"]["reason"], "Forbidden");
        let patch = vec![json!({ "op": "add", "path": "/a", "value": 1 })];
        let allowed = write_answer(
            "u",
            Verdict::Allow {
                patch,
                warnings: vec![],
            },
        );
        let patch = STANDARD.decode(allowed["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/a","value":1}]"#);
        assert_eq!(allowed["response"]["patchType"], "JSONPatch");
        assert!(allowed["response"].get("warnings").is_none());
        let plain = write_answer(
            "u",
            Verdict::Allow {
                patch: vec![],
                warnings: vec!["w".to_owned()],
            },
        );
        assert!(plain["response"].get("patch").is_none() && plain["response"].get("patchType").is_none());
        assert_eq!(plain["response"]["warnings"], json!(["w"]));
    }
}
