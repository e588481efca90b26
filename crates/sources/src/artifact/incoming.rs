//! Files of fetches in progress. A file is removed unless the store keeps it, and its bytes are charged before they are written. A task never blocks to wait for
//! capacity.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::ArtifactStore;
use crate::budget::{HeldBytes, OverBudget};
use crate::fetch_budgets::{GrowingCharge, make_budget_error};

/// Bytes that are written at a time.
const BUFFER: usize = 64 << 10;

/// A file that a fetch is writing, with its bytes charged to a lane. The file is removed on drop, unless the store has moved it to its place.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    file: fs::File,
    path: PathBuf,
    lane: String,
    growing: Option<GrowingCharge>,
}

impl IncomingFile {
    /// Creates the guard of a new file at this path, for a lane.
    pub(super) fn new(file: fs::File, path: PathBuf, lane: &str, growing: GrowingCharge) -> Self {
        Self {
            file,
            path,
            lane: lane.to_owned(),
            growing: Some(growing),
        }
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file, to read from.
    pub(crate) fn file(&self) -> &fs::File {
        &self.file
    }

    /// Returns another handle of the file, which stays readable after the path is removed.
    pub(crate) fn reopen(&self) -> io::Result<fs::File> {
        self.file.try_clone()
    }

    /// Returns the length of the file.
    pub(crate) fn length(&self) -> u64 {
        self.file.metadata().map(|metadata| metadata.len()).unwrap_or_default()
    }

    /// Returns a writer for a thread that may block. If the budget is full, older archives are removed to make capacity.
    pub(crate) fn writer<'a>(&'a mut self, store: &'a ArtifactStore) -> BufWriter<ChargedFile<'a>> {
        BufWriter::with_capacity(BUFFER, self.charged_file(store, true))
    }

    /// Returns a writer for a task, which may block for the disk only: the task waits for capacity before it writes ([`TaskWrite`]).
    pub(crate) fn task_writer<'a>(&'a mut self, store: &'a ArtifactStore) -> BufWriter<ChargedFile<'a>> {
        BufWriter::with_capacity(BUFFER, self.charged_file(store, false))
    }

    /// Returns the unbuffered writer of the file.
    fn charged_file<'a>(&'a mut self, store: &'a ArtifactStore, may_block: bool) -> ChargedFile<'a> {
        ChargedFile {
            file: &self.file,
            lane: &self.lane,
            growing: &mut self.growing,
            store,
            may_block,
            ready: 0,
        }
    }

    /// Ends the writing: releases the bytes that were charged and not used.
    pub(crate) fn complete(&mut self) {
        if let Some(growing) = &mut self.growing {
            growing.release_unused();
        }
    }

    /// Returns the lane that is charged, and the charge.
    pub(super) fn into_charge(mut self) -> (String, Option<HeldBytes>) {
        let held = self.growing.take().map(GrowingCharge::into_used);
        (std::mem::take(&mut self.lane), held)
    }
}

impl Drop for IncomingFile {
    fn drop(&mut self) {
        // After the store has kept the file, nothing exists at this path.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file whose bytes are charged as they are written.
pub(crate) struct ChargedFile<'a> {
    file: &'a fs::File,
    lane: &'a str,
    growing: &'a mut Option<GrowingCharge>,
    store: &'a ArtifactStore,
    /// Whether the writer may block for longer than the disk takes.
    may_block: bool,
    /// Bytes that are charged and not yet written.
    ready: u64,
}

impl ChargedFile<'_> {
    /// Removes older archives to make capacity.
    fn make_room(&self, refused: OverBudget) -> io::Result<()> {
        if self.store.make_room(self.lane, &refused) {
            return Ok(());
        }
        Err(make_budget_error(refused))
    }
}

impl Write for ChargedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        let lacking = length.saturating_sub(self.ready);
        if lacking > 0 {
            while let Some(growing) = self.growing.as_mut() {
                let added = if self.may_block {
                    growing.add_blocking(lacking)
                } else {
                    growing.add_now(lacking)
                };
                match added {
                    Ok(()) => break,
                    Err(refused) => self.make_room(refused)?,
                }
            }
        }
        self.ready = self.ready.max(length);
        let written = self.file.write(bytes)?;
        self.ready = self.ready.saturating_sub(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A writer for async tasks. It awaits capacity of the budget before it writes, because blocking would delay other tasks.
pub(crate) trait TaskWrite: Write {
    /// Waits until the budget has capacity for these bytes, then writes them. Fails if the budget can't get capacity.
    async fn write_ready(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl TaskWrite for BufWriter<ChargedFile<'_>> {
    async fn write_ready(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (charged, length) = (self.get_mut(), bytes.len() as u64);
        while let Some(growing) = charged.growing.as_mut() {
            match growing.add(length).await {
                Ok(()) => break,
                Err(refused) => charged.make_room(refused)?,
            }
        }
        charged.ready = charged.ready.saturating_add(length);
        self.write_all(bytes)
    }
}

#[cfg(any(test, fuzzing))]
impl TaskWrite for Vec<u8> {
    async fn write_ready(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
}
