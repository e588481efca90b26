//! How many requests were sent to the API server of this cluster, by method and by what came back. Owns the counts alone; who asked for what
//! is told by nobody here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;

/// The methods that are counted by name: all that are used.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// The codes that there are; 0 is no answer at all.
const CODES: std::ops::Range<u16> = 100..600;

/// How many requests were sent, by method and status code. Cheap to clone; all clones count together.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts(Arc<Mutex<Counts>>);

type Counts = BTreeMap<(&'static str, u16), u64>;

impl RequestCounts {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request was answered with a code, or with none.
    pub(crate) fn count(&self, method: &Method, code: Option<u16>) {
        self.take(method.as_str(), code.unwrap_or_default(), 1);
    }

    fn take(&self, method: &str, code: u16, count: u64) {
        let method = METHODS.into_iter().find(|known| *known == method);
        let Some(method) = method.filter(|_| code == 0 || CODES.contains(&code)) else {
            return;
        };
        let mut counts = self.counts();
        let entry = counts.entry((method, code)).or_default();
        *entry = entry.saturating_add(count);
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<((&'static str, u16), u64)> {
        self.counts().iter().map(|(sort, count)| (*sort, *count)).collect()
    }

    /// All since this was called last.
    #[must_use]
    pub fn take_all(&self) -> Vec<(String, u16, u64)> {
        let counts = std::mem::take(&mut *self.counts());
        let told = counts
            .into_iter()
            .map(|((method, code), count)| (method.to_owned(), code, count));
        told.collect()
    }

    /// Adds what another process has counted; what nobody here would count is left out.
    pub fn add(&self, told: &[(String, u16, u64)]) {
        for (method, code, count) in told {
            self.take(method, *code, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_tells_makes_no_new_sorts() {
        let counts = RequestCounts::default();
        counts.count(&Method::GET, Some(200));
        counts.count(&Method::GET, None);
        let told = |method: &str, code, count| (method.to_owned(), code, count);
        counts.add(&[
            told("GET", 200, 4),
            told("SECRET", 200, 1),
            told("GET", 9, 1),
            told("PATCH", 409, u64::MAX),
        ]);
        counts.add(&[told("PATCH", 409, 1)]);
        let all = [(("GET", 0), 1), (("GET", 200), 5), (("PATCH", 409), u64::MAX)];
        assert_eq!(counts.list(), all);
        assert_eq!(counts.take_all().len(), 3);
        assert!(counts.list().is_empty());
    }
}
