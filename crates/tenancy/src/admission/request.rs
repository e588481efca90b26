//! A request as an AdmissionReview has it, read only as far as rules look.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_api::ObjectMeta;

/// How names of ServiceAccounts begin, as users.
pub(super) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The key in `userInfo.extra` under which the server says which credential somebody came with (Kubernetes 1.32 and later).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// What a request does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It makes one.
    Create,
    /// It changes one.
    Update,
    /// It deletes one, or many.
    Delete,
    /// It connects to one.
    Connect,
}

impl Operation {
    /// Reads it as AdmissionReviews spell it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            "CONNECT" => Some(Self::Connect),
            _ => None,
        }
    }
}

/// A resource, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Group; empty for the core.
    pub group: &'a str,
    /// Plural name.
    pub name: &'a str,
    /// Part; empty for the whole.
    pub subresource: &'a str,
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Groups.
    pub groups: Vec<&'a str>,
    /// What else the server found out, by key.
    pub extra: BTreeMap<&'a str, Vec<&'a str>>,
}

impl Actor<'_> {
    /// Whether the server says that a token of a ServiceAccount was shown, and not that somebody speaks in its name: who impersonates
    /// brings no credential of the one that he speaks for.
    #[must_use]
    pub fn has_shown_token(&self) -> bool {
        let ids = self.extra.get(CREDENTIAL_ID).into_iter().flatten();
        ids.into_iter().any(|id| id.starts_with("JTI="))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What it does.
    pub operation: Operation,
    /// To what.
    pub resource: Resource<'a>,
    /// Namespace; of a Namespace its own name. Empty where there is none.
    pub namespace: &'a str,
    /// Name; empty as long as it is still to be generated.
    pub name: &'a str,
    /// By whom.
    pub actor: Actor<'a>,
    /// Whether nothing is stored whatever is answered.
    pub is_dry_run: bool,
    /// The object as it is to be.
    pub object: Option<&'a Value>,
    /// The object as it is.
    pub old_object: Option<&'a Value>,
}

/// Why something is no request of an AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the review's request has no proper {field}")]
pub struct RequestError {
    /// Path of the field.
    pub field: &'static str,
}

impl<'a> Request<'a> {
    /// Reads the `request` of an AdmissionReview, version v1.
    ///
    /// # Errors
    /// When a field that rules look at is missing, or isn't what it should be.
    pub fn read(review: &'a Value) -> Result<Self, RequestError> {
        Self::read_with(review, review.get("object"), review.get("oldObject"))
    }

    /// Reads a request whose objects are beside it.
    ///
    /// # Errors
    /// As [`Request::read`].
    pub fn read_with(
        review: &'a Value,
        object: Option<&'a Value>,
        old_object: Option<&'a Value>,
    ) -> Result<Self, RequestError> {
        let text = |value: &'a Value, path: &str| value.pointer(path).and_then(Value::as_str);
        let operation = text(review, "/operation").and_then(Operation::read);
        let operation = operation.ok_or(RequestError { field: "operation" })?;
        let resource = Resource {
            group: text(review, "/resource/group").unwrap_or_default(),
            name: text(review, "/resource/resource").ok_or(RequestError { field: "resource" })?,
            subresource: text(review, "/subResource").unwrap_or_default(),
        };
        let user = text(review, "/userInfo/username").ok_or(RequestError { field: "userInfo" })?;
        let texts = |value: Option<&'a Value>| -> Vec<&'a str> {
            let all = value.and_then(Value::as_array).into_iter().flatten();
            all.filter_map(Value::as_str).collect()
        };
        let extra = review.pointer("/userInfo/extra").and_then(Value::as_object);
        let extra = extra.into_iter().flatten();
        let present = |value: Option<&'a Value>| value.filter(|value| !value.is_null());
        let (object, old_object) = (present(object), present(old_object));
        if object.or(old_object).is_some_and(|object| !object.is_object()) {
            return Err(RequestError { field: "object" });
        }
        Ok(Self {
            operation,
            resource,
            namespace: text(review, "/namespace").unwrap_or_default(),
            name: text(review, "/name").unwrap_or_default(),
            actor: Actor {
                user,
                groups: texts(review.pointer("/userInfo/groups")),
                extra: extra.map(|(key, value)| (key.as_str(), texts(Some(value)))).collect(),
            },
            is_dry_run: review.get("dryRun").and_then(Value::as_bool).unwrap_or_default(),
            object,
            old_object,
        })
    }

    /// Whether it is about the whole of such an object, or about a part with which its metadata can be written.
    pub(super) fn is_about(&self, group: &str, resource: &str, parts: &[&str]) -> bool {
        let is_part = self.resource.subresource.is_empty() || parts.contains(&self.resource.subresource);
        self.resource.group == group && self.resource.name == resource && is_part
    }

    /// Whether it writes, with an object.
    pub(super) fn writes(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update)
    }
}

/// The metadata of an object, as far as it can be read: what is not metadata counts for nothing.
pub(crate) fn read_metadata(object: &Value) -> ObjectMeta {
    let metadata = object.get("metadata").cloned().unwrap_or(Value::Null);
    serde_json::from_value(metadata).unwrap_or_default()
}
