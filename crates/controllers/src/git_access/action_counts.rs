//! Metrics of access: numbers of requests and waiting requests, of existing credentials, and of failures. The only labels are names of
//! AccessProviders.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_api::access::FluxAccessRequest;
use tenure_exposition::{FamilyKind, Labels, write_family};

use super::{AccessHub, lock};
use crate::reconcile_loop::reconciled::Home as _;
use crate::telemetry::metrics::AccessView;

/// The limit of providers with metrics.
const MOST: usize = 100;
/// States of a request.
const STATES: [&str; 4] = ["Pending", "Approved", "Denied", "Revoked"];

/// Counters of this process: actions on credentials by provider and action, and approvals with the seconds until each.
#[derive(Debug, Default)]
pub(super) struct Counts {
    happened: BTreeMap<(String, &'static str), u64>,
    answered: BTreeMap<String, (u64, f64)>,
}

/// The gauges of one provider: requests by state, existing credentials, failing namespaces, and the age of the oldest credential in seconds.
#[derive(Default)]
struct Sums {
    states: [u64; 4],
    live: u64,
    failing: u64,
    oldest: f64,
}

impl AccessHub {
    /// Counts an action on a credential.
    pub(super) fn count(&self, provider: &str, action: &'static str) {
        let mut counts = lock(&self.counts);
        if counts.happened.len() < MOST * 16 {
            *counts.happened.entry((provider.to_owned(), action)).or_default() += 1;
        }
    }

    /// Counts an approval, with the seconds until it.
    pub(super) fn count_approval(&self, provider: &str, seconds: f64) {
        let mut counts = lock(&self.counts);
        if counts.answered.len() < MOST {
            let (count, sum) = counts.answered.entry(provider.to_owned()).or_default();
            *count += 1;
            *sum += seconds;
        }
    }

    /// Computes the gauges of each provider from the statuses of its requests.
    fn sum_up(&self) -> BTreeMap<String, Sums> {
        let now = Timestamp::now().as_second();
        let mut all: BTreeMap<String, Sums> = BTreeMap::new();
        for request in self.caches().get::<FluxAccessRequest>().in_namespace(self.platform()) {
            if all.len() >= MOST && !all.contains_key(&request.spec.provider) {
                continue;
            }
            let sums = all.entry(request.spec.provider.clone()).or_default();
            let status = request.status.as_ref();
            let state = status.and_then(|status| status.state.as_deref()).unwrap_or("Pending");
            for (name, count) in STATES.iter().zip(&mut sums.states) {
                *count += u64::from(*name == state);
            }
            for ledger in status.into_iter().flat_map(|status| &status.credentials) {
                let held = ledger.current.iter().chain(&ledger.retiring);
                sums.live += held.clone().count() as u64;
                sums.live += u64::from(ledger.next.as_ref().is_some_and(|next| next.id.is_some()));
                sums.failing += u64::from(ledger.trouble.is_some());
                for held in ledger.current.iter() {
                    let age = now.saturating_sub(held.begun_at.0.as_second());
                    sums.oldest = sums.oldest.max(age as f64);
                }
            }
        }
        all
    }
}

impl AccessView for AccessHub {
    fn write(&self, out: &mut String) {
        let sums = self.sum_up();
        let of = |provider: &str| Labels::of(&[("provider", provider)]);
        let states = sums.iter().flat_map(|(provider, sums)| {
            let states = STATES.iter().zip(sums.states);
            states.map(|(state, count)| {
                (
                    Labels::of(&[("provider", provider), ("state", &state.to_lowercase())]),
                    count,
                )
            })
        });
        let help = "Requests for access to projects and groups, by answer.";
        write_family(out, ("tenure_access_requests", FamilyKind::Gauge, help), states);
        let live = sums.iter().map(|(provider, sums)| (of(provider), sums.live));
        let help = "Credentials that were made and live, as far as is recorded.";
        write_family(out, ("tenure_access_credentials", FamilyKind::Gauge, help), live);
        let oldest = sums.iter().map(|(provider, sums)| (of(provider), sums.oldest));
        let help = "Age of the oldest credential that is in use.";
        write_family(
            out,
            ("tenure_access_oldest_credential_seconds", FamilyKind::Gauge, help),
            oldest,
        );
        let failing = sums.iter().map(|(provider, sums)| (of(provider), sums.failing));
        let help = "Namespaces in which a credential can't be created, replaced or revoked.";
        write_family(out, ("tenure_access_failing", FamilyKind::Gauge, help), failing);
        let counts = lock(&self.counts);
        let happened = counts.happened.iter().map(|((provider, action), count)| {
            (
                Labels::of(&[("provider", provider), ("action", &action.to_lowercase())]),
                *count,
            )
        });
        let help = "Events of credentials since the start of this process, by kind.";
        write_family(
            out,
            ("tenure_access_credential_changes_total", FamilyKind::Counter, help),
            happened,
        );
        let approvals = counts
            .answered
            .iter()
            .map(|(provider, (count, _))| (of(provider), *count));
        let help = "Requests that were approved since the start of this process.";
        write_family(
            out,
            ("tenure_access_approvals_total", FamilyKind::Counter, help),
            approvals,
        );
        let waited = counts.answered.iter().map(|(provider, (_, sum))| (of(provider), *sum));
        let help = "Seconds from requests to their approvals, all together.";
        write_family(
            out,
            ("tenure_access_approval_seconds_total", FamilyKind::Counter, help),
            waited,
        );
    }
}
