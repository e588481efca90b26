//! The journal of an open store: a log that each write waits for, and the tables behind the log. This module decides
//! when the log goes into the tables, finds the records that the tables lack at a start, and gives space to deletions
//! on a full disk.
//!
//! A commit to the tables writes about as many pages as it changes; a commit to the log writes one piece. The log has
//! two files. When one is full, the other takes its place, and the first goes into the tables as one commit, while
//! writes continue. When the store is closed both are deleted: everything is in the tables.
//!
//! A third file is the *reserve*: when there is no other space, deletions go there. No other write is accepted before
//! the reserve is empty again.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::follower::{Follower, Job, ReserveFiles, sync_folder, write_into_tables};
use crate::log::{self, Expected, SHORTEST, Segment};
use crate::redb_journal::new_identity;
use crate::reserve::Ballast;
use crate::{Journal, JournalError, Loaded, Record, RedbJournal};

/// Largest length of a file of the log, which grows step by step in a busy store.
const LONGEST: u64 = 8 << 20;
/// Free bytes in the log that the store needs to count as writable.
const ORDINARY: u64 = 64 << 10;
/// The log's files, beside the tables.
const NAMES: [&str; 2] = ["objects-0.log", "objects-1.log"];
/// The log file that reserves space for deletions on a full disk.
const RESERVE: &str = "objects-reserve.log";
/// The file whose space the tables get on a full disk.
const BALLAST: &str = "objects.ballast";

/// A [`Journal`] that appends each write to a log, and moves full log files into a [`RedbJournal`].
#[derive(Debug)]
pub struct LoggedJournal {
    path: PathBuf,
    paths: [PathBuf; 2],
    state: State,
}

/// The state of the journal, from its creation to its end.
#[derive(Debug)]
enum State {
    /// The tables are open, and the log was not read yet.
    New(RedbJournal),
    /// The log was read, and appends work.
    Open(Box<Open>),
    /// The journal could not be opened, and appends fail.
    Unusable,
}

/// The log files of an open journal, and the thread that moves them into the tables.
#[derive(Debug)]
struct Open {
    identity: u64,
    /// The segment for new frames; `None` only while the segments are switched.
    current: Option<Segment>,
    /// The records of the current segment and of the reserve, which the tables lack.
    records: Vec<Record>,
    /// The tables may drop their history up to and including this revision with the next job.
    compacted: Option<u64>,
    /// The segment that the last append failed on, and that may contain a part of its frame.
    unsure: Option<FrameDestination>,
    other: OtherSegment,
    /// The log file for deletions on a full disk. `None` before the disk had space for the file, and while the file is
    /// being emptied.
    reserve: Option<Segment>,
    /// Whether the reserve is being emptied into the tables, or that failed. Until the reserve is empty, only deletions
    /// are written.
    reserve_away: bool,
    follower: Option<Follower>,
}

/// The log file into which a frame is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameDestination {
    Current,
    Reserve,
}

/// The second segment, which gets no new frames until the segments are switched.
#[derive(Debug)]
enum OtherSegment {
    /// The segment is empty.
    Ready(Segment),
    /// The segment is being written into the tables.
    BeingWritten,
    /// Writing the segment into the tables failed, so its records are still needed.
    WriteFailed(Box<Job>, JournalError),
}

impl LoggedJournal {
    /// Opens the tables in the file at `path`, and creates a missing file; the log is beside it.
    ///
    /// # Errors
    /// If the file can't be opened or has another format.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self {
            path: path.to_path_buf(),
            paths: NAMES.map(|name| path.with_file_name(name)),
            state: State::New(RedbJournal::open(path)?),
        })
    }

    fn start(&self, mut tables: RedbJournal) -> Result<(Loaded, Open), JournalError> {
        let mut loaded = tables.load()?;
        let identity = tables.identity()?;
        let headed = tables.has_headed_log()?;
        let ballast = Ballast::new(&self.path.with_file_name(BALLAST));
        let reserve = self.path.with_file_name(RESERVE);
        let mut records = self.find_missing_records(
            &reserve,
            Expected {
                identity,
                known: loaded.revision,
                headed,
            },
        )?;
        // The tables are changed only after all files were found intact.
        if !records.is_empty() {
            loaded.extend(&mut records);
            write_into_tables(&mut tables, &ballast, &records, &[], None)?;
        }
        let modern = identity.filter(|_| headed);
        let identity = identity.unwrap_or_else(new_identity);
        let (current, other) = match self.create_segments(identity) {
            Err(JournalError::Full(_)) => {
                // The tables have all records of the old files.
                for path in self.paths.iter().chain([&reserve]) {
                    let _not_there = std::fs::remove_file(path);
                }
                ballast.release_space();
                self.create_segments(identity)?
            }
            segments => segments?,
        };
        let _not_there = std::fs::remove_file(&reserve);
        sync_folder(&self.path)?;
        if modern.is_none() {
            tables.upgrade_format(identity)?;
        }
        let reserve_files = ReserveFiles {
            reserve,
            ballast: self.path.with_file_name(BALLAST),
            identity,
        };
        let mut open = Open {
            identity,
            current: Some(current),
            records: Vec::new(),
            compacted: None,
            unsure: None,
            other: OtherSegment::BeingWritten,
            reserve: None,
            reserve_away: false,
            follower: Some(Follower::start(tables, reserve_files)?),
        };
        open.send_job(Job {
            records: Vec::new(),
            ahead: Vec::new(),
            compacted: None,
            segment: other,
            length: SHORTEST,
            reserve: None,
            make_reserve: true,
        })?;
        Ok((loaded, open))
    }

    fn create_segments(&self, identity: u64) -> Result<(Segment, Segment), JournalError> {
        let [current, other] = &self.paths;
        Ok((
            Segment::create(current, identity, SHORTEST)?,
            Segment::create(other, identity, 0)?,
        ))
    }

    /// Returns the records that are in the log and not in the tables.
    fn find_missing_records(&self, reserve: &Path, expected: Expected) -> Result<Vec<Record>, JournalError> {
        let known = expected.known;
        let mut frames = Vec::new();
        let mut absent = None;
        for path in &self.paths {
            match log::read(path, expected)? {
                Some(read) => frames.extend(read),
                None => absent = path.file_name(),
            }
        }
        frames.extend(log::read(reserve, expected)?.unwrap_or_default());
        frames.sort_by_key(|frame| frame.first);
        let missing = frames.into_iter().flat_map(|frame| frame.records);
        let missing: Vec<Record> = missing.filter(|record| record.revision > known).collect();
        if let (Some(absent), Some(record)) = (absent, missing.last()) {
            // Both files exist from the first write on, and neither is deleted before the tables have everything.
            return Err(JournalError::Damaged(format!(
                "its log {} is missing, and the rest of it goes up to revision {}; put the file back if you have it",
                absent.to_string_lossy(),
                record.revision
            )));
        }
        for (expected, record) in (known + 1..).zip(&missing) {
            if record.revision != expected {
                return Err(JournalError::Damaged(format!(
                    "its log has revision {} and not revision {expected}",
                    record.revision
                )));
            }
        }
        Ok(missing)
    }

    fn require_open(&mut self) -> Result<&mut Open, JournalError> {
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
        self.state = State::Open(Box::new(open));
        Ok(loaded)
    }

    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        let open = self.require_open()?;
        let frame = log::encode(open.identity, records);
        open.make_room(frame.len() as u64)?;
        open.append_frame(FrameDestination::Current, &frame, records)?;
        open.compacted = compacted.or(open.compacted);
        Ok(())
    }

    fn append_from_reserve(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let open = self.require_open()?;
        let frame = log::encode(open.identity, records);
        let place = open.place_without_growing(frame.len() as u64)?;
        open.append_frame(place, &frame, records)
    }

    fn recover(&mut self, _revision: u64) -> Result<Vec<Record>, JournalError> {
        self.require_open()?.take_back()?;
        // A failed write did not happen.
        Ok(Vec::new())
    }

    fn make_ready(&mut self) -> Result<(), JournalError> {
        let open = self.require_open()?;
        open.make_room(ORDINARY)?;
        open.current.as_mut().ok_or_else(make_end_error)?.make_room(ORDINARY)
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
    fn append_frame(&mut self, place: FrameDestination, frame: &[u8], records: &[Record]) -> Result<(), JournalError> {
        self.unsure = Some(place);
        self.segment_at(place).ok_or_else(make_end_error)?.append(frame)?;
        self.unsure = None;
        self.records.extend_from_slice(records);
        Ok(())
    }

    fn segment_at(&mut self, place: FrameDestination) -> Option<&mut Segment> {
        match place {
            FrameDestination::Current => self.current.as_mut(),
            FrameDestination::Reserve => self.reserve.as_mut(),
        }
    }

    /// Removes the remains of a failed append.
    fn take_back(&mut self) -> Result<(), JournalError> {
        if let Some(place) = self.unsure {
            self.segment_at(place).ok_or_else(make_end_error)?.take_back()?;
            self.unsure = None;
        }
        Ok(())
    }

    fn is_reserve_used(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.used_bytes() > 0)
    }

    /// Makes the current segment ready for a frame of `needed` bytes. Switches the segments if the current one is too
    /// full and the other is empty. Otherwise the current one may still have to grow.
    fn make_room(&mut self, needed: u64) -> Result<(), JournalError> {
        let used = self.current.as_ref().map_or(0, Segment::used_bytes);
        let roomy = self
            .current
            .as_ref()
            .is_some_and(|current| current.free_bytes() >= needed)
            || used == 0;
        let reserve_used = self.is_reserve_used();
        if roomy && !reserve_used && !self.reserve_away {
            return Ok(());
        }
        // While the other segment is being written into the tables, the current one grows, up to a limit. At the limit,
        // writes wait for the tables.
        self.receive_other(used >= LONGEST || reserve_used || self.reserve_away)?;
        if let OtherSegment::WriteFailed(..) = self.other {
            self.retry_job()?;
        }
        if let OtherSegment::Ready(_) = self.other
            && (self.is_reserve_used() || !roomy)
        {
            self.switch_segment()?;
        }
        if self.reserve_away {
            self.receive_other(true)?;
        }
        match &self.other {
            OtherSegment::WriteFailed(_, error) if self.reserve_away => Err(error.clone()),
            _ if self.is_reserve_used() => Err(JournalError::Full(
                "the space reserved for deletions is in use; free some disk space, and writes work again once the reserve is empty".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Returns a log file with `needed` free bytes, so that the append needs no more disk space.
    fn place_without_growing(&mut self, needed: u64) -> Result<FrameDestination, JournalError> {
        let has_room =
            |segment: &Option<Segment>| segment.as_ref().is_some_and(|segment| segment.free_bytes() >= needed);
        if has_room(&self.current) {
            return Ok(FrameDestination::Current);
        }
        // The follower thread returns the emptied reserve together with the other segment.
        self.receive_other(self.reserve.is_none())?;
        if has_room(&self.reserve) {
            return Ok(FrameDestination::Reserve);
        }
        self.make_room(needed)?;
        if has_room(&self.current) {
            return Ok(FrameDestination::Current);
        }
        Err(JournalError::Full(
            "the space reserved for deletions is used up".to_owned(),
        ))
    }

    /// Switches to the other segment. The current one goes into the tables, with the records of the reserve.
    fn switch_segment(&mut self) -> Result<(), JournalError> {
        match (
            std::mem::replace(&mut self.other, OtherSegment::BeingWritten),
            self.current.take(),
        ) {
            (OtherSegment::Ready(next), Some(segment)) => {
                let length = (segment.used_bytes() * 4).next_power_of_two().clamp(SHORTEST, LONGEST);
                self.current = Some(next);
                let make_reserve = self.reserve.is_none();
                let reserve = self.reserve.take_if(|reserve| reserve.used_bytes() > 0);
                self.reserve_away = reserve.is_some();
                let job = Job {
                    records: std::mem::take(&mut self.records),
                    ahead: Vec::new(),
                    compacted: self.compacted.take(),
                    segment,
                    length,
                    reserve,
                    make_reserve,
                };
                self.send_job(job)
            }
            (other, current) => {
                (self.other, self.current) = (other, current);
                Ok(())
            }
        }
    }

    fn send_job(&mut self, job: Job) -> Result<(), JournalError> {
        let follower = self.follower.as_ref().ok_or_else(make_end_error)?;
        match follower.jobs.send(job) {
            Ok(()) => {
                self.other = OtherSegment::BeingWritten;
                Ok(())
            }
            Err(mpsc::SendError(job)) => {
                self.other = OtherSegment::WriteFailed(Box::new(job), make_end_error());
                Err(make_end_error())
            }
        }
    }

    /// Receives the other segment from the follower thread, if its records are in the tables. With `wait`, waits for
    /// that.
    fn receive_other(&mut self, wait: bool) -> Result<(), JournalError> {
        if !matches!(self.other, OtherSegment::BeingWritten) {
            return Ok(());
        }
        let follower = self.follower.as_ref().ok_or_else(make_end_error)?;
        let done = if wait {
            follower.done.recv().map_err(|_| make_end_error())?
        } else {
            match follower.done.try_recv() {
                Ok(done) => done,
                Err(mpsc::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::TryRecvError::Disconnected) => return Err(make_end_error()),
            }
        };
        self.other = match done {
            Ok(emptied) => {
                self.reserve = emptied.reserve.or_else(|| self.reserve.take());
                self.reserve_away = false;
                OtherSegment::Ready(emptied.segment)
            }
            Err(failed) => {
                let (job, error) = *failed;
                tracing::error!(%error, "the log could not be brought into the tables");
                OtherSegment::WriteFailed(Box::new(job), error)
            }
        };
        Ok(())
    }

    /// Sends a failed job to the follower thread again, and waits for its result.
    fn retry_job(&mut self) -> Result<(), JournalError> {
        match std::mem::replace(&mut self.other, OtherSegment::BeingWritten) {
            OtherSegment::WriteFailed(mut job, _) => {
                job.ahead.clone_from(&self.records);
                self.send_job(*job)?;
                self.receive_other(true)?;
            }
            other => self.other = other,
        }
        match &self.other {
            OtherSegment::WriteFailed(_, error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Ends the journal after writing everything into the tables.
    fn finish(&mut self) -> Result<(), JournalError> {
        let settled = self.write_all_to_tables();
        if let Some(follower) = self.follower.take() {
            drop(follower.jobs);
            // The thread closes the tables at its end.
            let _ = follower.thread.join();
        }
        settled?;
        if let Some(reserve) = self.reserve.take() {
            reserve.remove()?;
        }
        if let OtherSegment::Ready(segment) = std::mem::replace(&mut self.other, OtherSegment::BeingWritten) {
            segment.remove()?;
        }
        match self.current.take() {
            Some(segment) => segment.remove(),
            None => Ok(()),
        }
    }

    /// Writes everything into the tables.
    fn write_all_to_tables(&mut self) -> Result<(), JournalError> {
        self.take_back()?;
        self.receive_other(true)?;
        self.retry_job()?;
        if !self.records.is_empty() {
            self.switch_segment()?;
            self.receive_other(true)?;
            self.retry_job()?;
        }
        Ok(())
    }
}

fn make_end_error() -> JournalError {
    JournalError::Failed("the thread that owns the tables has ended".to_owned())
}
