//! Files of fetches in progress: they go when they are not kept, and what is written to them is charged before. Refuses to block a task for room.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::ArtifactStore;
use crate::account::{Growing, make_no_room};
use crate::budget::{Held, OverBudget};

/// Bytes that are written at a time.
const BUFFER: usize = 64 << 10;

/// A file of a fetch in progress.
#[derive(Debug)]
pub(crate) struct Incoming {
    file: fs::File,
    path: PathBuf,
    lane: String,
    growing: Option<Growing>,
}

impl Incoming {
    /// A new file, at this path, for a lane.
    pub(super) fn new(file: fs::File, path: PathBuf, lane: &str, growing: Growing) -> Self {
        Self {
            file,
            path,
            lane: lane.to_owned(),
            growing: Some(growing),
        }
    }

    /// Where it is, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, to read from.
    pub(crate) fn file(&self) -> &fs::File {
        &self.file
    }

    /// Another handle of it, which stays readable when the path is gone.
    pub(crate) fn reopen(&self) -> io::Result<fs::File> {
        self.file.try_clone()
    }

    /// How long it is.
    pub(crate) fn length(&self) -> u64 {
        self.file.metadata().map(|metadata| metadata.len()).unwrap_or_default()
    }

    /// The file to write to, on a thread that may block, as far as there is room or older archives make some.
    pub(crate) fn writer<'a>(&'a mut self, store: &'a ArtifactStore) -> BufWriter<Charged<'a>> {
        BufWriter::with_capacity(BUFFER, self.charge(store, true))
    }

    /// The same, for a task, which may not block but for the disk: it waits for room before it writes ([`TaskWrite`]).
    pub(crate) fn task_writer<'a>(&'a mut self, store: &'a ArtifactStore) -> BufWriter<Charged<'a>> {
        BufWriter::with_capacity(BUFFER, self.charge(store, false))
    }

    fn charge<'a>(&'a mut self, store: &'a ArtifactStore, may_block: bool) -> Charged<'a> {
        Charged {
            file: &self.file,
            lane: &self.lane,
            growing: &mut self.growing,
            store,
            may_block,
            ready: 0,
        }
    }

    /// It is written: what was charged and not used is given back.
    pub(crate) fn complete(&mut self) {
        if let Some(growing) = &mut self.growing {
            growing.settle();
        }
    }

    /// Whom it is charged to, and what.
    pub(super) fn settled(mut self) -> (String, Option<Held>) {
        let held = self.growing.take().map(Growing::settled);
        (std::mem::take(&mut self.lane), held)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // After it was kept there is nothing at this path any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file whose bytes are charged as they are written.
pub(crate) struct Charged<'a> {
    file: &'a fs::File,
    lane: &'a str,
    growing: &'a mut Option<Growing>,
    store: &'a ArtifactStore,
    /// Whether whoever writes may block for longer than the disk takes.
    may_block: bool,
    /// Bytes that are charged and not written yet.
    ready: u64,
}

impl Charged<'_> {
    /// Older archives make room where there is none.
    fn make_room(&self, refused: OverBudget) -> io::Result<()> {
        if self.store.make_room(self.lane, &refused) {
            return Ok(());
        }
        Err(make_no_room(refused))
    }
}

impl Write for Charged<'_> {
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

/// Writes of a task, which waits for room first, as blocking would hold up others.
pub(crate) trait TaskWrite: Write {
    /// Waits until there is room for these bytes, if it may come, and writes them.
    async fn write_ready(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl TaskWrite for BufWriter<Charged<'_>> {
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

#[cfg(test)]
impl TaskWrite for Vec<u8> {
    async fn write_ready(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
}
