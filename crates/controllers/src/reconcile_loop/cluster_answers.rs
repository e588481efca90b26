//! Translates the cluster's answers into the planner's facts. It decides nothing.

use serde_json::Value;
use tenure_api::ObjectId;
use tenure_cluster::{Applied, Client, ClusterError, TokenError};
use tenure_planner::answer::DeleteAnswer;
use tenure_planner::confidential::{self, Request};
use tenure_planner::kustomization::{ServiceAccountFacts, TokenAnswer};
use tenure_planner::plan::{Apply, Delete};
use tenure_planner::refusal::{Cause, CauseKind};
use tenure_planner::{Failure, Live, Object, WriteAnswer};

/// Translates a refused or failed request that is about no object of a user's.
pub(crate) fn read_failure(error: &ClusterError) -> Failure {
    Failure::from(error)
}

/// How much of a refusal is reported: for a confidential object, only text that can't quote the object.
pub(crate) struct RefusalDetail<'a>(Option<Request<'a>>);

impl<'a> RefusalDetail<'a> {
    /// For the refusal of an object that was sent.
    pub(crate) fn for_apply(client: &'a Client, apply: &'a Apply) -> Self {
        Self(apply.confidential.then(|| Request {
            id: &apply.id,
            identity: client.identity(),
            object: Some(&apply.object.0),
        }))
    }

    /// For the refusal of a request about an object.
    pub(crate) fn about(client: &'a Client, id: &'a ObjectId) -> Self {
        Self(confidential::is_secret(id).then(|| Request {
            id,
            identity: client.identity(),
            object: None,
        }))
    }

    fn read_failure(&self, error: &ClusterError) -> Failure {
        match self.0 {
            Some(request) => confidential::rebuild_failure(read_failure(error), request),
            None => read_failure(error),
        }
    }
}

/// Returns why a ServiceAccount has no token. Only the API server's statements about the account or its namespace count as facts.
pub(crate) fn read_service_account(error: &ClusterError) -> ServiceAccountFacts {
    let namespace_ends = |causes: &[Cause]| causes.iter().any(|cause| cause.kind == CauseKind::NamespaceTerminating);
    match error {
        ClusterError::IdentityMissing { .. } => ServiceAccountFacts::NotFound,
        ClusterError::Forbidden { causes, .. } if namespace_ends(causes) => {
            ServiceAccountFacts::NamespaceEnds(error.to_string())
        }
        ClusterError::Forbidden { .. } => ServiceAccountFacts::Forbidden(error.to_string()),
        _ => ServiceAccountFacts::Unanswered(error.to_string()),
    }
}

/// Returns whether a token for another cluster is available.
pub(crate) fn read_token(prepared: Result<(), TokenError>) -> TokenAnswer {
    match prepared {
        Ok(()) => TokenAnswer::Usable,
        Err(TokenError::Denied(denial)) => TokenAnswer::Refused(denial.message),
        Err(TokenError::Failed(error)) => match read_service_account(&error) {
            ServiceAccountFacts::NotFound => TokenAnswer::NotFound,
            ServiceAccountFacts::Forbidden(message) | ServiceAccountFacts::NamespaceEnds(message) => {
                TokenAnswer::Refused(message)
            }
            _ => TokenAnswer::Unanswered(error.to_string()),
        },
    }
}

/// Translates the answer to a read. An object counts as absent, or its kind as unserved, only if the answer says so.
pub(crate) fn read_live(answer: Result<Option<Value>, ClusterError>, detail: &RefusalDetail<'_>) -> Live {
    match answer {
        Ok(Some(object)) => Live::Present(Object(object)),
        Ok(None) => Live::Absent,
        Err(ClusterError::NoKindMatch { .. }) => Live::Unserved,
        Err(error) => Live::Failed(detail.read_failure(&error)),
    }
}

/// Translates the answer to a write or a dry-run.
pub(crate) fn read_write(answer: Result<Applied, ClusterError>, detail: &RefusalDetail<'_>) -> WriteAnswer {
    match answer {
        Ok(applied) => WriteAnswer::Done(Object(applied.object)),
        Err(error) => WriteAnswer::Failed(detail.read_failure(&error)),
    }
}

/// Translates the answer to a delete: an already deleted object counts as absent.
pub(crate) fn read_delete(
    answer: Result<(), ClusterError>,
    delete: &Delete,
    detail: &RefusalDetail<'_>,
) -> DeleteAnswer {
    match answer {
        Ok(()) => DeleteAnswer::Accepted,
        Err(ClusterError::Conflict { .. }) => DeleteAnswer::Changed {
            resource_version: delete.resource_version.clone(),
            times: 1,
            looked_again: false,
        },
        Err(error) if error.absent() => DeleteAnswer::Absent,
        Err(error) => DeleteAnswer::Failed(detail.read_failure(&error)),
    }
}
