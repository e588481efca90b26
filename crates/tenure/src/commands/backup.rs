//! `tenure backup` and `tenure restore`: a whole data folder in one file, and back. The file has every object, the keys and the certificates. No existing file or
//! folder is overwritten.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use http_body_util::BodyExt as _;
use tenure_store::backup::{self, BackupError, Decoder, Encoder, Part};
use tenure_store::{Limits, OpenError, Store};
use tokio::sync::mpsc;

use crate::client::open_client;
use crate::failure::{Failure, write_chain};
use crate::output;

/// The folder with keys and certificates, in the data folder and in the file.
const KEYS: &str = "pki";

/// Write a copy of all stored data into one file, whether the control plane runs or not.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to write. It must not exist.
    file: PathBuf,
    /// Data folder, as given to `tenure up`.
    #[arg(long, value_name = "DIR", default_value = "tenure-data")]
    data: PathBuf,
}

/// Create a data folder from a copy.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File that `tenure backup` wrote.
    file: PathBuf,
    /// Data folder to create. It must be empty or missing.
    #[arg(long, value_name = "DIR", default_value = "tenure-data")]
    data: PathBuf,
}

impl Backup {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        if !self.data.join("objects.redb").is_file() {
            return Err(Failure::usage(format!(
                "{} is not a data folder: it has no objects.redb",
                self.data.display()
            ))
            .hint("name the folder that `tenure up` was given with --data DIR"));
        }
        let partial = name_beside(&self.file, "partial");
        let written = self.write(&partial).await;
        let named = written.and_then(|summary| {
            // A hard link fails if the target exists, and a rename would replace it.
            std::fs::hard_link(&partial, &self.file).map_err(|error| fail_at(&self.file, &error))?;
            Ok(summary)
        });
        let _nothing_there = std::fs::remove_file(&partial);
        let summary = named?;
        output::print_line(format!(
            "{}: {} objects at revision {}, {} keys and certificates",
            self.file.display(),
            summary.objects,
            summary.revision,
            summary.files
        ));
        output::print_note(
            "the file holds every Secret and the keys of the control plane: protect it as you protect those",
        );
        Ok(ExitCode::SUCCESS)
    }

    async fn write(&self, partial: &Path) -> Result<backup::Summary, Failure> {
        if self.file.exists() {
            return Err(
                fail_at(&self.file, &std::io::Error::from(std::io::ErrorKind::AlreadyExists))
                    .hint("nothing is overwritten: name another file, or move this one away"),
            );
        }
        let files = read_keys(&self.data)?;
        let out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(partial)
            .map_err(|error| fail_at(partial, &error))?;
        match Store::open(&self.data, Limits::default()) {
            Ok(store) => {
                let mut buffered = BufWriter::new(&out);
                backup::write(&store.snapshot(), &files, &mut buffered)
                    .and_then(|()| buffered.flush())
                    .map_err(|error| fail_at(partial, &error))?;
            }
            Err(OpenError::Locked { .. }) => self.ask(files, &out).await?,
            Err(error) => return Err(Failure::environment(write_chain(&error))),
        }
        out.sync_all().map_err(|error| fail_at(partial, &error))?;
        let again = File::open(partial).map_err(|error| fail_at(partial, &error))?;
        backup::verify_backup(BufReader::new(again)).map_err(|error| Failure::environment(write_chain(&error)))
    }

    /// Requests the copy from the control plane that has the folder open. The copy is of one moment, and the control plane continues meanwhile.
    async fn ask(&self, files: Vec<(String, bytes::Bytes)>, out: &File) -> Result<(), Failure> {
        let kubeconfig = self.data.join("kubeconfig");
        let failure = |text: String| {
            Failure::environment(format!("{}: {text}", kubeconfig.display()))
                .hint("the data folder is in use, so the process that uses it is asked, through this kubeconfig")
        };
        let read = kube::config::Kubeconfig::read_from(&kubeconfig).map_err(|error| failure(write_chain(&error)))?;
        let config = kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
            .await
            .map_err(|error| failure(write_chain(&error)))?;
        let client = open_client(config)?;
        let request = http::Request::get(tenure_apiserver::BACKUP_PATH)
            .body(kube::client::Body::empty())
            .map_err(|error| Failure::internal(error.to_string()))?;
        let answer = client.send(request).await?;
        if !answer.status().is_success() {
            return Err(failure(format!("the control plane answered {}", answer.status())));
        }
        let (sender, receiver) = mpsc::channel(16);
        let out = out.try_clone().map_err(|error| failure(error.to_string()))?;
        let writing = tokio::task::spawn_blocking(move || merge_backup(Pieces::new(receiver), files, out));
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failure(write_chain(&error)))?;
            if let Ok(data) = frame.into_data()
                && sender.send(data).await.is_err()
            {
                break;
            }
        }
        drop(sender);
        writing
            .await
            .map_err(|error| Failure::internal(error.to_string()))?
            .map_err(|error| failure(write_chain(&error)))
    }
}

/// Writes a new copy that includes the files.
fn merge_backup(input: impl Read, files: Vec<(String, bytes::Bytes)>, out: File) -> Result<(), BackupError> {
    let mut decoder = Decoder::new(input)?;
    let mut encoder = Encoder::new(decoder.revision());
    let mut out = BufWriter::new(out);
    for (path, content) in files {
        encoder.add(&Part::File(path, content));
    }
    while let Some(part) = decoder.next_part()? {
        encoder.add(&part);
        if let Some(piece) = encoder.take_piece() {
            out.write_all(&piece)?;
        }
    }
    out.write_all(&encoder.finish())?;
    out.flush()?;
    Ok(())
}

/// A reader over the pieces of an answer.
struct Pieces {
    receiver: mpsc::Receiver<bytes::Bytes>,
    current: bytes::Bytes,
}

impl Pieces {
    fn new(receiver: mpsc::Receiver<bytes::Bytes>) -> Self {
        Self {
            receiver,
            current: bytes::Bytes::new(),
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.current.len());
        let piece = self.current.split_to(length);
        if let Some(into) = into.get_mut(..length) {
            into.copy_from_slice(&piece);
        }
        Ok(length)
    }
}

impl Restore {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let open = || {
            File::open(&self.file)
                .map(BufReader::new)
                .map_err(|error| fail_at(&self.file, &error))
        };
        let refused = |error: BackupError| match error {
            BackupError::NotEmpty(_) => Failure::usage(error.to_string()).hint("nothing is overwritten"),
            BackupError::Io(error) => fail_at(&self.file, &error),
            other => Failure::environment(format!("{}: {}", self.file.display(), write_chain(&other))),
        };
        backup::verify_backup(open()?).map_err(refused)?;
        if std::fs::read_dir(&self.data).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(refused(BackupError::NotEmpty(self.data.clone())));
        }
        let unfinished = name_beside(&self.data, "restoring");
        if unfinished.exists() {
            return Err(Failure::usage(format!("{} exists already", unfinished.display()))
                .hint("it is left from an interrupted restore; delete it"));
        }
        let restored = backup::restore_backup(open()?, &unfinished, |path, content| {
            keep_file(&unfinished, path, content)
        })
        .map_err(refused)
        .and_then(|summary| {
            std::fs::rename(&unfinished, &self.data).map_err(|error| fail_at(&self.data, &error))?;
            Ok(summary)
        });
        if restored.is_err() {
            let _nothing_there = std::fs::remove_dir_all(&unfinished);
        }
        let summary = restored?;
        output::print_line(format!(
            "{}: {} objects as of revision {}, {} keys and certificates",
            self.data.display(),
            summary.objects,
            summary.revision,
            summary.files
        ));
        output::print_line(format!("tenure up --data {}", self.data.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns keys and certificates, by their path below the data folder.
fn read_keys(data: &Path) -> Result<Vec<(String, bytes::Bytes)>, Failure> {
    let folder = data.join(KEYS);
    let mut files = Vec::new();
    let entries = std::fs::read_dir(&folder).map_err(|error| fail_at(&folder, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| fail_at(&folder, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // During a replacement, a certificate's old file still exists.
        if !path.is_file() || name.ends_with(".new") {
            continue;
        }
        let content = std::fs::read(&path).map_err(|error| fail_at(&path, &error))?;
        files.push((format!("{KEYS}/{name}"), content.into()));
    }
    files.sort();
    Ok(files)
}

/// Writes one file of a copy into a data folder, readable by its owner only.
fn keep_file(data: &Path, path: &str, content: &[u8]) -> std::io::Result<()> {
    let mut parts = Path::new(path).components();
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(Component::Normal(folder)), Some(Component::Normal(name)), None) if folder == KEYS => name,
        _ => {
            return Err(std::io::Error::other(format!(
                "the copy has a file {path:?}, which has no place in a data folder"
            )));
        }
    };
    let folder = data.join(KEYS);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(name))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Returns the path with another ending.
fn name_beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn fail_at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::environment(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_files_stay_in_their_folder() {
        let data = tempfile::tempdir().expect("a folder");
        keep_file(data.path(), "pki/ca.crt", b"text").expect("kept");
        for path in [
            "ca.crt", "pki/../x", "../pki/x", "/pki/x", "pki/a/b", "other/x", "pki", "",
        ] {
            assert!(keep_file(data.path(), path, b"text").is_err(), "{path}");
        }
        assert!(
            keep_file(data.path(), "pki/ca.crt", b"again").is_err(),
            "nothing is overwritten"
        );
    }
}
