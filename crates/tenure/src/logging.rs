//! The program's own log, written to standard error by a thread of its own. If a line can't be written (the reader is gone, the disk or the pipe is full), it is
//! dropped and counted. Code that logs never waits, fails or panics because of the log.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tenure_api::text::visible;
use tracing_subscriber::Layer as _;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;

/// The size of the queue; further lines are dropped.
const LONGEST_QUEUE: usize = 1 << 20;
/// The time that the end of the program waits for lines in the queue.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Formats of the program's own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text for each entry.
    Text,
    /// A JSON object for each entry, on a line of its own.
    Json,
}

/// Reads the filter of the log.
pub(crate) fn make_filter(filter: &str) -> Result<tracing_subscriber::EnvFilter, Failure> {
    tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!("--log: {error}")).hint("try --log info, or --log tenure_controllers=debug")
    })
}

/// Starts the log to standard error.
pub(crate) fn start_log(wanted: &str, format: LogFormat) -> Result<Log, Failure> {
    let filter = make_filter(wanted)?;
    let _only_once = CHOSEN.set((wanted.to_owned(), format));
    let terminal = std::io::IsTerminal::is_terminal(&io::stderr());
    let log = Log::default();
    // Text from a repository or another server must not write lines or colours of its own.
    let fields = debug_fn(|writer, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", visible(&value)),
            name => write!(writer, "{name}={}", visible(&value)),
        }
    });
    let lines = tracing_subscriber::fmt::layer()
        // Errors of the log must not go to standard error, which may be the failed output.
        .log_internal_errors(false)
        .with_writer(log.clone());
    let subscriber = tracing_subscriber::registry();
    let subscriber = subscriber.with(crate::traces::make_layer());
    match format {
        LogFormat::Text => {
            let lines = lines.fmt_fields(fields.delimited(" ")).with_ansi(terminal);
            subscriber.with(lines.with_filter(filter)).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            subscriber.with(lines.with_filter(filter)).init();
        }
    }
    Ok(log)
}

/// The chosen filter and format.
static CHOSEN: OnceLock<(String, LogFormat)> = OnceLock::new();

/// Returns the environment with which another process of this program logs in the same way.
pub(crate) fn write_environment() -> Vec<(OsString, OsString)> {
    let Some((filter, format)) = CHOSEN.get() else {
        return Vec::new();
    };
    let format = match format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    vec![
        ("TENURE_LOG".into(), filter.into()),
        ("TENURE_LOG_FORMAT".into(), format.into()),
    ]
}

/// The queue of log lines that a thread writes to standard error. Clones share the queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the thread is running.
    started: bool,
    /// Whether a line has been taken and is not written yet.
    writing: bool,
}

/// The lines lost since the start of the program, which has only one standard error.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of lines lost since the start.
pub(crate) fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

impl Log {
    /// Queues a line, or drops it. It never waits for the reader.
    fn push(&self, line: &[u8], output: impl Write + Send + 'static, lost: &'static AtomicU64) {
        let mut queue = self.shared.queue.lock();
        if queue.bytes + line.len() > LONGEST_QUEUE {
            lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if !queue.started {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("log".to_owned());
            // Without a thread the line is lost, and the next line tries again.
            if thread.spawn(move || shared.write_all(output, lost)).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            queue.started = true;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line.to_owned());
        self.shared.changed.notify_all();
    }

    /// Waits until all lines are written, for a short time at most.
    pub(crate) fn finish(&self) {
        let mut queue = self.shared.queue.lock();
        let busy = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        let _given_up = self.shared.changed.wait_while_for(&mut queue, busy, LAST_WORDS);
    }
}

impl Shared {
    fn write_all(&self, mut output: impl Write, lost: &AtomicU64) {
        // A partly written line must not look like the beginning of the next.
        let mut torn = false;
        let mut queue = self.queue.lock();
        loop {
            let Some(line) = queue.lines.pop_front() else {
                self.changed.wait(&mut queue);
                continue;
            };
            queue.bytes -= line.len();
            queue.writing = true;
            drop(queue);
            let ended = if torn { output.write_all(b"\n") } else { Ok(()) };
            torn = ended.and_then(|()| output.write_all(&line)).is_err();
            if torn {
                lost.fetch_add(1, Ordering::Relaxed);
            }
            queue = self.queue.lock();
            queue.writing = false;
            self.changed.notify_all();
        }
    }
}

/// The writer that `tracing` gets for one event: each write puts one line into the queue.
#[derive(Debug)]
pub(crate) struct LineWriter<'a>(&'a Log);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, io::stderr(), &LOST);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An output that fails, or waits before each line for a signal, and stores its input.
    struct Output {
        fails: usize,
        go_on: Option<mpsc::Receiver<()>>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(go_on) = &self.go_on {
                let _ended = go_on.recv();
            }
            if self.fails > 0 {
                self.fails -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn output(fails: usize, go_on: Option<mpsc::Receiver<()>>) -> (Output, Arc<Mutex<Vec<u8>>>) {
        let taken = Arc::default();
        let output = Output {
            fails,
            go_on,
            taken: Arc::clone(&taken),
        };
        (output, taken)
    }

    #[test]
    fn lost_line_is_counted_and_next_line_is_whole() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let log = Log::default();
        let (output, taken) = output(1, None);
        log.push(b"one\n", output, &LOST);
        log.push(b"two\n", io::sink(), &LOST);
        log.finish();
        assert_eq!(LOST.load(Ordering::Relaxed), 1);
        assert_eq!(taken.lock().as_slice(), b"\ntwo\n");
    }

    #[test]
    fn stalled_reader_does_not_block_logging() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let log = Log::default();
        let (go_on, waits) = mpsc::channel();
        let (output, taken) = output(0, Some(waits));
        let line = [b'x'; 1024];
        log.push(&line, output, &LOST);
        // One line is being written or will be. The others wait, up to the size of the queue.
        for _ in 0..3000 {
            log.push(&line, io::sink(), &LOST);
        }
        let kept = 3001 - usize::try_from(LOST.load(Ordering::Relaxed)).expect("a count");
        assert!((1024..=1026).contains(&kept), "{kept}");
        drop(go_on);
        log.finish();
        assert_eq!(taken.lock().len(), kept * line.len());
    }
}
