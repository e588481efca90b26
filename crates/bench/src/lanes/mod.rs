//! Lanes: what a tenant's lane that is killed, stopped, out of memory or busy costs the commits of another tenant, with lanes as tasks and as
//! processes; and, in `starting`, what lanes cost at the start. Owns the figures; what is done to a lane is in `blows`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use self::blows::Blow;
use crate::report::{Report, percentile, time};
use crate::stage::Stage;
use crate::turns::{Side, settle, take_turn};

mod blows;
mod processes;
mod starting;

/// In so many turns the rest and what is done to the lane alternate.
const TURNS: usize = 5;

/// How long something is done to the lane before anything is timed.
const LEAD: Duration = Duration::from_millis(500);

/// No other tenant's commit may take longer than at rest by more than a tenth, or by this, whichever is more.
const BAR: &str = "10 % or 20 ms, the larger";

/// Where lanes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Task,
    Process,
}

impl Mode {
    pub(super) const BOTH: [Self; 2] = [Self::Task, Self::Process];

    /// As `--lanes` has it.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Process => "process",
        }
    }
}

/// Measures everything, or what has `only` in its name, with `samples` commits at rest and as many beside each lane.
pub(crate) async fn measure(
    program: &Path,
    samples: usize,
    only: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    for mode in Mode::BOTH {
        for blow in Blow::ALL {
            let name = format!("{}, {}", mode.flag(), blow.name());
            if (mode == Mode::Process || blow.strikes_tasks()) && only.is_none_or(|only| name.contains(only)) {
                measure_blow(program, (mode, blow), samples.div_ceil(TURNS), report)
                    .await
                    .context(name)?;
            }
        }
    }
    starting::measure(program, only, report).await
}

async fn measure_blow(
    program: &Path,
    (mode, blow): (Mode, Blow),
    samples: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut stage = Stage::set(program, &["--lanes", mode.flag(), "--lane-patience", "5"]).await?;
    let prepared = blow.prepare(&stage).await.context("prepare")?;
    settle(&stage).await;
    let (mut rest, mut struck) = (Side::default(), Side::default());
    let mut strikes = 0;
    for _ in 0..TURNS {
        take_turn(&stage, samples, &mut rest).await;
        let striking = prepared.begin(&stage).await?;
        tokio::time::sleep(LEAD).await;
        take_turn(&stage, samples, &mut struck).await;
        strikes += striking.end(&stage).await;
        settle(&stage).await;
        anyhow::ensure!(stage.is_running(), "the control plane ended");
    }
    let pair = |side: &mut Side, share: f64| time(percentile(&mut side.commits, share));
    let times = if strikes > 0 {
        format!(" ({strikes} times)")
    } else {
        String::new()
    };
    report.add(
        format!(
            "lanes as {}: another's lane is {}{times}; commit to applied, p50 and p99 of {}",
            mode.flag(),
            blow.name(),
            struck.commits.len()
        ),
        format!(
            "{} → {}, {} → {}",
            pair(&mut rest, 0.5),
            pair(&mut struck, 0.5),
            pair(&mut rest, 0.99),
            pair(&mut struck, 0.99)
        ),
        None,
        BAR,
    );
    Ok(())
}
