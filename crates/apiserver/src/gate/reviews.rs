//! Review resources, which are answered and not stored, and tokens for ServiceAccounts.

use serde_json::Value;
use tenure_auth::authorization::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};
use tenure_kinds::kind::Review;

use super::Gate;
use crate::authentication::{request_token, self_subject_review, token_review};
use crate::http::ApiError;
use crate::operation::Operation;
use crate::registry::Registry;

impl Gate {
    /// Returns the answer to a review.
    pub(crate) fn answer_review(
        &self,
        registry: &Registry,
        op: &Operation,
        review: Review,
        object: &Value,
    ) -> Result<Value, ApiError> {
        let now = registry.now();
        let answer = match review {
            Review::SelfSubject => Ok(self_subject_review(&op.user, now)),
            Review::Token => token_review(object, self.authenticator().tokens(), &registry.view(), now),
            Review::SubjectAccess => subject_access_review(object, self.rights()),
            Review::SelfSubjectAccess => self_subject_access_review(&op.user, object, self.rights()),
            Review::LocalSubjectAccess => {
                local_subject_access_review(op.namespace.as_deref().unwrap_or_default(), object, self.rights())
            }
            Review::SelfSubjectRules => self
                .rights()
                .with_index(|rbac| self_subject_rules_review(&op.user, object, rbac)),
        };
        answer.map_err(ApiError::from)
    }

    /// Returns a new token for a ServiceAccount.
    pub(crate) fn issue_token(
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
        op.trail
            .add_annotation("authentication.kubernetes.io/issued-credential-id", || {
                format!("JTI={}", granted.id)
            });
        Ok(granted.response)
    }
}
