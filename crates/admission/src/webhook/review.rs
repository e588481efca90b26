//! AdmissionReviews (`admission.k8s.io/v1`) as bytes. Owns what has to be there before a review is one, and the form of answers; refuses to
//! know what is decided.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The only version that is answered; every API server since 1.16 speaks it.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// The longest uid that is answered with: they have 36 characters.
const LONGEST_UID: usize = 128;

/// When a write is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// While it can still be changed.
    Mutating,
    /// When it is as it will be stored.
    Validating,
}

/// A review that can be answered.
#[derive(Clone, Debug)]
pub struct Review {
    /// What the answer names.
    pub uid: String,
    /// Its request.
    pub request: Value,
}

/// Why something is no review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// It is no JSON.
    #[error("the body is no JSON: {0}")]
    Json(String),
    /// It is something else.
    #[error("the body is no {API_VERSION} AdmissionReview: its {field} is {found}")]
    Kind {
        /// Which field says so.
        field: &'static str,
        /// What is there.
        found: String,
    },
    /// It asks nothing.
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

fn clip(text: &str) -> String {
    text.chars().take(LONGEST_UID).collect()
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Allow {
        /// The operations that change it first.
        patch: Vec<Value>,
        /// What is said about it.
        warnings: Vec<String>,
    },
    /// It ends here.
    Deny {
        /// As HTTP has it.
        code: u16,
        /// As Kubernetes has it.
        reason: &'static str,
        /// Why, and what to do instead.
        message: String,
    },
}

impl Verdict {
    /// A refusal as RBAC's are.
    #[must_use]
    pub fn forbid(message: String) -> Self {
        Self::Deny {
            code: 403,
            reason: "Forbidden",
            message,
        }
    }
}

/// The answer to a review.
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
    fn what_is_no_review_is_told_what_is_missing() {
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
        for (text, told) in cases {
            let error = read_review(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        // What nobody's stack holds is no review either.
        let deep = "[".repeat(1 << 20);
        assert!(matches!(read_review(deep.as_bytes()), Err(ReviewError::Json(_))));
    }

    #[test]
    fn an_answer_names_what_it_answers() {
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
        let told = STANDARD.decode(allowed["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(told, br#"[{"op":"add","path":"/a","value":1}]"#);
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
