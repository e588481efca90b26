//! The thread that owns the tables: it writes full files of the log into them. On a full disk it frees space, and it
//! never drops a job.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::log::{SHORTEST, Segment};
use crate::reserve::Ballast;
use crate::{EventKind, Journal, JournalError, Record, RedbJournal};

/// Bytes of the log that are reserved for deletions on a full disk.
const RESERVE: u64 = 2 << 20;

/// A full segment of the log, with its records: the thread writes the records into the tables and empties the segment.
#[derive(Debug)]
pub(crate) struct Job {
    /// The records of the segment and of the reserve.
    pub(crate) records: Vec<Record>,
    /// Later records, which stay in the log. Keys that they delete need not be written at all.
    pub(crate) ahead: Vec<Record>,
    /// The tables may drop their history up to and including this revision.
    pub(crate) compacted: Option<u64>,
    pub(crate) segment: Segment,
    /// The length that the emptied segment gets, in bytes.
    pub(crate) length: u64,
    /// The log file for deletions on a full disk, if it has records.
    pub(crate) reserve: Option<Segment>,
    /// Whether the thread creates the log file for deletions, because the store has none.
    pub(crate) make_reserve: bool,
}

/// The segments of a finished job, empty and ready for new frames.
#[derive(Debug)]
pub(crate) struct Emptied {
    pub(crate) segment: Segment,
    pub(crate) reserve: Option<Segment>,
}

/// The result of a job: the emptied segments, or the job with its error, so that the job can be repeated.
type Done = Result<Emptied, Box<(Job, JournalError)>>;

/// A handle to the thread that owns the tables.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Sends full segments to the thread. The thread ends when this is dropped.
    pub(crate) jobs: mpsc::Sender<Job>,
    /// Receives the result of each job, in the order of the jobs.
    pub(crate) done: mpsc::Receiver<Done>,
    pub(crate) thread: std::thread::JoinHandle<()>,
}

/// The files that are reserved for a full disk, and the identity of the store.
#[derive(Debug, Clone)]
pub(crate) struct ReserveFiles {
    /// The log file for deletions on a full disk.
    pub(crate) reserve: PathBuf,
    /// The file without content that is deleted when the tables need space.
    pub(crate) ballast: PathBuf,
    /// The store's identity, which each log file carries.
    pub(crate) identity: u64,
}

impl Follower {
    pub(crate) fn start(tables: RedbJournal, reserve_files: ReserveFiles) -> Result<Self, JournalError> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (answers, done) = mpsc::channel();
        let mut work = TableWriter {
            tables,
            ballast: Ballast::new(&reserve_files.ballast),
            reserve_files,
            full_disk_attempt: None,
        };
        let work = move || {
            for mut job in waiting {
                // A panic of the database library is handled as an error: the tables are opened again.
                let followed = std::panic::catch_unwind(AssertUnwindSafe(|| work.write_job(&mut job)));
                let followed = followed.unwrap_or_else(|_| {
                    Err(JournalError::Failed(
                        "the database library panicked while it wrote the tables".to_owned(),
                    ))
                });
                let answer = match followed {
                    Ok(()) => Ok(work.refill_reserves(job)),
                    Err(error) => {
                        // After an error the tables refuse everything until they are opened again.
                        work.tables.close();
                        Err(Box::new((job, error)))
                    }
                };
                if answers.send(answer).is_err() {
                    break;
                }
            }
            work.ballast.release_space();
        };
        let thread = std::thread::Builder::new()
            .name("store-tables".to_owned())
            .spawn(work)?;
        Ok(Self { jobs, done, thread })
    }
}

/// An attempt to write a job that failed for lack of disk space. An attempt opens the tables again, which may take
/// long. So an attempt with the same number of records waits for a pause, and then for free disk space.
#[derive(Debug)]
struct FullDiskAttempt {
    /// The number of records in the job, including the later ones.
    count: usize,
    /// The end of the pause.
    until: Instant,
    error: JournalError,
}

/// Shortest pause after an attempt that failed for lack of disk space.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause as a multiple of the duration of the failed attempt.
const PAUSE_SHARE: u32 = 10;
/// Longest pause after such an attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of the thread: the open tables, and the reserved disk space.
#[derive(Debug)]
struct TableWriter {
    tables: RedbJournal,
    ballast: Ballast,
    reserve_files: ReserveFiles,
    /// The last attempt that failed for lack of disk space.
    full_disk_attempt: Option<FullDiskAttempt>,
}

impl TableWriter {
    /// Writes the records of a job. A repetition does no harm: it writes the same values under the same keys.
    fn write_job(&mut self, job: &mut Job) -> Result<(), JournalError> {
        let count = job.records.len() + job.ahead.len();
        if let Some(full_disk_attempt) = self
            .full_disk_attempt
            .as_ref()
            .filter(|full_disk_attempt| full_disk_attempt.count == count)
        {
            if Instant::now() < full_disk_attempt.until {
                return Err(full_disk_attempt.error.clone());
            }
            self.ballast.check_free_space()?;
        }
        let began = Instant::now();
        if !job.records.is_empty() || job.compacted.is_some() {
            // The ballast is used only for a job with deletions: with records of the reserve, or with later deletions.
            let deletes = |record: &Record| record.kind == EventKind::Delete;
            let taken = if job.reserve.is_some() || job.ahead.iter().any(deletes) {
                write_into_tables(&mut self.tables, &self.ballast, &job.records, &job.ahead, job.compacted)
            } else {
                self.tables
                    .append(&job.records, job.compacted)
                    .map(|()| RecordedHistory::WithHistory)
            };
            if let Err(error @ JournalError::Full(_)) = &taken {
                let pause = (began.elapsed() * PAUSE_SHARE).clamp(PAUSE, LONGEST_PAUSE);
                self.full_disk_attempt = Some(FullDiskAttempt {
                    count,
                    until: Instant::now() + pause,
                    error: error.clone(),
                });
            }
            if let RecordedHistory::WithoutHistory = taken? {
                // The next job has the deletions, and the tables need disk space for it. So the emptied segment becomes
                // as short as possible.
                job.length = SHORTEST;
            }
            // These records are done, even if a later step fails.
            (job.records, job.ahead, job.compacted) = (Vec::new(), Vec::new(), None);
        }
        self.full_disk_attempt = None;
        job.segment.clear(job.length)?;
        match &mut job.reserve {
            Some(reserve) => reserve.clear(RESERVE),
            None => Ok(()),
        }
    }

    /// Creates the missing files of the reserved space, as far as the disk has space now. Returns the emptied segments
    /// of the job.
    fn refill_reserves(&self, job: Job) -> Emptied {
        let reserve = job
            .reserve
            .or_else(|| job.make_reserve.then(|| self.create_reserve().ok()).flatten());
        let _without = self.ballast.fill();
        Emptied {
            segment: job.segment,
            reserve,
        }
    }

    fn create_reserve(&self) -> Result<Segment, JournalError> {
        let path = &self.reserve_files.reserve;
        let reserve = Segment::set_aside(path, self.reserve_files.identity, RESERVE)?;
        sync_folder(path)?;
        Ok(reserve)
    }
}

/// Whether the tables also kept the history when records were written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordedHistory {
    /// The history was kept.
    WithHistory,
    /// The disk was full, and the history was dropped.
    WithoutHistory,
}

/// Writes records into the tables. On a full disk, deletes the ballast, drops the history of the tables, and tries
/// again.
pub(crate) fn write_into_tables(
    tables: &mut RedbJournal,
    ballast: &Ballast,
    records: &[Record],
    ahead: &[Record],
    compacted: Option<u64>,
) -> Result<RecordedHistory, JournalError> {
    match tables.append(records, compacted) {
        Err(JournalError::Full(_)) => {}
        other => return other.map(|()| RecordedHistory::WithHistory),
    }
    // After an error the tables refuse everything until they are opened again.
    tables.close();
    ballast.release_space();
    tables
        .append_sparingly(records, ahead)
        .inspect_err(|_| tables.close())?;
    tracing::warn!(
        "the disk is full: the store dropped its history; after a restart, clients that watch have to list again"
    );
    Ok(RecordedHistory::WithoutHistory)
}

/// Makes the names of the files beside `path` durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), JournalError> {
    if let Some(folder) = path.parent() {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}
