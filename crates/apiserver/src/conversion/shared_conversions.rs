//! Stored objects in other versions, for lists and watches. Requests that need the same conversion at the same time
//! share one result, and the latest results are cached. Failures are not cached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::Shared as SharedFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::http::ApiError;

/// Limits of the cache, in objects and in stored bytes.
const KEPT: (usize, usize) = (4096, 4 * 1024 * 1024);

/// An object in another version, or the error of its conversion.
pub(crate) type ConversionResult = Result<Arc<Value>, ApiError>;

/// A shared future of a conversion's result. It is an error if the converting task ended without a result.
pub(crate) type Wait = SharedFuture<oneshot::Receiver<ConversionResult>>;

/// The revision at which an object was written, and the requested version.
type Key = (u64, Arc<str>);

/// The running conversions and the latest finished ones of a webhook, which lists and watches share.
#[derive(Debug, Default)]
pub(crate) struct SharedConversions(Mutex<Slots>);

/// The conversions by key, with the stored size of each object, in the order of their beginning.
#[derive(Debug, Default)]
struct Slots {
    waits: HashMap<Key, (Wait, usize)>,
    oldest: VecDeque<Key>,
    bytes: usize,
}

/// The duty to convert an object for which other requests may wait.
#[derive(Debug)]
pub(crate) struct ConversionDuty {
    key: Key,
    answer: oneshot::Sender<ConversionResult>,
}

impl SharedConversions {
    /// Returns the wait for a conversion, and the duty to convert if no task has it yet.
    pub(crate) fn get(&self, revision: u64, wanted: &Arc<str>, bytes: usize) -> (Wait, Option<ConversionDuty>) {
        let key = (revision, wanted.clone());
        let mut slots = self.0.lock();
        match slots.waits.get(&key) {
            // The task with the duty gave up, so the conversion begins again.
            Some((wait, _)) if matches!(wait.peek(), Some(Err(_))) => slots.remove(&key),
            Some((wait, _)) => return (wait.clone(), None),
            None => {}
        }
        let (answer, wait) = oneshot::channel();
        let wait = wait.shared();
        slots.bytes += bytes;
        slots.oldest.push_back(key.clone());
        slots.waits.insert(key.clone(), (wait.clone(), bytes));
        slots.drop_oldest();
        (wait, Some(ConversionDuty { key, answer }))
    }

    /// Sends the result to all waiting requests.
    pub(crate) fn send_result(&self, duty: ConversionDuty, presented: ConversionResult) {
        if presented.is_err() {
            self.0.lock().remove(&duty.key);
        }
        // An error means that no request waits for the result, which is no fault.
        let _nobody_waits = duty.answer.send(presented);
    }
}

impl Slots {
    fn remove(&mut self, key: &Key) {
        if let Some((_, bytes)) = self.waits.remove(key) {
            self.bytes -= bytes;
            self.oldest.retain(|other| other != key);
        }
    }

    fn drop_oldest(&mut self) {
        while self.oldest.len() > 1 && (self.oldest.len() > KEPT.0 || self.bytes > KEPT.1) {
            let Some(key) = self.oldest.pop_front() else { return };
            if let Some((_, bytes)) = self.waits.remove(&key) {
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u64) -> ConversionResult {
        Ok(Arc::new(Value::from(number)))
    }

    #[tokio::test]
    async fn one_converts_for_all_who_wait() {
        let (shared, v1): (SharedConversions, Arc<str>) = (SharedConversions::default(), "g/v1".into());
        let (first, duty) = shared.get(1, &v1, 10);
        let (second, none) = shared.get(1, &v1, 10);
        assert!(none.is_none());
        assert!(
            shared.get(1, &"g/v2".into(), 10).1.is_some(),
            "another version is another object"
        );
        shared.send_result(duty.unwrap(), object(1));
        assert_eq!(first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
        assert!(shared.get(1, &v1, 10).1.is_none(), "it is kept");
    }

    #[tokio::test]
    async fn a_failure_reaches_all_waiters_and_is_not_cached() {
        let (shared, v1): (SharedConversions, Arc<str>) = (SharedConversions::default(), "g/v1".into());
        let (first, duty) = shared.get(1, &v1, 10);
        let (second, _) = shared.get(1, &v1, 10);
        shared.send_result(duty.unwrap(), Err(ApiError::internal("x")));
        assert!(first.await.unwrap().is_err() && second.await.unwrap().is_err());
        assert!(shared.get(1, &v1, 10).1.is_some());
    }

    #[tokio::test]
    async fn dropped_conversion_fails_its_waiters_and_is_retried() {
        let (shared, v1): (SharedConversions, Arc<str>) = (SharedConversions::default(), "g/v1".into());
        let (wait, duty) = shared.get(1, &v1, 10);
        drop(duty);
        assert!(wait.await.is_err());
        assert!(shared.get(1, &v1, 10).1.is_some());
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let (shared, v1): (SharedConversions, Arc<str>) = (SharedConversions::default(), "g/v1".into());
        for revision in 0..10 {
            let _ = shared.get(revision, &v1, KEPT.1 / 3);
        }
        let slots = shared.0.lock();
        assert_eq!((slots.waits.len(), slots.oldest.len()), (3, 3));
        assert_eq!(slots.bytes, KEPT.1 / 3 * 3);
    }
}
