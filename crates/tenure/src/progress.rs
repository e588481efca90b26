//! The progress of a command that waits, on standard error, in Flux's manner: what it does, what it waits for and since when, and what it has reached. A terminal gets one
//! line that is drawn again; a file or a pipe gets whole lines only.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use tenure_api::text::visible_line;
use tokio::time::Instant;

use crate::output;

/// The time between two lines about one wait, where lines are not drawn again.
const BETWEEN_LINES: Duration = Duration::from_secs(15);
/// The time between two drawings of a line on a terminal.
const BETWEEN_DRAWINGS: Duration = Duration::from_millis(200);

/// The progress of one command. Clones share the terminal.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// The drawn lines; `None` without a terminal.
    drawn: Option<MultiProgress>,
}

impl Progress {
    /// Returns the progress without any line. Lines are drawn again only if standard error is a terminal.
    pub(crate) fn start() -> Self {
        Self {
            drawn: std::io::stderr().is_terminal().then(MultiProgress::new),
        }
    }

    /// Prints an action that begins.
    pub(crate) fn print_action(&self, action: impl AsRef<str>) {
        self.print("►", action.as_ref());
    }

    /// Prints a result.
    pub(crate) fn succeed(&self, result: impl AsRef<str>) {
        self.print(&output::good("✔"), result.as_ref());
    }

    /// Prints a failed part of the work. The error itself follows in the program's usual form.
    pub(crate) fn warn(&self, problem: impl AsRef<str>) {
        self.print("⚠", problem.as_ref());
    }

    /// Prints a line of the command's own output, on standard output.
    pub(crate) fn print_output(&self, line: &str) {
        match &self.drawn {
            Some(drawn) => drawn.suspend(|| output::print_line(line)),
            None => output::print_line(line),
        }
    }

    fn print(&self, sign: &str, text: &str) {
        let line = format!("{sign} {}", visible_line(text));
        match &self.drawn {
            Some(drawn) => drawn.suspend(|| output::print_note(line)),
            None => output::print_note(line),
        }
    }

    /// Shows a wait until the returned value is dropped. `what` follows the words *waiting for*.
    pub(crate) fn wait(&self, what: impl AsRef<str>) -> WaitLine {
        let what = visible_line(what.as_ref()).into_owned();
        let Some(drawn) = &self.drawn else {
            return WaitLine::in_lines(what);
        };
        let bar = drawn.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("◎ waiting for {prefix} ({elapsed}){wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        bar.enable_steady_tick(BETWEEN_DRAWINGS);
        WaitLine {
            step: Arc::default(),
            shown: Shown::Bar(bar),
        }
    }
}

/// A wait that the terminal shows until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitLine {
    /// The last known step of what is waited for.
    step: Arc<Mutex<String>>,
    shown: Shown,
}

/// The form in which a wait is shown: one line that changes, or new lines.
#[derive(Debug)]
enum Shown {
    /// A line that the terminal draws again.
    Bar(ProgressBar),
    /// Whole lines, by a task.
    Lines(tokio::task::AbortHandle),
}

impl WaitLine {
    /// Starts a task that prints a line about the wait at intervals.
    fn in_lines(what: String) -> Self {
        output::print_note(write_wait(&what, Duration::ZERO, ""));
        let step = Arc::new(Mutex::new(String::new()));
        let (known, began) = (Arc::clone(&step), Instant::now());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(BETWEEN_LINES).await;
                let step = known.lock().clone();
                output::print_note(write_wait(&what, began.elapsed(), &step));
            }
        });
        Self {
            step,
            shown: Shown::Lines(task.abort_handle()),
        }
    }

    /// Returns the last known step.
    pub(crate) fn step(&self) -> String {
        self.step.lock().clone()
    }

    /// Sets the current step of what is waited for, as the cluster reports it.
    pub(crate) fn set_step(&self, step: &str) {
        let step = visible_line(step.lines().next().unwrap_or_default()).into_owned();
        match &self.shown {
            Shown::Bar(bar) if step.is_empty() => bar.set_message(String::new()),
            Shown::Bar(bar) => bar.set_message(format!(": {step}")),
            Shown::Lines(_) => {}
        }
        *self.step.lock() = step;
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        match &self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines(task) => task.abort(),
        }
    }
}

/// Returns the line about a wait. The first line has no time.
fn write_wait(what: &str, waited: Duration, step: &str) -> String {
    let mut line = format!("◎ waiting for {what}");
    if waited.as_secs() > 0 {
        line.push_str(&format!(" ({}s)", waited.as_secs()));
    }
    if !step.is_empty() {
        line.push_str(&format!(": {step}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_line_names_object_time_and_step() {
        let what = "Kustomization/team-a/app to be applied";
        let check = |seconds, step, expected: &str| {
            assert_eq!(write_wait(what, Duration::from_secs(seconds), step), expected);
        };
        check(0, "", "◎ waiting for Kustomization/team-a/app to be applied");
        check(12, "", "◎ waiting for Kustomization/team-a/app to be applied (12s)");
        check(
            75,
            "Building manifests",
            "◎ waiting for Kustomization/team-a/app to be applied (75s): Building manifests",
        );
    }
}
