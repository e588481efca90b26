//! The account of the demo: its output and its summary. A step counts as held only after it was observed.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tenure_inspection::text_table::{Cell, Tone};

use crate::output;

/// The result of a step.
pub(super) enum StepResult {
    /// The step held, with the observation in a sentence.
    Held(String),
    /// The step did not hold, with the observation in its place.
    Missing(String),
}

/// One line of the summary.
struct Line {
    chapter: usize,
    what: String,
    held: bool,
    took: Duration,
}

/// The output of the demo so far: the number of its chapters, and a summary line for each step.
#[derive(Default)]
pub(super) struct Transcript {
    chapter: usize,
    lines: Vec<Line>,
}

impl Transcript {
    /// Opens a chapter.
    pub(super) fn chapter(&mut self, title: &str) {
        self.chapter += 1;
        output::print_line("");
        output::print_line(output::bold(&format!("{}. {title}", self.chapter)));
    }

    /// Prints a text that is no step.
    pub(super) fn print_text(&self, text: &str) {
        for line in text.lines() {
            output::print_line(format!("   {line}"));
        }
    }

    /// Runs a step, shows its progress, and prints the result and the duration.
    pub(super) async fn step(&mut self, what: &str, work: impl Future<Output = StepResult>) -> bool {
        let waiting = show_waiting(what);
        let started = Instant::now();
        let seen = work.await;
        let took = started.elapsed();
        waiting.finish_and_clear();
        let (held, text) = match seen {
            StepResult::Held(text) => (true, text),
            StepResult::Missing(text) => (false, text),
        };
        let mark = if held { output::good("✓") } else { output::bad("✗") };
        output::print_line(format!(" {mark} {what}  {}", output::faint(&format_seconds(took))));
        for line in text.lines() {
            output::print_line(format!("   {}", output::faint(line)));
        }
        self.lines.push(Line {
            chapter: self.chapter,
            what: what.to_owned(),
            held,
            took,
        });
        held
    }

    /// Whether every step so far held.
    pub(super) fn all_held(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(|line| line.held)
    }

    /// Returns the summary table.
    pub(super) fn summary(&self) -> String {
        let rows = self.lines.iter().map(|line| {
            let (text, tone) = match line.held {
                true => ("held", Tone::Good),
                false => ("NOT SEEN", Tone::Bad),
            };
            let seen = Cell {
                text: text.to_owned(),
                tone,
            };
            vec![
                line.chapter.to_string().into(),
                line.what.as_str().into(),
                seen,
                format_seconds(line.took).into(),
            ]
        });
        output::table(&["", "what", "seen", "took"].map(str::to_owned), rows.collect())
    }

    /// Returns the number of steps that held, and the number of all steps.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.lines.iter().filter(|line| line.held).count(), self.lines.len())
    }
}

/// Returns a spinner on a terminal, and a hidden one elsewhere.
fn show_waiting(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(" {spinner} {msg}  {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Formats a duration for people.
pub(super) fn format_seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_step_that_was_not_seen_fails_the_whole() {
        let mut account = Transcript::default();
        assert!(!account.all_held(), "nothing seen is nothing held");
        assert!(account.step("a", async { StepResult::Held("yes".into()) }).await);
        assert!(account.all_held());
        assert!(!account.step("b", async { StepResult::Missing("no".into()) }).await);
        assert!(!account.all_held());
        assert_eq!(account.count(), (1, 2));
    }
}
