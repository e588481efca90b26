//! Measures one process from its start to its end: its time and its peak memory. The operating system reports the peak only for all ended children together, so each
//! process gets a parent of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};

/// The first argument that makes this program the parent of one process.
const PARENT: &str = "one-process";

/// The cost of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// From before its start until after its end.
    pub(crate) time: Duration,
    /// The most memory that was resident, in bytes.
    pub(crate) memory: u64,
}

/// Returns the output of a build; `None` if it fails.
pub(crate) fn build_output(program: &Path, folder: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let output = Command::new(program)
        .arg("build")
        .arg(folder)
        .output()
        .with_context(|| format!("can't start {}", program.display()))?;
    Ok(output.status.success().then_some(output.stdout))
}

/// Builds a folder once.
pub(crate) fn measure_cost(program: &Path, folder: &Path) -> anyhow::Result<Cost> {
    let output = Command::new(std::env::current_exe()?)
        .arg(PARENT)
        .arg(program)
        .arg("build")
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(nanoseconds)), Some(Ok(kilobytes))) => Ok(Cost {
            time: Duration::from_nanos(nanoseconds),
            memory: kilobytes * 1024,
        }),
        _ => bail!("{} build {}: {}", program.display(), folder.display(), output.status),
    }
}

/// Runs one process if this program was started as its parent.
pub(crate) fn as_parent() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != PARENT {
        return None;
    }
    let arguments: Vec<OsString> = arguments.collect();
    Some(match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let _reader_gone = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    })
}

fn run(arguments: &[OsString]) -> anyhow::Result<()> {
    use std::io::Write;
    let (program, rest) = arguments.split_first().context("no program")?;
    let started = Instant::now();
    let status = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let time = started.elapsed();
    if !status.success() {
        bail!("{}: {status}", program.display());
    }
    // Linux counts in kilobytes.
    let kilobytes = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    writeln!(std::io::stdout(), "{} {kilobytes}", time.as_nanos())?;
    Ok(())
}
