//! Opens files below a folder in which another user writes: part by part, without following links, and only regular files. The content of such a
//! folder is not trusted: the reader of a file verifies it.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Opens an archive below a folder for artifacts, if it exists.
pub(crate) async fn open_archive(folder: PathBuf, archive: PathBuf) -> Option<File> {
    let opening = tokio::task::spawn_blocking(move || open_beneath(&folder, &archive).ok());
    opening.await.ok().flatten()
}

/// Opens a file below a folder for reading. No link leads out of the folder, and nothing blocks.
pub(crate) fn open_beneath(folder: &Path, relative: &Path) -> io::Result<File> {
    let odd = || io::Error::from(io::ErrorKind::InvalidInput);
    let parts: PathBuf = relative
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let (above, last) = match (parts == relative, parts.parent(), parts.file_name()) {
        (true, Some(above), Some(last)) => (above, last),
        _ => return Err(odd()),
    };
    let way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(folder, way, Mode::empty())?;
    for part in above {
        at = rustix::fs::openat(&at, part, way | OFlags::NOFOLLOW, Mode::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&at, last, flags, Mode::empty())?);
    // A pipe or a device is no archive.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(odd())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn lane_folder_opens_only_its_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        let (lane, outside) = (folder.path().join("lane"), folder.path().join("outside"));
        std::fs::create_dir_all(lane.join("store/a")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("token"), "sesame").unwrap();
        std::fs::write(lane.join("store/a/archive"), "content").unwrap();
        let open = |relative: &str| {
            open_beneath(&lane, Path::new(relative)).map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            })
        };
        assert_eq!(open("store/a/archive").unwrap(), "content");
        // Objects that a lane could put there instead: a link to a file, a link to a folder on the way, a pipe, a folder.
        symlink(outside.join("token"), lane.join("store/a/link")).unwrap();
        symlink(&outside, lane.join("store/away")).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(lane.join("store/a/pipe"))
            .status();
        assert!(pipe.unwrap().success());
        for odd in [
            "store/a/link",
            "store/away/token",
            "store/a/pipe",
            "store/a",
            "../outside/token",
            "/etc/passwd",
            "",
        ] {
            assert!(open(odd).is_err(), "{odd}");
        }
        // The control: without this protection the file is read.
        assert_eq!(std::fs::read_to_string(lane.join("store/a/link")).unwrap(), "sesame");
    }
}
