//! The journal of a store that is open: a log that a write waits for, and the tables behind it, which follow. Owns when
//! the log goes into the tables, and what of it they lack at a start.
//!
//! A commit to the tables writes about as many pages as it changes; one to the log writes one piece. There are two files
//! of the log. When one is full, the other takes its place, and the first goes into the tables as one commit, beside the
//! writes that go on. When the store is closed both are gone: everything is in the tables.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::log::{self, Segment};
use crate::{Journal, JournalError, Loaded, Record, RedbJournal};

/// How long a file of the log is at first: enough for a store that is hardly written to.
const SHORTEST: u64 = 256 << 10;
/// How long it gets, step by step, in a store that is.
const LONGEST: u64 = 8 << 20;
/// The log's files, beside the tables.
const NAMES: [&str; 2] = ["objects-0.log", "objects-1.log"];

/// A log before a [`RedbJournal`].
#[derive(Debug)]
pub struct LoggedJournal {
    paths: [PathBuf; 2],
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not read yet.
    New(RedbJournal),
    Open(Open),
    /// It could not be opened, and nothing can be appended.
    Unusable,
}

#[derive(Debug)]
struct Open {
    identity: u64,
    /// What takes frames; none only while something is on its way.
    current: Option<Segment>,
    /// What is in it, for the tables.
    records: Vec<Record>,
    compacted: Option<u64>,
    /// The last append failed, and something of it may be there.
    unsure: bool,
    other: Other,
    follower: Option<Follower>,
}

/// The segment that takes no frames now.
#[derive(Debug)]
enum Other {
    Ready(Segment),
    /// It is on its way into the tables.
    Going,
    /// It could not be brought into them, and is still needed.
    Stuck(Box<Job>, JournalError),
}

/// A full segment: its records go into the tables, and it is made empty.
#[derive(Debug)]
struct Job {
    records: Vec<Record>,
    compacted: Option<u64>,
    segment: Segment,
    length: u64,
}

type Done = Result<Segment, Box<(Job, JournalError)>>;

/// The thread that the tables belong to.
#[derive(Debug)]
struct Follower {
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Done>,
    thread: std::thread::JoinHandle<()>,
}

impl LoggedJournal {
    /// Opens the tables in the file at `path`, and creates them if there are none; the log is beside them.
    ///
    /// # Errors
    /// When the file can't be opened or is none of ours.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self {
            paths: NAMES.map(|name| path.with_file_name(name)),
            state: State::New(RedbJournal::open(path)?),
        })
    }

    fn start(&self, mut tables: RedbJournal) -> Result<(Loaded, Open), JournalError> {
        let mut loaded = tables.load()?;
        let known = loaded.revision;
        let identity = tables.identity()?;
        let mut frames = Vec::new();
        for path in &self.paths {
            frames.extend(log::read(path, identity, known)?);
        }
        frames.sort_by_key(|frame| frame.first);
        let mut records = Vec::new();
        let missing = frames.into_iter().flat_map(|frame| frame.records);
        for record in missing.filter(|record| record.revision > known) {
            let expected = known + 1 + records.len() as u64;
            if record.revision != expected {
                return Err(JournalError::Damaged(format!(
                    "its log has revision {} and not revision {expected}",
                    record.revision
                )));
            }
            records.push(record);
        }
        // Only what is known to be whole is changed.
        if !records.is_empty() {
            loaded.extend(&mut records);
            tables.append(&records, None)?;
        }
        let identity = match identity {
            Some(identity) => identity,
            None => tables.identify()?,
        };
        let [current, other] = &self.paths;
        let current = Segment::create(current, SHORTEST)?;
        let other = Segment::create(other, 0)?;
        if let Some(folder) = self.paths.first().and_then(|path| path.parent()) {
            std::fs::File::open(folder)?.sync_all()?;
        }
        let mut open = Open {
            identity,
            current: Some(current),
            records: Vec::new(),
            compacted: None,
            unsure: false,
            other: Other::Going,
            follower: Some(Follower::start(tables)?),
        };
        open.send(Job {
            records: Vec::new(),
            compacted: None,
            segment: other,
            length: SHORTEST,
        })?;
        Ok((loaded, open))
    }

    fn opened(&mut self) -> Result<&mut Open, JournalError> {
        match &mut self.state {
            State::Open(open) => Ok(open),
            _ => Err(JournalError::Failed("the log was not read".to_owned())),
        }
    }
}

impl Journal for LoggedJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let State::New(tables) = std::mem::replace(&mut self.state, State::Unusable) else {
            return Err(JournalError::Failed("the log was read already".to_owned()));
        };
        let (loaded, open) = self.start(tables)?;
        self.state = State::Open(open);
        Ok(loaded)
    }

    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        let open = self.opened()?;
        let frame = log::encode(open.identity, records);
        open.make_room(frame.len() as u64)?;
        let segment = open.current.as_mut().ok_or_else(ended)?;
        open.unsure = true;
        segment.append(&frame)?;
        open.unsure = false;
        open.records.extend_from_slice(records);
        open.compacted = compacted.or(open.compacted);
        Ok(())
    }

    fn recover(&mut self, _revision: u64) -> Result<Vec<Record>, JournalError> {
        let open = self.opened()?;
        if open.unsure {
            open.current.as_mut().ok_or_else(ended)?.take_back()?;
            open.unsure = false;
        }
        // What failed has not happened, then.
        Ok(Vec::new())
    }
}

impl Drop for LoggedJournal {
    fn drop(&mut self) {
        if let State::Open(open) = &mut self.state
            && let Err(error) = open.finish()
        {
            tracing::error!(%error, "the log could not be brought into the tables; it is read at the next start");
        }
    }
}

impl Open {
    /// Sees to it that the next frame has a place that can be written to at once, or at least some place.
    fn make_room(&mut self, needed: u64) -> Result<(), JournalError> {
        let used = self.current.as_ref().map_or(0, Segment::used);
        if self.current.as_ref().is_some_and(|current| current.room() >= needed) || used == 0 {
            return Ok(());
        }
        // While the tables are behind, this file grows; not for ever, or they never come after.
        self.look(used >= LONGEST)?;
        if let Other::Stuck(..) = self.other {
            self.retry()?;
        }
        if let Other::Ready(_) = self.other {
            self.change()?;
        }
        Ok(())
    }

    /// The other segment takes over, and the present one goes into the tables.
    fn change(&mut self) -> Result<(), JournalError> {
        match (std::mem::replace(&mut self.other, Other::Going), self.current.take()) {
            (Other::Ready(next), Some(segment)) => {
                let length = (segment.used() * 4).next_power_of_two().clamp(SHORTEST, LONGEST);
                self.current = Some(next);
                let job = Job {
                    records: std::mem::take(&mut self.records),
                    compacted: self.compacted.take(),
                    segment,
                    length,
                };
                self.send(job)
            }
            (other, current) => {
                (self.other, self.current) = (other, current);
                Ok(())
            }
        }
    }

    fn send(&mut self, job: Job) -> Result<(), JournalError> {
        let follower = self.follower.as_ref().ok_or_else(ended)?;
        match follower.jobs.send(job) {
            Ok(()) => {
                self.other = Other::Going;
                Ok(())
            }
            Err(mpsc::SendError(job)) => {
                self.other = Other::Stuck(Box::new(job), ended());
                Err(ended())
            }
        }
    }

    /// Whether the other segment has come through; waits for it if `wait`.
    fn look(&mut self, wait: bool) -> Result<(), JournalError> {
        if !matches!(self.other, Other::Going) {
            return Ok(());
        }
        let follower = self.follower.as_ref().ok_or_else(ended)?;
        let done = if wait {
            follower.done.recv().map_err(|_| ended())?
        } else {
            match follower.done.try_recv() {
                Ok(done) => done,
                Err(mpsc::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::TryRecvError::Disconnected) => return Err(ended()),
            }
        };
        self.other = match done {
            Ok(segment) => Other::Ready(segment),
            Err(failed) => {
                let (job, error) = *failed;
                tracing::error!(%error, "the log could not be brought into the tables");
                Other::Stuck(Box::new(job), error)
            }
        };
        Ok(())
    }

    /// Tries once more what failed, and waits for it.
    fn retry(&mut self) -> Result<(), JournalError> {
        match std::mem::replace(&mut self.other, Other::Going) {
            Other::Stuck(job, _) => {
                self.send(*job)?;
                self.look(true)?;
            }
            other => self.other = other,
        }
        match &self.other {
            Other::Stuck(_, error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Ends, with everything in the tables.
    fn finish(&mut self) -> Result<(), JournalError> {
        let settled = self.settle();
        if let Some(follower) = self.follower.take() {
            drop(follower.jobs);
            // The tables are closed when it has ended.
            let _ = follower.thread.join();
        }
        settled?;
        if let Other::Ready(segment) = std::mem::replace(&mut self.other, Other::Going) {
            segment.remove()?;
        }
        match self.current.take() {
            Some(segment) => segment.remove(),
            None => Ok(()),
        }
    }

    /// Brings everything into the tables.
    fn settle(&mut self) -> Result<(), JournalError> {
        if self.unsure {
            self.current.as_mut().ok_or_else(ended)?.take_back()?;
            self.unsure = false;
        }
        self.look(true)?;
        self.retry()?;
        if !self.records.is_empty() {
            self.change()?;
            self.look(true)?;
            self.retry()?;
        }
        Ok(())
    }
}

fn ended() -> JournalError {
    JournalError::Failed("what keeps the tables has ended".to_owned())
}

impl Follower {
    fn start(mut tables: RedbJournal) -> Result<Self, JournalError> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (answers, done) = mpsc::channel();
        let work = move || {
            for mut job in waiting {
                let answer = match follow(&mut tables, &mut job) {
                    Ok(()) => Ok(job.segment),
                    Err(error) => Err(Box::new((job, error))),
                };
                if answers.send(answer).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("store-tables".to_owned())
            .spawn(work)?;
        Ok(Self { jobs, done, thread })
    }
}

/// The same once more does no harm: it puts the same under the same keys.
fn follow(tables: &mut RedbJournal, job: &mut Job) -> Result<(), JournalError> {
    if !job.records.is_empty() || job.compacted.is_some() {
        tables.append(&job.records, job.compacted).inspect_err(|_| {
            // After an error the tables refuse everything until they are opened anew.
            tables.close();
        })?;
        // Should what follows fail, this is done.
        job.records = Vec::new();
        job.compacted = None;
    }
    job.segment.clear(job.length)
}
