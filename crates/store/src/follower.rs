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

/// A full segment: the thread writes its records into the tables and empties it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) records: Vec<Record>,
    /// Later records, which stay in the log. Keys that they delete need not be written at all.
    pub(crate) ahead: Vec<Record>,
    pub(crate) compacted: Option<u64>,
    pub(crate) segment: Segment,
    pub(crate) length: u64,
    /// The reserve, if it has records.
    pub(crate) reserve: Option<Segment>,
    /// Whether the reserve is missing and should be created.
    pub(crate) make_reserve: bool,
}

/// The emptied segments.
#[derive(Debug)]
pub(crate) struct Emptied {
    pub(crate) segment: Segment,
    pub(crate) reserve: Option<Segment>,
}

type Done = Result<Emptied, Box<(Job, JournalError)>>;

/// The thread.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) done: mpsc::Receiver<Done>,
    pub(crate) thread: std::thread::JoinHandle<()>,
}

/// The paths of the files that are reserved for a full disk, and the store's identity.
#[derive(Debug, Clone)]
pub(crate) struct Keeping {
    pub(crate) reserve: PathBuf,
    pub(crate) ballast: PathBuf,
    pub(crate) identity: u64,
}

impl Follower {
    pub(crate) fn start(tables: RedbJournal, keeping: Keeping) -> Result<Self, JournalError> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (answers, done) = mpsc::channel();
        let mut work = Work {
            tables,
            ballast: Ballast::new(&keeping.ballast),
            keeping,
            hopeless: None,
        };
        let work = move || {
            for mut job in waiting {
                // A panic of the database library is handled as an error: the tables are opened again.
                let followed = std::panic::catch_unwind(AssertUnwindSafe(|| work.write_job(&mut job)));
                let followed = followed
                    .unwrap_or_else(|_| Err(JournalError::Failed("the tables' library failed on them".to_owned())));
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

/// An attempt that failed for lack of disk space. An attempt opens the tables again, which may take long. So the same
/// attempt is repeated only when there is space, and with pauses even then.
#[derive(Debug)]
struct Hopeless {
    count: usize,
    until: Instant,
    error: JournalError,
}

/// Pauses between equal attempts, and the pause as a multiple of the attempt's duration.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_SHARE: u32 = 10;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Work {
    tables: RedbJournal,
    ballast: Ballast,
    keeping: Keeping,
    /// The last attempt that failed for lack of disk space.
    hopeless: Option<Hopeless>,
}

impl Work {
    /// Writes the records of a job. A repetition does no harm: it writes the same values under the same keys.
    fn write_job(&mut self, job: &mut Job) -> Result<(), JournalError> {
        let count = job.records.len() + job.ahead.len();
        if let Some(hopeless) = self.hopeless.as_ref().filter(|hopeless| hopeless.count == count) {
            if Instant::now() < hopeless.until {
                return Err(hopeless.error.clone());
            }
            self.ballast.check_free_space()?;
        }
        let began = Instant::now();
        if !job.records.is_empty() || job.compacted.is_some() {
            // The reserve is used only for work that frees space, and while nothing else is written.
            let deletes = |record: &Record| record.kind == EventKind::Delete;
            let taken = if job.reserve.is_some() || job.ahead.iter().any(deletes) {
                take_in(&mut self.tables, &self.ballast, &job.records, &job.ahead, job.compacted)
            } else {
                self.tables
                    .append(&job.records, job.compacted)
                    .map(|()| RecordedHistory::WithHistory)
            };
            if let Err(error @ JournalError::Full(_)) = &taken {
                let pause = (began.elapsed() * PAUSE_SHARE).clamp(PAUSE, LONGEST_PAUSE);
                self.hopeless = Some(Hopeless {
                    count,
                    until: Instant::now() + pause,
                    error: error.clone(),
                });
            }
            if let RecordedHistory::Sparingly = taken? {
                // The other file, which holds the deletions, comes next, and the tables need this file's space for
                // it.
                job.length = SHORTEST;
            }
            // These records are done, even if a later step fails.
            (job.records, job.ahead, job.compacted) = (Vec::new(), Vec::new(), None);
        }
        self.hopeless = None;
        job.segment.clear(job.length)?;
        match &mut job.reserve {
            Some(reserve) => reserve.clear(RESERVE),
            None => Ok(()),
        }
    }

    /// Refills the files that are reserved for a full disk, as far as there is space now. Returns the emptied segment of the job, and its reserve.
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
        let path = &self.keeping.reserve;
        let reserve = Segment::set_aside(path, self.keeping.identity, RESERVE)?;
        sync_folder(path)?;
        Ok(reserve)
    }
}

/// The way in which records came into the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordedHistory {
    /// With their history.
    WithHistory,
    /// The disk was full, and the history was dropped.
    Sparingly,
}

/// Writes records into the tables, and uses every means to free space on a full disk.
pub(crate) fn take_in(
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
    tracing::warn!("the disk is full: the store gave up its history; after a start, who watches lists anew");
    Ok(RecordedHistory::Sparingly)
}

/// Makes the names of the files beside `path` durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), JournalError> {
    if let Some(folder) = path.parent() {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}
