//! The report of a lane's process to the hub: each attempt and each turn since the previous report, as far as they fit, and the current gauges. A
//! report has a size limit: the excess is only counted, and a report above the limit is a violation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::work::Outcome;
use crate::cluster_view::key::Key;

/// The limit of attempts, and of turns, in one report.
const MOST: usize = 2_000;
/// The limit of kinds, and of sorts of requests, in one report.
const SORTS: usize = 256;

/// The metrics of a lane's process since its previous report.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    pub(super) attempts: Vec<Attempt>,
    pub(super) turns: Vec<Turn>,
    /// The number of attempts that did not fit.
    pub(super) lost: u64,
    pub(super) gauges: Gauges,
    /// Requests to the API server, by method and status code.
    pub(super) requests: Vec<(String, u16, u64)>,
}

/// The duration and the outcome of one ended attempt of an object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attempt {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    micros: u64,
    pub(super) outcome: Outcome,
}

impl Attempt {
    pub(super) fn duration(&self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

/// How long one object waited for capacity in its lane, and how long it then had the capacity.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    pub(super) kind: String,
    waited_micros: u64,
    worked_micros: u64,
}

impl Turn {
    pub(super) fn wait_duration(&self) -> Duration {
        Duration::from_micros(self.waited_micros)
    }

    pub(super) fn work_duration(&self) -> Duration {
        Duration::from_micros(self.worked_micros)
    }
}

/// The gauges at one moment, by kind.
pub(super) type Gauges = BTreeMap<String, KindGauges>;

/// The gauges of one kind at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KindGauges {
    /// Objects that wait for capacity.
    pub(super) waiting: u64,
    /// Objects that have capacity.
    pub(super) running: u64,
    /// The longest running time.
    pub(super) longest_micros: u64,
    /// The sum of the running times.
    pub(super) unfinished_micros: u64,
}

impl KindGauges {
    pub(super) fn take_running(&mut self, running: Duration) {
        let micros = to_micros(running);
        self.running = self.running.saturating_add(1);
        self.longest_micros = self.longest_micros.max(micros);
        self.unfinished_micros = self.unfinished_micros.saturating_add(micros);
    }

    /// Adds the gauges of another process.
    pub(super) fn add(&mut self, other: &Self) {
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.running = self.running.saturating_add(other.running);
        self.longest_micros = self.longest_micros.max(other.longest_micros);
        self.unfinished_micros = self.unfinished_micros.saturating_add(other.unfinished_micros);
    }
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Report {
    /// Returns the violation, if no lane would send this report.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_kept = self.attempts.len() <= MOST && self.turns.len() <= MOST;
        if !is_kept || self.gauges.len() > SORTS || self.requests.len() > SORTS {
            return Err("more metrics than a lane has".to_owned());
        }
        Ok(())
    }
}

/// The metrics of a lane's process that wait to be sent to the hub.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    attempts: Vec<Attempt>,
    turns: Vec<Turn>,
    lost: u64,
    /// The gauges in the previous report.
    reported: Gauges,
}

impl Outbox {
    pub(super) fn take_attempt(&mut self, key: &Key, took: Duration, outcome: Outcome) {
        if self.attempts.len() >= MOST {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        self.attempts.push(Attempt {
            kind: key.kind.name.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            micros: to_micros(took),
            outcome,
        });
    }

    pub(super) fn take_turn(&mut self, kind: &str, waited: Duration, worked: Duration) {
        if self.turns.len() < MOST {
            self.turns.push(Turn {
                kind: kind.to_owned(),
                waited_micros: to_micros(waited),
                worked_micros: to_micros(worked),
            });
        }
    }

    /// Takes the report; `None` if nothing happened.
    pub(super) fn take_report(&mut self, gauges: Gauges, mut requests: Vec<(String, u16, u64)>) -> Option<Report> {
        if self.attempts.is_empty() && self.turns.is_empty() && requests.is_empty() && gauges == self.reported {
            return None;
        }
        requests.truncate(SORTS);
        self.reported.clone_from(&gauges);
        Some(Report {
            attempts: std::mem::take(&mut self.attempts),
            turns: std::mem::take(&mut self.turns),
            lost: std::mem::take(&mut self.lost),
            gauges,
            requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Kustomization;

    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    #[test]
    fn a_report_is_bounded_and_sent_once() {
        let mut outbox = Outbox::default();
        assert!(outbox.take_report(Gauges::new(), Vec::new()).is_none());
        let key = Key::new(Kustomization::KIND, "team", "apps");
        for _ in 0..MOST + 5 {
            outbox.take_attempt(&key, Duration::from_millis(1), Outcome::Success);
            outbox.take_turn("Kustomization", Duration::ZERO, Duration::from_millis(1));
        }
        let report = outbox.take_report(Gauges::new(), Vec::new()).unwrap();
        assert_eq!(
            (report.attempts.len(), report.turns.len(), report.lost),
            (MOST, MOST, 5)
        );
        assert!(report.check().is_ok());
        assert!(outbox.take_report(Gauges::new(), Vec::new()).is_none());
        let mut too_many = report;

        too_many.attempts.push(Attempt {
            kind: "Kustomization".to_owned(),
            namespace: String::new(),
            name: String::new(),
            micros: 0,
            outcome: Outcome::Error,
        });
        assert!(too_many.check().is_err());
    }
}
