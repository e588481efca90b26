//! The file for audit events, one JSON object a line. A large file is rotated: the old file gets the time in its
//! name, and old files are removed by number and by age. A failed write is always reported.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// The destination of events, and how long they are kept.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// The file; `-` for standard output.
    pub path: PathBuf,
    /// The size after which a file is rotated, in megabytes; 0 for 100.
    pub max_size: u64,
    /// How many old files are kept; 0 for all.
    pub max_backups: usize,
    /// How many days old files are kept; 0 for ever.
    pub max_age: u32,
    /// Whether a request is refused if its event can't be written.
    pub strict: bool,
}

const MEGABYTE: u64 = 1024 * 1024;

/// The open destination of audit events, with its rotation.
#[derive(Debug)]
pub(super) struct Log {
    config: LogConfig,
    open: Mutex<Open>,
}

/// The open destination of a log.
#[derive(Debug)]
enum Open {
    /// Standard output.
    Output,
    /// A file with its current size in bytes.
    File { file: File, size: u64 },
}

impl Log {
    /// Opens the file, or creates one that only its owner can read.
    pub(super) fn open(config: LogConfig) -> io::Result<Self> {
        let open = if config.path == Path::new("-") {
            Open::Output
        } else {
            open_for_append(&config.path)?
        };
        Ok(Self {
            config,
            open: Mutex::new(open),
        })
    }

    /// Checks whether a request is refused if its event can't be written.
    pub(super) fn is_strict(&self) -> bool {
        self.config.strict
    }

    /// Writes a line, which includes its line feed.
    pub(super) fn write(&self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let mut open = self.open.lock();
        let length = line.len() as u64;
        if let Open::File { size, .. } = &*open
            && *size > 0
            && *size + length > self.max_bytes()
        {
            *open = self.rotate_file(now)?;
        }
        match &mut *open {
            Open::Output => io::stdout().lock().write_all(line),
            Open::File { file, size } => {
                let before = *size;
                let written = file.write_all(line);
                if written.is_err() {
                    // A partial line would corrupt the next one.
                    let _as_it_was = file.set_len(before);
                    return written;
                }
                *size += length;
                Ok(())
            }
        }
    }

    fn max_bytes(&self) -> u64 {
        match self.config.max_size {
            0 => 100 * MEGABYTE,
            size => size.saturating_mul(MEGABYTE),
        }
    }

    /// Renames the current file, removes files that are too old or too many, and begins a new file.
    fn rotate_file(&self, now: Timestamp) -> io::Result<Open> {
        let path = &self.config.path;
        // Two rotations within a millisecond get different names.
        let mut turned = now;
        while rotated_path(path, turned).exists() {
            turned = turned
                .checked_add(SignedDuration::from_millis(1))
                .map_err(io::Error::other)?;
        }
        std::fs::rename(path, rotated_path(path, turned))?;
        let open = open_for_append(path)?;
        if let Err(error) = self.remove_old_files(now) {
            tracing::warn!(%error, path = %path.display(), "old audit logs could not be removed");
        }
        Ok(open)
    }

    fn remove_old_files(&self, now: Timestamp) -> io::Result<()> {
        let path = &self.config.path;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut old: Vec<(Timestamp, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if let Some(turned) = parse_rotation_time(path, &entry.file_name().to_string_lossy()) {
                old.push((turned, entry.path()));
            }
        }
        old.sort();
        old.reverse();
        let oldest = now
            .checked_sub(SignedDuration::from_hours(24 * i64::from(self.config.max_age)))
            .ok();
        for (index, (turned, path)) in old.iter().enumerate() {
            let too_many = self.config.max_backups > 0 && index >= self.config.max_backups;
            let too_old = self.config.max_age > 0 && oldest.is_some_and(|oldest| *turned < oldest);
            if too_many || too_old {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn open_for_append(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok(Open::File { file, size })
}

/// The time in the name of a rotated file.
const ROTATION_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// Returns the name of a rotated file: `audit-2026-01-02T03-04-05.678.log` for `audit.log`.
fn rotated_path(path: &Path, now: Timestamp) -> PathBuf {
    let (stem, extension) = split_file_name(path);
    let time = now.strftime(ROTATION_TIME);
    path.with_file_name(format!("{stem}-{time}{extension}"))
}

/// Returns the time in the name of a rotated file; `None` for other names.
fn parse_rotation_time(path: &Path, name: &str) -> Option<Timestamp> {
    let (stem, extension) = split_file_name(path);
    let time = name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&extension)?;
    jiff::civil::DateTime::strptime(ROTATION_TIME, time)
        .ok()?
        .to_zoned(jiff::tz::TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
}

fn split_file_name(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    (stem, extension.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: PathBuf) -> LogConfig {
        LogConfig {
            path,
            max_size: 1,
            max_backups: 2,
            max_age: 10,
            strict: false,
        }
    }

    #[test]
    fn full_log_is_rotated_and_expired_logs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = Log::open(config(path.clone())).unwrap();
        let line = format!("{}\n", "x".repeat(400_000));
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for day in 0..12 {
            let now = start + SignedDuration::from_hours(24 * day);
            log.write(line.as_bytes(), now).unwrap();
        }
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "audit-2026-01-09T00-00-00.000.log",
                "audit-2026-01-11T00-00-00.000.log",
                "audit.log"
            ]
        );
        // A file that the log did not create stays, whatever its age.
        std::fs::write(folder.path().join("audit-of-others.log"), "x").unwrap();
        for day in 30..40 {
            log.write(line.as_bytes(), start + SignedDuration::from_hours(24 * day))
                .unwrap();
        }
        assert!(folder.path().join("audit-of-others.log").exists());
        assert!(!folder.path().join("audit-2026-01-11T00-00-00.000.log").exists());
    }

    #[test]
    fn logs_that_are_turned_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let config = LogConfig {
            max_backups: 0,
            ..config(path)
        };
        let log = Log::open(config).unwrap();
        for number in 0..4 {
            let line = format!("{number}{}\n", "x".repeat(1_000_000));
            log.write(line.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        let mut firsts: Vec<u8> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap()[0])
            .collect();
        firsts.sort_unstable();
        assert_eq!(firsts, *b"0123");
    }

    /// The log appends to an existing file. Only the owner can read the file.
    #[test]
    fn reopened_log_keeps_its_lines_and_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for line in ["one\n", "two\n"] {
            Log::open(config(path.clone()))
                .unwrap()
                .write(line.as_bytes(), Timestamp::UNIX_EPOCH)
                .unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Log::open(config(folder.path().join("no/such/folder.log"))).is_err());
    }
}
