//! The table: one row per figure, with the figure of the other program if there is one.

use std::time::Duration;

/// A row of the report: a figure of the program, the figure of the other program, and the bar.
pub(crate) struct Row {
    what: String,
    ours: String,
    other: Option<String>,
    bar: &'static str,
}

/// The figures of one run.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a figure with its bar (empty: no bar).
    pub(crate) fn add(&mut self, what: impl Into<String>, ours: String, other: Option<String>, bar: &'static str) {
        self.rows.push(Row {
            what: what.into(),
            ours,
            other,
            bar,
        });
    }

    /// Checks whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the report as a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let mut text = "| what | Tenure | beside it, same run | bar |\n|---|---|---|---|\n".to_owned();
        for row in &self.rows {
            let other = row.other.as_deref().unwrap_or("–");
            let bar = if row.bar.is_empty() { "–" } else { row.bar };
            text.push_str(&format!("| {} | {} | {other} | {bar} |\n", row.what, row.ours));
        }
        text
    }
}

/// Writes a duration in the unit that reads best.
pub(crate) fn format_time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1000.0)
    }
}

/// Writes bytes as megabytes.
pub(crate) fn format_megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1_048_576.0)
}

/// Returns the value below which `share` of the samples lie.
pub(crate) fn find_percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort();
    let last = samples.len().saturating_sub(1);
    samples
        .get(((last as f64) * share).round() as usize)
        .copied()
        .unwrap_or_default()
}
