//! A request in the form of an AdmissionReview. Only the fields that rules need are read.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_api::{ObjectMeta, ObjectView};

/// The prefix of the user names of ServiceAccounts.
pub(super) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The key in `userInfo.extra` under which the server names the user's credential (Kubernetes 1.32 and later).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates an object.
    Create,
    /// Changes an object.
    Update,
    /// Deletes one object, or many.
    Delete,
    /// Connects to an object.
    Connect,
}

impl Operation {
    /// Reads an operation as AdmissionReviews spell it.
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

/// A resource, or a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Group; empty for the core.
    pub group: &'a str,
    /// Plural name.
    pub name: &'a str,
    /// Subresource. Empty for the whole object.
    pub subresource: &'a str,
}

/// The sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Groups.
    pub groups: Vec<&'a str>,
    /// Other facts of the server about the user, by key.
    pub extra: BTreeMap<&'a str, Vec<&'a str>>,
}

impl Actor<'_> {
    /// Checks whether the server says that the user showed a token of a ServiceAccount, and did not impersonate it. An impersonating
    /// user shows no credential of the impersonated account.
    #[must_use]
    pub fn has_shown_token(&self) -> bool {
        let ids = self.extra.get(CREDENTIAL_ID).into_iter().flatten();
        ids.into_iter().any(|id| id.starts_with("JTI="))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The operation.
    pub operation: Operation,
    /// The resource.
    pub resource: Resource<'a>,
    /// Namespace. For a Namespace, its own name. Empty for objects without one.
    pub namespace: &'a str,
    /// Name. Empty until it is generated.
    pub name: &'a str,
    /// The sender.
    pub actor: Actor<'a>,
    /// True if nothing is stored, whatever the answer is.
    pub is_dry_run: bool,
    /// The new object.
    pub object: Option<&'a Value>,
    /// The stored object.
    pub old_object: Option<&'a Value>,
}

/// The field that is missing or invalid in the request of an AdmissionReview.
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
    /// When a field that rules need is missing or invalid.
    pub fn read(review: &'a Value) -> Result<Self, RequestError> {
        Self::read_with(review, review.get("object"), review.get("oldObject"))
    }

    /// Reads a request whose objects are given separately, in place of those in the review.
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

    /// Checks whether the request is about the whole of such an object, or about one of the subresources `parts`.
    pub(super) fn is_about(&self, group: &str, resource: &str, parts: &[&str]) -> bool {
        let is_part = self.resource.subresource.is_empty() || parts.contains(&self.resource.subresource);
        self.resource.group == group && self.resource.name == resource && is_part
    }

    /// Checks whether the request creates or updates an object.
    pub(super) fn writes(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update)
    }
}

/// Returns the metadata of an object, as far as it is readable. Invalid metadata counts as empty.
pub(crate) fn read_metadata(object: &Value) -> ObjectMeta {
    ObjectView::new(object).read_metadata()
}
