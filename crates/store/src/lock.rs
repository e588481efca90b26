//! The lock file of a data directory: two processes never have one store open.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::OpenError;

/// The lock of an open store. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    /// Releases the lock. Closing the file is not enough: a child process holds a copy of the file until it runs its
    /// program.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the lock of a data directory could not be released; it stays until the lock file is closed");
        }
    }
}

impl DirectoryLock {
    pub(crate) fn acquire(directory: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Directory {
            path: directory.to_path_buf(),
            source,
        };
        crate::store::make_folder_private(directory).map_err(failed)?;
        let path = directory.join("lock");
        crate::store::make_file_private(&path).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Without the process number the message is still correct.
                let _ = file.read_to_string(&mut text);
                let holder = match text.trim().parse::<u32>() {
                    Ok(pid) => format!("process {pid}"),
                    Err(_) => "another process".to_owned(),
                };
                return Err(OpenError::Locked {
                    path: directory.to_path_buf(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Locking must also work on a full disk, so an error of this write is ignored.
        let _ = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(Self { file })
    }
}
