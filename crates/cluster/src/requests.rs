//! Counts of requests to this cluster's API server, by method and status code. The counts don't name the client or the object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;

/// The methods that are counted by name; the crate uses no other.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// The possible codes; 0 stands for a missing answer.
const CODES: std::ops::Range<u16> = 100..600;

/// The number of sent requests, by method and status code. Cheap to clone; all clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts(Arc<Mutex<Counts>>);

type Counts = BTreeMap<(&'static str, u16), u64>;

impl RequestCounts {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that was answered with a code, or not at all.
    pub(crate) fn count(&self, method: &Method, code: Option<u16>) {
        self.add_count(method.as_str(), code.unwrap_or_default(), 1);
    }

    fn add_count(&self, method: &str, code: u16, count: u64) {
        let method = METHODS.into_iter().find(|known| *known == method);
        let Some(method) = method.filter(|_| code == 0 || CODES.contains(&code)) else {
            return;
        };
        let mut counts = self.counts();
        let entry = counts.entry((method, code)).or_default();
        *entry = entry.saturating_add(count);
    }

    /// Returns all counts.
    #[must_use]
    pub fn list(&self) -> Vec<((&'static str, u16), u64)> {
        self.counts().iter().map(|(sort, count)| (*sort, *count)).collect()
    }

    /// Returns the counts since the last call.
    #[must_use]
    pub fn take_all(&self) -> Vec<(String, u16, u64)> {
        let counts = std::mem::take(&mut *self.counts());
        let listed = counts
            .into_iter()
            .map(|((method, code), count)| (method.to_owned(), code, count));
        listed.collect()
    }

    /// Adds the counts of another process, without methods and codes that this process would not count.
    pub fn add(&self, counted: &[(String, u16, u64)]) {
        for (method, code, count) in counted {
            self.add_count(method, *code, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_another_process_add_no_new_kinds() {
        let counts = RequestCounts::default();
        counts.count(&Method::GET, Some(200));
        counts.count(&Method::GET, None);
        let make_count = |method: &str, code, count| (method.to_owned(), code, count);
        counts.add(&[
            make_count("GET", 200, 4),
            make_count("SECRET", 200, 1),
            make_count("GET", 9, 1),
            make_count("PATCH", 409, u64::MAX),
        ]);
        counts.add(&[make_count("PATCH", 409, 1)]);
        let all = [(("GET", 0), 1), (("GET", 200), 5), (("PATCH", 409), u64::MAX)];
        assert_eq!(counts.list(), all);
        assert_eq!(counts.take_all().len(), 3);
        assert!(counts.list().is_empty());
    }
}
