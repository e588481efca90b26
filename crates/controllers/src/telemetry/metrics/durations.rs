//! Durations of each object's attempts. The number of objects with a series of their own is bounded (`share`). The others share one series of their
//! kind, without a name, so that sums stay correct.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tenure_exposition::{FamilyKind, Labels, begin_family, write_histogram};

use super::histogram::{Histogram, OF_OBJECTS};
use super::share::decide_share;
use crate::cluster_view::key::Key;

/// The name that dashboards of Flux's users query.
const NAME: &str = "gotk_reconcile_duration_seconds";

/// How long attempts took, by object.
#[derive(Debug, Default)]
pub(super) struct Durations {
    named: BTreeMap<Key, NamedSeries>,
    /// The number of objects of each tenant with a series.
    owners: HashMap<String, usize>,
    /// Durations of objects without a series, by kind.
    others: BTreeMap<&'static str, Histogram>,
}

/// The series of one object, and the tenant's share to which it counts.
#[derive(Debug)]
struct NamedSeries {
    owner: String,
    histogram: Histogram,
}

impl Durations {
    /// Counts an attempt of an object with its owner. A deleted object has no owner.
    pub(super) fn record_attempt(&mut self, key: &Key, owner: Option<String>, took: Duration) {
        if let Some(named) = self.named.get_mut(key) {
            named.histogram.observe(took);
            return;
        }
        if let Some(owner) = owner
            && self.has_room(&owner)
        {
            let mut histogram = Histogram::new(OF_OBJECTS);
            histogram.observe(took);
            *self.owners.entry(owner.clone()).or_default() += 1;
            self.named.insert(key.clone(), NamedSeries { owner, histogram });
            return;
        }
        let others = self.others.entry(key.kind.name);
        others.or_insert_with(|| Histogram::new(OF_OBJECTS)).observe(took);
    }

    fn has_room(&self, owner: &str) -> bool {
        let own = self.owners.get(owner).copied();
        let owners = self.owners.len() + usize::from(own.is_none());
        own.unwrap_or_default() < decide_share(owners)
    }

    /// Removes the series of a deleted object.
    pub(super) fn forget(&mut self, key: &Key) {
        let Some(named) = self.named.remove(key) else { return };
        if let Some(count) = self.owners.get_mut(&named.owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.owners.remove(&named.owner);
            }
        }
    }

    pub(super) fn write(&self, out: &mut String) {
        let help = "How long the attempts to reconcile an object took; without a name those of all objects that have no series of their own.";
        begin_family(out, NAME, FamilyKind::Histogram, help);
        let named = self.named.iter().map(|(key, named)| {
            let labels = [
                ("kind", key.kind.name),
                ("name", key.name.as_str()),
                ("namespace", key.namespace.as_str()),
            ];
            (Labels::of(&labels), &named.histogram)
        });
        let others = self.others.iter().map(|(kind, histogram)| {
            (
                Labels::of(&[("kind", kind), ("name", ""), ("namespace", "")]),
                histogram,
            )
        });
        for (labels, histogram) in named.chain(others) {
            let totals = (histogram.sum(), histogram.count);
            write_histogram(out, (NAME, &labels), histogram.ends, &histogram.counts, totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Kustomization;

    use super::super::share::MOST_OF_ONE;
    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(Kustomization::KIND, namespace, name)
    }

    fn count(text: &str, part: &str) -> usize {
        text.lines().filter(|line| line.contains(part)).count()
    }

    /// A tenant with a hundred thousand Kustomizations has a bounded number of series, and takes none from other tenants.
    #[test]
    fn series_of_tenant_stay_within_its_share() {
        let mut durations = Durations::default();
        let took = Duration::from_millis(20);
        for number in 0..100_000 {
            durations.record_attempt(
                &key("many", &format!("n{number}")),
                Some("tenant/many".to_owned()),
                took,
            );
        }
        durations.record_attempt(&key("few", "only"), Some("tenant/few".to_owned()), took);
        let mut out = String::new();
        durations.write(&mut out);
        assert_eq!(count(&out, "_count{kind=\"Kustomization\",name=\"n"), MOST_OF_ONE);
        assert_eq!(
            count(&out, "_count{kind=\"Kustomization\",name=\"only\",namespace=\"few\"} 1"),
            1
        );
        let rest = "gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"\",namespace=\"\"} 99000";
        assert_eq!(count(&out, rest), 1);
        assert!(out.len() < 4 << 20, "{} bytes", out.len());
    }

    #[test]
    fn deleted_object_frees_its_series() {
        let mut durations = Durations::default();
        let (first, took) = (key("team", "first"), Duration::from_secs(1));
        durations.record_attempt(&first, Some("tenant/team".to_owned()), took);
        durations.forget(&first);
        durations.forget(&first);
        assert!(durations.named.is_empty() && durations.owners.is_empty());
        // Its last attempt ends after the deletion: the attempt is counted, and the name does not return.
        durations.record_attempt(&first, None, took);
        let mut out = String::new();
        durations.write(&mut out);
        assert!(
            !out.contains("first") && out.contains("name=\"\",namespace=\"\"} 1\n"),
            "{out}"
        );
    }
}
