//! The inputs of expressions: the request's objects in their shown version, the request's description, and its user's
//! rights.

use std::borrow::Cow;

use kubernetes_cel::{Check, Decision};
use serde_json::Value;
use tenure_auth::authorization::{self, Authorizer as _};
use tenure_auth::identity::UserInfo;
use tenure_kinds::expressions::{Authorizer, Inputs};

use super::{Attributes, subject};
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;

/// The objects and the description of a request, in the version that one webhook or policy gets.
pub(super) struct ReviewedRequest<'a> {
    object: Option<Cow<'a, Value>>,
    old_object: Option<Cow<'a, Value>>,
    request: Value,
}

impl<'a> ReviewedRequest<'a> {
    /// Returns the objects in the version of `shown_as`, for a request that matched as one about `resource`.
    pub(super) async fn from_attributes(
        contents: &Contents,
        attributes: &Attributes<'a>,
        shown_as: &Resource,
        resource: &Resource,
        object: Option<&'a Value>,
    ) -> Result<Self, ApiError> {
        let shown = async |object: Option<&'a Value>| match object {
            Some(object) => subject::convert_for_review(contents, attributes, shown_as, object)
                .await
                .map(Some),
            None => Ok(None),
        };
        Ok(Self {
            object: shown(object).await?,
            old_object: shown(attributes.old).await?,
            request: describe_request(attributes, shown_as, resource),
        })
    }

    /// Returns the same objects for a request that matched as one about `resource`.
    pub(super) fn matched_as(&self, attributes: &Attributes<'_>, shown_as: &Resource, resource: &Resource) -> Self {
        Self {
            object: self.object.clone(),
            old_object: self.old_object.clone(),
            request: describe_request(attributes, shown_as, resource),
        }
    }

    /// Calls `ask` with the values of the variables.
    pub(super) fn with_inputs<T>(
        &self,
        contents: &Contents,
        attributes: &Attributes<'_>,
        ask: impl FnOnce(Inputs<'_>) -> T,
    ) -> T {
        let resource = attributes.resource();
        let own = Check::of_resource(
            &resource.group,
            &resource.plural,
            attributes.subresource(),
            attributes.namespace(),
            attributes.name,
        );
        let decide = |check: &Check| decide_check(contents, &attributes.op.user, check);
        ask(Inputs {
            object: self.object.as_deref(),
            old_object: self.old_object.as_deref(),
            request: Some(&self.request),
            authorizer: Some(Authorizer {
                resource: &own,
                decide: &decide,
            }),
            ..Inputs::default()
        })
    }
}

/// Returns the request as a review describes it. Fields that expressions get as separate variables are empty.
fn describe_request(attributes: &Attributes<'_>, shown_as: &Resource, resource: &Resource) -> Value {
    let mut request = subject::describe_request(attributes, shown_as, resource);
    if let Some(map) = request.as_object_mut() {
        map.insert("uid".to_owned(), Value::from(""));
        map.insert("object".to_owned(), Value::Null);
        map.insert("oldObject".to_owned(), Value::Null);
    }
    request
}

/// Checks a right of the request's user, or of the ServiceAccount in the check.
fn decide_check(contents: &Contents, user: &UserInfo, check: &Check) -> Decision {
    let account = check
        .service_account
        .as_ref()
        .map(|(namespace, name)| UserInfo::service_account(namespace, name, ""));
    let wanted = if check.path.is_empty() {
        authorization::Attributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            version: "*".to_owned(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            path: None,
        }
    } else {
        authorization::Attributes::path(&check.verb, &check.path)
    };
    let decision = contents.rights().authorize(account.as_ref().unwrap_or(user), &wanted);
    Decision {
        allowed: decision.allowed,
        reason: decision.reason,
        error: None,
    }
}
