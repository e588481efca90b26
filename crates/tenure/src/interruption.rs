//! Ctrl-C and SIGTERM while a command works: the command ends itself, and says what it leaves.

use std::process::ExitCode;

use crate::failure::Failure;

/// The exit code of an interrupted command.
const INTERRUPTED: u8 = 130;

/// The end of work that can be interrupted.
pub(crate) enum Ended<T> {
    /// The work ended by itself.
    Done(T),
    /// The user interrupted it.
    Interrupted,
}

/// Does the work until its end or until the user interrupts it. The rest of interrupted work is dropped.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Result<Ended<T>, Failure> {
    tokio::select! {
        done = work => Ok(Ended::Done(done)),
        ended = wait_for_signal() => ended.map(|()| Ended::Interrupted),
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn wait_for_signal() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failure = |error: std::io::Error| Failure::environment(format!("can't wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failure),
        _ = terminate.recv() => Ok(()),
    }
}

/// Returns the exit code of an interrupted command.
pub(crate) fn exit_code() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}
