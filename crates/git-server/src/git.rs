//! Runs git, in an environment without any setting of the user. Only this module starts git.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::error::GitServerError;

/// The path of git, or its name if no folder of `PATH` has it. With a path, a process starts without a copy of this process' page tables. The standard library needs that
/// copy to look for a name in the `PATH` of a cleared environment, and it takes longer than many a git command.
static GIT: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("git"));
    let found = programs.find(|program| program.is_absolute() && program.is_file());
    found.unwrap_or_else(|| PathBuf::from("git"))
});

/// Makes a git command that reads only the repository's own configuration, asks nothing and has a fixed identity.
pub(crate) fn git_command(home: &Path) -> Command {
    let mut command = Command::new(GIT.as_path());
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Tenure")
        .env("GIT_AUTHOR_EMAIL", "git@tenure.invalid")
        .env("GIT_COMMITTER_NAME", "Tenure")
        .env("GIT_COMMITTER_EMAIL", "git@tenure.invalid")
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .current_dir(home)
        .kill_on_drop(true);
    command
}

/// Runs git in a repository with this input and returns its output.
pub(crate) async fn run<I, A>(repository: &Path, arguments: I, input: &[u8]) -> Result<Vec<u8>, GitServerError>
where
    I: IntoIterator<Item = A>,
    A: AsRef<OsStr>,
{
    let mut command = git_command(repository);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let name = command
        .as_std()
        .get_args()
        .next()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut child = command.spawn().map_err(GitServerError::Spawn)?;
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // If git stops reading, its exit status says why.
            let _ = stdin.write_all(input).await;
        }
    };
    let (_, output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(GitServerError::Spawn)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(GitServerError::Git { command: name, message })
    }
}
