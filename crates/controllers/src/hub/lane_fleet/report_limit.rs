//! Limits how much the hub stores of the reports of one lane's process: all lanes share the hub, and a process may report anything.

use std::collections::HashMap;

use crate::cluster_view::key::Key;

/// Counts the stored items of a process's reports, by the reported object, and limits their sum.
#[derive(Debug)]
pub(super) struct ReportLimit {
    most: usize,
    kept: HashMap<Key, usize>,
    all: usize,
}

impl ReportLimit {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            kept: HashMap::new(),
            all: 0,
        }
    }

    /// Checks the limit for this many items of an object, in place of the object's previous items, and records them.
    pub(super) fn record_if_allowed(&mut self, key: &Key, count: usize) -> bool {
        let before = self.kept.get(key).copied().unwrap_or_default();
        let all = self.all.saturating_sub(before).saturating_add(count);
        if all > self.most {
            return false;
        }
        self.all = all;
        if count == 0 {
            self.kept.remove(key);
        } else {
            self.kept.insert(key.clone(), count);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    #[test]
    fn stored_reports_of_all_objects_share_one_limit() {
        let key = |number: u32| Key::new(tenure_api::Kustomization::KIND, "team", &number.to_string());
        let mut keeping = ReportLimit::new(100);
        let taken = (0..50)
            .filter(|number| keeping.record_if_allowed(&key(*number), 9))
            .count();
        assert_eq!(taken, 11);
        assert!(keeping.record_if_allowed(&key(0), 1), "less than before");
        assert!(keeping.record_if_allowed(&key(50), 9), "there is room again");
        for number in 0..=50 {
            assert!(keeping.record_if_allowed(&key(number), 0));
        }
        assert!(keeping.record_if_allowed(&key(0), 100));
    }
}
