//! What the cluster answered, as the planner's facts. Translates; judges nothing.

use serde_json::Value;
use tenure_cluster::{Applied, ClusterError};
use tenure_planner::answer::DeleteAnswer;
use tenure_planner::{Failure, Live, Object, WriteAnswer};

/// A refused or failed request.
pub(crate) fn failure(error: &ClusterError) -> Failure {
    Failure {
        code: error.code(),
        reason: error.reason().to_owned(),
        message: error.to_string(),
    }
}

/// The answer to a read.
pub(crate) fn live(answer: Result<Option<Value>, ClusterError>) -> Live {
    match answer {
        Ok(Some(object)) => Live::Present(Object(object)),
        Ok(None) => Live::Absent,
        Err(error) => Live::Failed(failure(&error)),
    }
}

/// The answer to a write, or to a dry-run of one.
pub(crate) fn write(answer: Result<Applied, ClusterError>) -> WriteAnswer {
    match answer {
        Ok(applied) => WriteAnswer::Done(Object(applied.object)),
        Err(error) => WriteAnswer::Failed(failure(&error)),
    }
}

/// The answer to a delete: gone already counts as absent.
pub(crate) fn delete(answer: Result<(), ClusterError>) -> DeleteAnswer {
    match answer {
        Ok(()) => DeleteAnswer::Accepted,
        Err(error) if error.absent() => DeleteAnswer::Absent,
        Err(error) => DeleteAnswer::Failed(failure(&error)),
    }
}
