//! Failed requests, and the pauses before the next try. A loss of this state costs one request for each object.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;

use crate::answer::Failure;
use crate::outcome::add_duration;

/// The first and the longest pause after a refused request about one object.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The failed requests, by their objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Retries(BTreeMap<ObjectId, FailedRequest>);

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRequest {
    /// The input of the request. Once the input changes, the request is sent at once.
    pub asked: String,
    /// The attempt that failed.
    pub attempt: Timestamp,
    /// The verb of the request.
    pub verb: String,
    /// The failure.
    pub failure: Failure,
    /// The time of the next try.
    pub until: Timestamp,
    /// The number of failures in a row.
    pub times: u32,
}

impl Retries {
    /// Notes a failure, once for an attempt.
    pub(crate) fn record_failure(
        &mut self,
        id: &ObjectId,
        (verb, asked): (&str, String),
        failure: &Failure,
        (attempt, now): (Timestamp, Timestamp),
    ) {
        let times = match self.0.get(id) {
            Some(before) if before.asked == asked && before.attempt == attempt => return,
            Some(before) if before.asked == asked => before.times.saturating_add(1),
            _ => 1,
        };
        let factor = 2_u32.saturating_pow(times.saturating_sub(1).min(16));
        let pause = PAUSES.0.saturating_mul(factor).min(PAUSES.1);
        let pause = failure.pause().map_or(pause, |asked| pause.max(asked));
        let failed = FailedRequest {
            asked,
            attempt,
            verb: verb.to_owned(),
            failure: failure.clone(),
            until: add_duration(now, pause),
            times,
        };
        self.0.insert(id.clone(), failed);
    }

    /// Forgets the failure of an object.
    pub(crate) fn forget(&mut self, id: &ObjectId) {
        self.0.remove(id);
    }

    /// Forgets all objects but these.
    pub(crate) fn retain(&mut self, mut is_known: impl FnMut(&ObjectId) -> bool) {
        self.0.retain(|id, _| is_known(id));
    }

    /// Returns the failure of a request whose pause is not over.
    pub(crate) fn find_pending(&self, id: &ObjectId, asked: &str, now: Timestamp) -> Option<&FailedRequest> {
        let failed = self.0.get(id)?;
        (failed.asked == asked && now < failed.until).then_some(failed)
    }

    /// Returns the earliest time of a next try.
    pub(crate) fn find_next_time(&self) -> Option<Timestamp> {
        self.0.values().map(|failed| failed.until).min()
    }
}
