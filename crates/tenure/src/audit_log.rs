//! Reads an API server's audit log line by line, for the writers of objects. The planner interprets the lines. The log is never completely in memory, and lines longer
//! than an event can be are refused.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use structured_merge::ManagedFieldsEntry;
use tenure_api::text::count_of;
use tenure_inspection::ownership::writers::{Address, WriterSearch, Writers};

use crate::failure::Failure;
use crate::output;

/// The longest line: an event repeats the request and the answer, at most 3 MiB each, in the worst case as JSON within JSON.
const LONGEST_LINE: u64 = 16 << 20;
/// The bytes that one read takes from a file.
const AT_ONCE: usize = 1 << 20;

/// Flags of commands that look up the user behind a field manager.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditLog {
    /// File of the API server's audit log, to find the user behind each field manager. Can be repeated for several files.
    #[arg(long = "audit-log", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl AuditLog {
    /// Whether a file is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    /// Reads all files for the search. The call blocks.
    pub(crate) fn read(&self, search: &mut WriterSearch) -> Result<(), Failure> {
        for file in &self.files {
            let fail = |error: std::io::Error| Failure::environment(format!("{}: {error}", file.display()));
            let unreadable = search.count_unreadable();
            let too_long = read_file(file, search).map_err(fail)?;
            let lost = search.count_unreadable() - unreadable + too_long;
            if lost > 0 {
                output::print_note(format!(
                    "{}: skipped {}, which can't be read as events of an audit log",
                    file.display(),
                    count_of(lost, "line")
                ));
            }
        }
        Ok(())
    }
}

/// Reads one file; returns the number of lines that were too long.
fn read_file(path: &Path, search: &mut WriterSearch) -> std::io::Result<usize> {
    let mut reader = BufReader::with_capacity(AT_ONCE, File::open(path)?);
    let (mut line, mut too_long) = (Vec::new(), 0);
    loop {
        line.clear();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(too_long);
        }
        if line.ends_with(b"\n") || (line.len() as u64) < LONGEST_LINE {
            search.read_line(&line);
        } else {
            too_long += 1;
            skip_line(&mut reader)?;
        }
    }
}

fn skip_line(reader: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffered = reader.fill_buf()?;
        let end = buffered.iter().position(|byte| *byte == b'\n');
        let (length, done) = match end {
            Some(end) => (end + 1, true),
            None => (buffered.len(), buffered.is_empty()),
        };
        reader.consume(length);
        if done {
            return Ok(());
        }
    }
}

/// Describes the writers of an entry in words.
pub(crate) fn describe_writers(search: &WriterSearch, address: &Address, entry: &ManagedFieldsEntry) -> String {
    let nobody = Writers::default();
    let writers = search.writers_of(address, entry).unwrap_or(&nobody);
    let list = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" or ");
    let mut text = match writers.at_its_time.len() {
        0 => "not in the log".to_owned(),
        _ => list(&writers.at_its_time),
    };
    let others: std::collections::BTreeSet<String> = writers
        .under_its_name
        .difference(&writers.at_its_time)
        .cloned()
        .collect();
    if !others.is_empty() {
        text.push_str(&format!("; by this name also {}", list(&others)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_line_hides_no_later_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.log");
        let mut text = vec![b'x'; usize::try_from(LONGEST_LINE).expect("a number") + 10];
        text.extend_from_slice(b"\nno event\n{}");
        std::fs::write(&file, text).expect("written");
        let mut search = WriterSearch::default();
        assert_eq!(read_file(&file, &mut search).expect("read"), 1);
        assert_eq!(search.count_unreadable(), 2);
    }
}
