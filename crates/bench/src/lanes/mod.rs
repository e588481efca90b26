//! Measures how a lane that is killed, stopped, out of memory or busy delays another tenant's commits. Lanes run as tasks and as processes. `pods` measures the same
//! with a Pod per lane on a real control plane, and `starting` the cost of lanes at the start. `faults` has the failures.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use self::faults::Fault;
use crate::report::{Report, find_percentile, format_time};
use crate::stage::Stage;
use crate::turns::{Side, settle, take_turn};

mod faults;
mod pods;
mod processes;
mod starting;

/// The number of alternating turns at rest and beside the failing lane.
const TURNS: usize = 5;

/// How long a failure lasts before the first measurement.
const LEAD: Duration = Duration::from_millis(500);

/// The bar: a commit of another tenant takes at most a tenth longer than at rest, or 20 ms longer, whichever is more.
const BAR: &str = "10 % or 20 ms, the larger";

/// The place of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Task,
    Process,
}

impl Mode {
    pub(super) const BOTH: [Self; 2] = [Self::Task, Self::Process];

    /// Returns the value of `--lanes`.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Process => "process",
        }
    }
}

/// Measures everything, or the parts with `only` in their names, with `samples` commits at rest and the same number beside each lane. Lanes run in Pods if `kubernetes`
/// is the folder of a real control plane's programs.
pub(crate) async fn measure(
    (program, kubernetes): (&Path, Option<&Path>),
    samples: usize,
    only: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    for mode in Mode::BOTH {
        for fault in Fault::ALL {
            let name = format!("{}, {}", mode.flag(), fault.name());
            if (mode == Mode::Process || fault.strikes_tasks()) && only.is_none_or(|only| name.contains(only)) {
                measure_fault(program, (mode, fault), samples.div_ceil(TURNS), report)
                    .await
                    .context(name)?;
            }
        }
    }
    if let Some(kubernetes) = kubernetes {
        for fault in Fault::ALL.into_iter().filter(|fault| *fault != Fault::Busy) {
            let name = format!("deployment, {}", fault.name());
            if only.is_none_or(|only| name.contains(only)) {
                pods::measure((program, kubernetes), fault, samples.div_ceil(TURNS), report)
                    .await
                    .context(name)?;
            }
        }
    }
    starting::measure(program, only, report).await
}

async fn measure_fault(
    program: &Path,
    (mode, fault): (Mode, Fault),
    samples: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut stage = Stage::set(program, &["--lanes", mode.flag(), "--lane-patience", "5"]).await?;
    let prepared = fault.prepare(&stage).await.context("prepare")?;
    settle(&stage).await;
    let (mut rest, mut struck) = (Side::default(), Side::default());
    let mut strikes = 0;
    for _ in 0..TURNS {
        take_turn(&stage, samples, &mut rest).await;
        let striking = prepared.start_strikes(&stage).await?;
        tokio::time::sleep(LEAD).await;
        take_turn(&stage, samples, &mut struck).await;
        strikes += striking.end_strikes(&stage).await;
        settle(&stage).await;
        anyhow::ensure!(stage.is_running(), "the control plane ended");
    }
    report_durations(
        mode.flag(),
        (fault, strikes),
        (&mut rest.commits, &mut struck.commits),
        report,
    );
    Ok(())
}

/// Adds one line: the time of a commit at rest, and beside a failing lane.
fn report_durations(
    mode: &str,
    (fault, strikes): (Fault, usize),
    (rest, struck): (&mut [Duration], &mut [Duration]),
    report: &mut Report,
) {
    let count = struck.len();
    let mut pair = |share: f64| {
        format!(
            "{} → {}",
            format_time(find_percentile(rest, share)),
            format_time(find_percentile(struck, share))
        )
    };
    let times = if strikes > 0 {
        format!(" ({strikes} times)")
    } else {
        String::new()
    };
    report.add(
        format!(
            "lanes as {mode}: another's lane is {}{times}; commit to applied, p50 and p99 of {count}",
            fault.name(),
        ),
        format!("{}, {}", pair(0.5), pair(0.99)),
        None,
        BAR,
    );
}
