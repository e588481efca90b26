//! Writes all metrics as text, in a readable order.

use std::collections::BTreeMap;
use std::time::Instant;

use tenure_exposition::{FamilyKind, Labels, begin_family, write_family, write_histogram};

use super::histogram::Histogram;
use super::report::KindGauges;
use super::work::{KindMetrics, Outcome, WorkTable};
use super::{Metrics, lock, state};

impl Metrics {
    /// Writes all families, in the text form of Prometheus. Families about objects are missing while the controllers here don't lead.
    pub fn write(&self, out: &mut String) {
        let view = self.view();
        let leads = [(Labels::none(), u8::from(view.is_some()))];
        let help = "Whether the controllers of this process reconcile. If not, another process leads.";
        write_family(out, ("tenure_leading", FamilyKind::Gauge, help), leads);
        if let Some(view) = &view {
            state::write(out, view.as_ref());
        }
        if let Some(access) = self.access() {
            access.write(out);
        }
        lock(&self.0.durations).write(out);
        let mut gauges = lock(&self.0.work).read_gauges(Instant::now());
        for reported in lock(&self.0.lanes).values() {
            for (kind, reported) in reported {
                gauges.entry(kind.clone()).or_default().add(reported);
            }
        }
        let work = lock(&self.0.work);
        write_attempts(out, &work);
        write_queues(out, &work, &gauges);
        drop(work);
        let counts = self.requests().map(|requests| requests.list()).unwrap_or_default();
        let counts = counts.into_iter().map(|((method, code), count)| {
            // client-go uses this word for a missing answer.
            let code = if code == 0 {
                "<error>".to_owned()
            } else {
                code.to_string()
            };
            (Labels::of(&[("code", &code), ("method", method)]), count)
        });
        let help = "Requests to the API server of this cluster, by result.";
        write_family(out, ("rest_client_requests_total", FamilyKind::Counter, help), counts);
    }
}

/// Returns the labels of a kind in a family.
type NamesKind = fn(&str) -> Labels;
/// Returns the gauge of a kind for a family.
type ReadsGauge = fn(&KindGauges) -> f64;
/// Returns the histogram of a kind for a family.
type ReadsHistogram = fn(&KindMetrics) -> &Histogram;

/// Returns the name of a kind's controller, as in controller-runtime.
fn name_controller(kind: &str) -> Labels {
    Labels::of(&[("controller", &kind.to_lowercase())])
}

/// Returns the name of a kind's queue, as in controller-runtime.
fn name_queue(kind: &str) -> Labels {
    name_controller(kind).with("name", &kind.to_lowercase())
}

fn write_attempts(out: &mut String, work: &WorkTable) {
    let kinds = || work.kinds.iter();
    let totals = kinds().flat_map(|(kind, metrics)| {
        Outcome::ALL.map(|outcome| {
            let labels = name_controller(kind).with("result", outcome.as_str());
            (labels, metrics.count(outcome))
        })
    });
    let help = "Attempts to reconcile an object, by result.";
    write_family(
        out,
        ("controller_runtime_reconcile_total", FamilyKind::Counter, help),
        totals,
    );
    let errors = kinds().map(|(kind, metrics)| (name_controller(kind), metrics.count(Outcome::Error)));
    let help = "Attempts after which an object was not Ready.";
    write_family(
        out,
        ("controller_runtime_reconcile_errors_total", FamilyKind::Counter, help),
        errors,
    );
    let help = "Duration of attempts from start to end, including waiting.";
    write_histograms(
        out,
        ("controller_runtime_reconcile_time_seconds", help),
        work,
        (name_controller, |kind| &kind.attempts),
    );
    let lost = [(Labels::none(), work.lost)];
    let help = "Attempts of lane processes that no other metric counts, since there were too many at once.";
    write_family(
        out,
        ("tenure_attempts_uncounted_total", FamilyKind::Counter, help),
        lost,
    );
}

fn write_queues(out: &mut String, work: &WorkTable, gauges: &BTreeMap<String, KindGauges>) {
    let families: [(&str, &str, NamesKind, ReadsGauge); 4] = [
        (
            "controller_runtime_active_workers",
            "Objects in reconciliation.",
            name_controller,
            |gauges| gauges.running as f64,
        ),
        (
            "workqueue_depth",
            "Objects that wait for a slot of their lane.",
            name_queue,
            |gauges| gauges.waiting as f64,
        ),
        (
            "workqueue_longest_running_processor_seconds",
            "Age of the longest reconciliation in progress.",
            name_queue,
            |gauges| gauges.longest_micros as f64 / 1e6,
        ),
        (
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of all reconciliations in progress.",
            name_queue,
            |gauges| gauges.unfinished_micros as f64 / 1e6,
        ),
    ];
    for (name, help, label, read) in families {
        let series = gauges.iter().map(|(kind, gauges)| (label(kind), read(gauges)));
        write_family(out, (name, FamilyKind::Gauge, help), series);
    }
    let help = "Time that objects waited for a slot of their lane.";
    write_histograms(
        out,
        ("workqueue_queue_duration_seconds", help),
        work,
        (name_queue, |kind| &kind.queued),
    );
    let help = "Duration of single reconciliations.";
    write_histograms(
        out,
        ("workqueue_work_duration_seconds", help),
        work,
        (name_queue, |kind| &kind.worked),
    );
}

fn write_histograms(
    out: &mut String,
    (name, help): (&str, &str),
    work: &WorkTable,
    (label, read): (NamesKind, ReadsHistogram),
) {
    begin_family(out, name, FamilyKind::Histogram, help);
    for (kind, metrics) in &work.kinds {
        let histogram = read(metrics);
        let totals = (histogram.sum(), histogram.count);
        write_histogram(out, (name, &label(kind)), histogram.ends, &histogram.counts, totals);
    }
}
