//! The resources that are questions: they are answered and not stored. And tokens for ServiceAccounts.

use serde_json::Value;

use super::Gate;
use crate::authentication::{request_token, self_subject_review, token_review};
use crate::authorization::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};
use crate::http::ApiError;
use crate::registry::{Operation, Registry};

impl Gate {
    /// The answer to a review, or `None` if the resource is none.
    pub(crate) fn review(
        &self,
        registry: &Registry,
        op: &Operation,
        object: &Value,
    ) -> Option<Result<Value, ApiError>> {
        let now = registry.now();
        let mut asked = object.clone();
        if let Some(map) = asked.as_object_mut() {
            map.remove("status");
        }
        let object = &registry.manage_fields(op, None, asked);
        let answer = match (op.resource.group.as_str(), op.resource.plural.as_str()) {
            ("authentication.k8s.io", "selfsubjectreviews") => Ok(self_subject_review(&op.user, now)),
            ("authentication.k8s.io", "tokenreviews") => {
                token_review(object, self.authenticator().tokens(), &registry.view(), now)
            }
            ("authorization.k8s.io", "subjectaccessreviews") => subject_access_review(object, self.rights()),
            ("authorization.k8s.io", "selfsubjectaccessreviews") => {
                self_subject_access_review(&op.user, object, self.rights())
            }
            ("authorization.k8s.io", "localsubjectaccessreviews") => {
                local_subject_access_review(op.namespace.as_deref().unwrap_or_default(), object, self.rights())
            }
            ("authorization.k8s.io", "selfsubjectrulesreviews") => self
                .rights()
                .with(|rbac| self_subject_rules_review(&op.user, object, rbac)),
            _ => return None,
        };
        Some(answer.map_err(ApiError::from))
    }

    /// A new token for a ServiceAccount.
    pub(crate) fn token(
        &self,
        registry: &Registry,
        op: &Operation,
        name: &str,
        request: &Value,
    ) -> Result<Value, ApiError> {
        let namespace = op.namespace.as_deref().unwrap_or_default();
        let view = registry.view();
        let granted = request_token(
            self.authenticator().tokens(),
            namespace,
            name,
            request,
            &view,
            registry.now(),
        )?;
        Ok(granted.response)
    }
}
