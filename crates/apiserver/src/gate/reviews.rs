//! The resources that are questions: they are answered and not stored. And tokens for ServiceAccounts.

use serde_json::Value;
use tenure_access::authorization::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};

use super::Gate;
use crate::authentication::{request_token, self_subject_review, token_review};
use crate::http::ApiError;
use crate::operation::Operation;
use crate::registry::Registry;

impl Gate {
    /// Whether objects of this resource are questions.
    pub(crate) fn is_review(&self, op: &Operation) -> bool {
        matches!(
            (op.resource.group.as_str(), op.resource.plural.as_str()),
            ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
                | (
                    "authorization.k8s.io",
                    "subjectaccessreviews"
                        | "selfsubjectaccessreviews"
                        | "localsubjectaccessreviews"
                        | "selfsubjectrulesreviews"
                )
        )
    }

    /// The answer to a review.
    pub(crate) fn review(&self, registry: &Registry, op: &Operation, object: &Value) -> Result<Value, ApiError> {
        let now = registry.now();
        let answer = match op.resource.plural.as_str() {
            "selfsubjectreviews" => Ok(self_subject_review(&op.user, now)),
            "tokenreviews" => token_review(object, self.authenticator().tokens(), &registry.view(), now),
            "subjectaccessreviews" => subject_access_review(object, self.rights()),
            "selfsubjectaccessreviews" => self_subject_access_review(&op.user, object, self.rights()),
            "localsubjectaccessreviews" => {
                local_subject_access_review(op.namespace.as_deref().unwrap_or_default(), object, self.rights())
            }
            "selfsubjectrulesreviews" => self
                .rights()
                .with(|rbac| self_subject_rules_review(&op.user, object, rbac)),
            _ => return Err(ApiError::method_not_allowed()),
        };
        answer.map_err(ApiError::from)
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
        op.trail.note("authentication.kubernetes.io/issued-credential-id", || {
            format!("JTI={}", granted.id)
        });
        Ok(granted.response)
    }
}
