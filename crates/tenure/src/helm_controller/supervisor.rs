//! Keeps a program running: starts it again after a pause, writes its lines into the log, and ends it.
//!
//! One thread does all of it. The kernel ends a program that asks to die with its parent when the *thread* that started it ends.

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_api::text::visible_line;

use crate::failure::Failure;

/// The first pause before another start.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The run after which the next pause is the first one again.
const LONG_RUN: Duration = Duration::from_secs(60);
/// The time that the program has to end.
const GRACE: Duration = Duration::from_secs(10);
/// The time between two looks at the program.
const LOOK: Duration = Duration::from_millis(100);
/// The longest line in the log, in bytes. The rest of a longer line is left out.
const LONGEST_LINE: u64 = 4096;

/// A program with everything that it gets.
pub(super) struct SupervisedProgram {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The working directory.
    pub(super) folder: PathBuf,
    /// All variables of the environment.
    pub(super) environment: Vec<(String, String)>,
}

/// The thread that keeps a program running.
pub(super) struct Supervisor {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Starts the thread. A program that can't be started is an event of the log, and is tried again.
    pub(super) fn start(program: SupervisedProgram) -> Result<Self, Failure> {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("helm-controller".to_owned())
            .spawn(move || supervise(&program, &ended))
            .map_err(|error| Failure::environment(format!("no thread for helm-controller: {error}")))?;
        Ok(Self { end, thread })
    }

    /// Ends the program, and waits for it.
    pub(super) fn stop(self) {
        let _the_thread_may_have_ended = self.end.send(());
        let _ended = self.thread.join();
    }
}

/// Returns the pause after a run of this length, when the pause before was `last`.
fn choose_pause(last: Option<Duration>, run: Duration) -> Duration {
    match last {
        Some(last) if run < LONG_RUN => last.saturating_mul(2).min(LONGEST_PAUSE),
        _ => FIRST_PAUSE,
    }
}

fn supervise(program: &SupervisedProgram, end: &mpsc::Receiver<()>) {
    let mut pause = None;
    loop {
        let started = Instant::now();
        match spawn(program) {
            Ok(mut child) => {
                tracing::info!(pid = child.id(), "helm-controller is started");
                log_outputs(&mut child);
                match wait(&mut child, end) {
                    Some(status) => tracing::warn!(%status, "helm-controller ended"),
                    None => return,
                }
            }
            Err(error) => tracing::warn!(%error, "helm-controller can't be started"),
        }
        let next = choose_pause(pause, started.elapsed());
        pause = Some(next);
        match end.recv_timeout(next) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn spawn(program: &SupervisedProgram) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    Command::new(&program.program)
        .args(&program.arguments)
        .current_dir(&program.folder)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C on a terminal is for this process, which ends the program itself.
        .process_group(0)
        .spawn()
}

/// Waits until the program ends by itself, and returns its status; or ends it when that is ordered, and returns nothing.
fn wait(child: &mut Child, end: &mpsc::Receiver<()>) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        match end.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                stop(child);
                return None;
            }
        }
    }
}

/// Asks the program to end, and kills it if it does not.
fn stop(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        let _may_have_ended = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(LOOK);
    }
    tracing::warn!("helm-controller does not end, and is killed");
    let _may_have_ended = child.kill();
    let _collected = child.wait();
}

/// Writes the lines of both outputs into the log, each from a thread that ends with the output.
fn log_outputs(child: &mut Child) {
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|output| Box::new(output) as _),
        child.stderr.take().map(|output| Box::new(output) as _),
    ];
    for output in outputs.into_iter().flatten() {
        let reader = std::thread::Builder::new().name("helm-lines".to_owned());
        if let Err(error) = reader.spawn(move || log_lines(output)) {
            tracing::warn!(%error, "the lines of helm-controller are not read");
        }
    }
}

fn log_lines(output: impl Read) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match (&mut output).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') && output.skip_until(b'\n').is_err() {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let line = visible_line(line.trim_end());
        // helm-controller logs JSON. Other lines are missing limits of `tenure confined`, wrong flags, and panics.
        match line.starts_with('{') {
            true => tracing::info!(target: "helm_controller", "{line}"),
            false => tracing::warn!(target: "helm_controller", "{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_long_run() {
        let mut pause = None;
        let mut seconds = Vec::new();
        for run in [0, 0, 1, 59, 0, 0, 0, 0, 60, 0] {
            let next = choose_pause(pause, Duration::from_secs(run));
            seconds.push(next.as_secs());
            pause = Some(next);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]);
    }

    #[test]
    fn program_is_started_again_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"echo "$MARK" >> runs; test "$(wc -l < runs)" -lt 2 && exit 3; exec sleep 600"#;
        let program = SupervisedProgram {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            folder: folder.path().to_owned(),
            environment: vec![
                ("MARK".to_owned(), "mark".to_owned()),
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ],
        };
        let supervisor = Supervisor::start(program).unwrap();
        let runs = folder.path().join("runs");
        let has_two = || std::fs::read_to_string(&runs).is_ok_and(|runs| runs == "mark\nmark\n");
        let begun = Instant::now();
        while !has_two() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not started again");
            std::thread::sleep(Duration::from_millis(20));
        }
        supervisor.stop();
    }
}
