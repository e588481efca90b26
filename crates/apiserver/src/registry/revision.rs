//! The resourceVersion of a client's request, and the wait for a future one.

use std::time::Duration;

use serde_json::json;
use tenure_store::{Snapshot, Store};

use crate::http::ApiError;
use crate::http::query::not_a_number;

/// How long a request waits for a revision that does not exist yet.
const WAIT: Duration = Duration::from_secs(3);

/// Reads a resourceVersion parameter; `None` for an absent one.
pub(crate) fn parse(text: Option<&str>) -> Result<Option<u64>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    text.parse::<u64>().map(Some).map_err(|error| {
        let why = not_a_number("ParseUint", text, &error);
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"
        ))
    })
}

/// Returns a state that is not older than `revision`.
pub(crate) async fn not_older_than(store: &Store, revision: u64) -> Result<Snapshot, ApiError> {
    let current = store.revision();
    if revision > current
        && tokio::time::timeout(WAIT, store.wait_until_reached(revision))
            .await
            .is_err()
    {
        return Err(too_large(revision, store.revision()));
    }
    Ok(store.snapshot())
}

/// Returns exactly the state at `revision`.
pub(crate) async fn take_snapshot_at(store: &Store, revision: u64) -> Result<Snapshot, ApiError> {
    if revision > store.revision() {
        not_older_than(store, revision).await?;
    }
    store.snapshot_at(revision).map_err(|compacted| {
        ApiError::expired(format!(
            "The resourceVersion for the provided list is too old: {}",
            compacted.requested
        ))
    })
}

fn too_large(asked: u64, current: u64) -> ApiError {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {asked}, current: {current}"),
    );
    error.details.insert(
        "causes".to_owned(),
        json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
    );
    error.details.insert("retryAfterSeconds".to_owned(), json!(1));
    error
}
