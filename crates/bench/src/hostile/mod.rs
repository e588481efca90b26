//! The cost of a hostile tenant's loads for two other tenants, in time and in memory. `loads` has the loads, and `crate::stage` the environment. A bad figure does not
//! end the run: even the end of a process is reported as a figure.
//!
//! A second, idle server with the same tenants is measured at the same moments: the *control*. The load takes processors from both servers. So the difference between the
//! two is what the load costs inside the attacked server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use self::loads::Load;
use crate::process::memory_of;
use crate::report::{Report, find_percentile, format_megabytes, format_time};
use crate::stage::Stage;
use crate::turns::{Side, settle, take_turn};

pub(crate) mod loads;
mod many;
pub(crate) mod pressure;
mod repositories;

/// The number of alternating turns at rest and under load.
const TURNS: usize = 5;

/// How long a load runs before the first measurement.
const LEAD: Duration = Duration::from_secs(1);

/// The longest time for the memory to go back.
const RECOVERY: Duration = Duration::from_secs(60);

/// The most memory of a process at rest after a load.
const AT_REST: u64 = 120 << 20;

/// Runs every load, or those whose names contain `only`, with `samples` commits at rest and the same number under load.
pub(crate) async fn measure(
    program: &Path,
    samples: usize,
    only: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    for load in Load::ALL {
        if only.is_some_and(|only| !load.name().contains(only)) {
            continue;
        }
        measure_load(program, load, samples.div_ceil(TURNS), report)
            .await
            .with_context(|| load.name())?;
    }
    Ok(())
}

async fn measure_load(program: &Path, load: Load, samples: usize, report: &mut Report) -> anyhow::Result<()> {
    // One process: there a tenant is closest to the others, and its memory can be read. `lanes` measures processes.
    let mut stage = Stage::set(program, &["--lanes", "task"]).await?;
    let control = Stage::set(program, &["--lanes", "task"]).await.context("control")?;
    let prepared = load.prepare(&stage).await.context("prepare")?;
    settle(&stage).await;
    let before = memory_of(stage.process_id())?.0;
    let memory = Memory::follow(stage.process_id());
    let (mut rest, mut loaded) = (Side::default(), Side::default());
    let (mut control_rest, mut control_loaded) = (Side::default(), Side::default());
    for _ in 0..TURNS {
        futures::join!(
            take_turn(&stage, samples, &mut rest),
            take_turn(&control, samples, &mut control_rest)
        );
        let pressure = prepared.start_load(&stage).await;
        tokio::time::sleep(LEAD).await;
        futures::join!(
            take_turn(&stage, samples, &mut loaded),
            take_turn(&control, samples, &mut control_loaded)
        );
        pressure.end_load(&stage).await;
        settle(&stage).await;
        if !stage.is_running() {
            break;
        }
    }
    let peak = memory.peak();
    let running = stage.is_running();
    let after = if running {
        recover(stage.process_id()).await
    } else {
        "the process ended".to_owned()
    };
    let name = load.name();
    report.add(
        format!("{name}: a third tenant's GET p99, at rest → under load"),
        describe_gets(&mut rest, &mut loaded),
        Some(describe_gets(&mut control_rest, &mut control_loaded)),
        "20 ms, or twice its rest",
    );
    report.add(
        format!(
            "{name}: another tenant's commit to applied, p50 of {}",
            loaded.commits.len()
        ),
        describe_commits(&mut rest, &mut loaded),
        Some(describe_commits(&mut control_rest, &mut control_loaded)),
        "1.5 times its rest",
    );
    report.add(
        format!("{name}: commit under load, of the attacked server by the control"),
        describe_ratio(&mut loaded.commits, &mut control_loaded.commits),
        None,
        "1.5",
    );
    report.add(format!("{name}: peak memory"), format_megabytes(peak), None, "600 MB");
    report.add(
        format!("{name}: memory when it was prepared → afterwards"),
        format!("{} → {after}", format_megabytes(before)),
        None,
        "120 MB in 60 s",
    );
    Ok(())
}

fn describe_gets(rest: &mut Side, loaded: &mut Side) -> String {
    format!(
        "{} → {} ({} failed)",
        format_time(find_percentile(&mut rest.gets, 0.99)),
        format_time(find_percentile(&mut loaded.gets, 0.99)),
        loaded.failed_gets
    )
}

fn describe_commits(rest: &mut Side, loaded: &mut Side) -> String {
    format!(
        "{} → {}",
        format_time(find_percentile(&mut rest.commits, 0.5)),
        format_time(find_percentile(&mut loaded.commits, 0.5))
    )
}

/// Describes the ratio of two medians.
fn describe_ratio(attacked: &mut [Duration], control: &mut [Duration]) -> String {
    let (attacked, control) = (find_percentile(attacked, 0.5), find_percentile(control, 0.5));
    format!(
        "{:.2}",
        attacked.as_secs_f64() / control.as_secs_f64().max(f64::MIN_POSITIVE)
    )
}

/// Waits until the memory is that of a process at rest, and describes the result.
async fn recover(id: u32) -> String {
    let started = Instant::now();
    loop {
        let resident = memory_of(id).map_or(0, |(resident, _)| resident);
        if resident < AT_REST || started.elapsed() > RECOVERY {
            return format!(
                "{} after {}",
                format_megabytes(resident),
                format_time(started.elapsed())
            );
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// A task that records the highest resident memory of a process since the creation of this value. The kernel's own high-water mark would include the preparation.
struct Memory {
    peak: Arc<AtomicU64>,
    following: tokio::task::JoinHandle<()>,
}

impl Memory {
    fn follow(id: u32) -> Self {
        let peak = Arc::new(AtomicU64::new(0));
        let highest = peak.clone();
        let following = tokio::spawn(async move {
            while let Ok((resident, _)) = memory_of(id) {
                highest.fetch_max(resident, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { peak, following }
    }

    fn peak(&self) -> u64 {
        self.following.abort();
        self.peak.load(Ordering::Relaxed)
    }
}
