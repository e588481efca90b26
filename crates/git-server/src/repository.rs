//! A bare repository and the commits written into it.
//!
//! Commits are written without a working tree, through `git fast-import`. Paths that git would refuse are refused.

use std::path::{Path, PathBuf};

use crate::error::GitServerError;
use crate::git;

/// A bare repository of a server. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    name: String,
    folder: PathBuf,
}

/// The content that a commit writes at a path, or the removal of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    File(Vec<u8>),
    /// An executable file.
    Executable(Vec<u8>),
    /// A symbolic link with this target.
    Link(String),
    /// A submodule at this commit.
    Submodule(String),
    /// No content: the file or folder is removed.
    Removed,
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::File(text.as_bytes().to_vec())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::File(text.into_bytes())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::File(bytes)
    }
}

impl Repository {
    pub(crate) fn new(name: String, folder: PathBuf) -> Self {
        Self { name, folder }
    }

    /// Returns the name in URLs, without `.git`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bare repository's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Commits these changes onto `main`, which is created if missing, and returns the commit's id in hex.
    ///
    /// # Errors
    /// [`GitServerError::InvalidPath`], or an error of git.
    pub async fn commit<P, C>(
        &self,
        changes: impl IntoIterator<Item = (P, C)>,
        message: &str,
    ) -> Result<String, GitServerError>
    where
        P: AsRef<str>,
        C: Into<Content>,
    {
        self.commit_on("main", changes, message).await
    }

    /// Commits these changes onto a branch, which is created without a parent if missing, and returns the commit's id in hex.
    ///
    /// # Errors
    /// [`GitServerError::InvalidPath`], or an error of git.
    pub async fn commit_on<P, C>(
        &self,
        branch: &str,
        changes: impl IntoIterator<Item = (P, C)>,
        message: &str,
    ) -> Result<String, GitServerError>
    where
        P: AsRef<str>,
        C: Into<Content>,
    {
        let reference = format!("refs/heads/{branch}");
        self.run_git(["check-ref-format", reference.as_str()]).await?;
        let mut script = Vec::new();
        script.extend_from_slice(format!("commit {reference}\n").as_bytes());
        script.extend_from_slice(b"committer Tenure <git@tenure.invalid> now\n");
        write_data(&mut script, message.as_bytes());
        if self.resolve(&reference).await?.is_some() {
            script.extend_from_slice(format!("from {reference}^0\n").as_bytes());
        }
        for (path, content) in changes {
            write_change(&mut script, path.as_ref(), &content.into())?;
        }
        let arguments = ["fast-import", "--quiet", "--date-format=now"];
        git::run(&self.folder, arguments, &script).await?;
        self.resolve(&reference).await?.ok_or_else(|| GitServerError::Git {
            command: "fast-import".to_owned(),
            message: format!("{reference} was not made"),
        })
    }

    /// Commits every file and link of a folder (except `.git`) onto `main` and returns the commit's id in hex.
    ///
    /// # Errors
    /// [`GitServerError::Io`] when the folder can't be read, or an error of git.
    pub async fn import(&self, folder: &Path, message: &str) -> Result<String, GitServerError> {
        self.commit(read_folder(folder)?, message).await
    }

    /// Makes `main` equal to the content of a folder. Returns the new commit; `None` if `main` was equal already.
    pub(crate) async fn commit_whole(&self, folder: &Path, message: &str) -> Result<Option<String>, GitServerError> {
        let next = "refs/heads/next";
        let mut script = Vec::new();
        script.extend_from_slice(format!("reset {next}\ncommit {next}\n").as_bytes());
        script.extend_from_slice(b"committer Tenure <git@tenure.invalid> now\n");
        write_data(&mut script, message.as_bytes());
        let main = self.resolve(MAIN).await?;
        if main.is_some() {
            script.extend_from_slice(format!("from {MAIN}^0\n").as_bytes());
        }
        script.extend_from_slice(b"deleteall\n");
        for (path, content) in read_folder(folder)? {
            write_change(&mut script, &path, &content)?;
        }
        git::run(
            &self.folder,
            ["fast-import", "--quiet", "--force", "--date-format=now"],
            &script,
        )
        .await?;
        let new = self.resolve(next).await?;
        let is_new = match (&main, &new) {
            (Some(_), Some(_)) => self.tree_of(MAIN).await? != self.tree_of(next).await?,
            _ => true,
        };
        if let Some(new) = new.as_ref().filter(|_| is_new) {
            self.set_reference(MAIN, new).await?;
        }
        self.run_git(["update-ref", "-d", next]).await?;
        Ok(new.filter(|_| is_new))
    }

    /// Moves `main` to the HEAD of another local repository. Returns the commit if it is new.
    pub(crate) async fn fetch_head_of(&self, other: &Path) -> Result<Option<String>, GitServerError> {
        let before = self.resolve(MAIN).await?;
        // Git needs an absolute path or a scheme, or else reads the text as the name of a remote.
        let other = std::path::absolute(other).map_err(|source| GitServerError::Io {
            action: "find",
            path: other.to_path_buf(),
            source,
        })?;
        let other = other.to_string_lossy();
        let head = format!("+HEAD:{MAIN}");
        self.run_git([
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--",
            &other,
            &head,
        ])
        .await?;
        let after = self.resolve(MAIN).await?;
        let new = after.filter(|after| before.as_ref() != Some(after));
        if new.is_some() {
            self.link_large_files(Path::new(other.as_ref())).await?;
        }
        Ok(new)
    }

    /// Writes a file into this repository that says where another local repository has its contents of large files.
    async fn link_large_files(&self, other: &Path) -> Result<(), GitServerError> {
        let arguments = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let common = git::run(other, arguments, &[]).await?;
        let common = String::from_utf8_lossy(&common);
        let path = self.folder.join(LARGE_FILES_OF);
        let written = std::fs::write(&path, format!("{}/lfs/objects", common.trim_end()));
        written.map_err(|source| GitServerError::Io {
            action: "write",
            path,
            source,
        })
    }

    /// Returns the id of a reference's tree, as git prints it.
    async fn tree_of(&self, reference: &str) -> Result<Vec<u8>, GitServerError> {
        self.run_git(["rev-parse", &format!("{reference}^{{tree}}")]).await
    }

    /// Creates or moves a lightweight tag.
    ///
    /// # Errors
    /// An error of git.
    pub async fn tag(&self, tag: &str, commit: &str) -> Result<(), GitServerError> {
        self.run_git(["tag", "--force", "--no-sign", "--", tag, commit])
            .await
            .map(drop)
    }

    /// Creates or moves an annotated tag.
    ///
    /// # Errors
    /// An error of git.
    pub async fn annotated_tag(&self, tag: &str, commit: &str, message: &str) -> Result<(), GitServerError> {
        self.run_git([
            "tag",
            "--force",
            "--no-sign",
            "--annotate",
            "-m",
            message,
            "--",
            tag,
            commit,
        ])
        .await
        .map(drop)
    }

    /// Creates or moves any reference, by its full name.
    ///
    /// # Errors
    /// An error of git.
    pub async fn set_reference(&self, reference: &str, commit: &str) -> Result<(), GitServerError> {
        self.run_git(["update-ref", reference, commit]).await.map(drop)
    }

    /// Returns the commit of a reference or other revision, in hex; `None` if it does not exist.
    ///
    /// # Errors
    /// [`GitServerError::Spawn`] when git can't be run.
    pub async fn resolve(&self, revision: &str) -> Result<Option<String>, GitServerError> {
        let revision = format!("{revision}^{{commit}}");
        match self
            .run_git([
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                revision.as_str(),
            ])
            .await
        {
            Ok(output) => Ok(Some(String::from_utf8_lossy(&output).trim().to_owned())),
            Err(GitServerError::Git { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file at the tip of a branch.
    ///
    /// # Errors
    /// An error of git, for instance that the file does not exist.
    pub async fn read(&self, branch: &str, path: &str) -> Result<Vec<u8>, GitServerError> {
        self.run_git(["cat-file", "blob", &format!("refs/heads/{branch}:{path}")])
            .await
    }

    /// Sets a key of the repository's own configuration.
    ///
    /// # Errors
    /// An error of git.
    pub async fn configure(&self, key: &str, value: &str) -> Result<(), GitServerError> {
        self.run_git(["config", "--local", key, value]).await.map(drop)
    }

    /// Lists all references with their objects.
    pub(crate) async fn references(&self) -> Result<Vec<(String, String)>, GitServerError> {
        let output = self
            .run_git(["for-each-ref", "--format=%(refname) %(objectname)"])
            .await?;
        let text = String::from_utf8_lossy(&output);
        Ok(text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect())
    }

    async fn run_git<const N: usize>(&self, arguments: [&str; N]) -> Result<Vec<u8>, GitServerError> {
        git::run(&self.folder, arguments, &[]).await
    }
}

/// The file with the path of another folder of large files.
pub(crate) const LARGE_FILES_OF: &str = "large-files-of";
/// The default branch of each repository.
const MAIN: &str = "refs/heads/main";

/// Reads all files and links of a folder, except `.git`, with their paths in it.
fn read_folder(folder: &Path) -> Result<Vec<(String, Content)>, GitServerError> {
    let mut changes = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let read = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| GitServerError::Io { action, path, source }
        };
        for entry in std::fs::read_dir(&folder).map_err(read("list", &folder))? {
            let entry = entry.map_err(read("list", &folder))?;
            let path = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(GitServerError::InvalidPath(name.to_string_lossy().into_owned()));
            };
            if name == ".git" {
                continue;
            }
            let inside = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(read("read", &path))?;
            if kind.is_dir() {
                folders.push((path, format!("{inside}/")));
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).map_err(read("read", &path))?;
                changes.push((inside, Content::Link(target.to_string_lossy().into_owned())));
            } else if kind.is_file() {
                let content = std::fs::read(&path).map_err(read("read", &path))?;
                changes.push((inside, Content::File(content)));
            }
        }
    }
    Ok(changes)
}

fn write_data(script: &mut Vec<u8>, bytes: &[u8]) {
    script.extend_from_slice(format!("data {}\n", bytes.len()).as_bytes());
    script.extend_from_slice(bytes);
    script.push(b'\n');
}

fn write_change(script: &mut Vec<u8>, path: &str, content: &Content) -> Result<(), GitServerError> {
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.eq_ignore_ascii_case(".git");
    if path.contains('\0') || path.split('/').any(bad) {
        return Err(GitServerError::InvalidPath(path.to_owned()));
    }
    let mut quoted = String::from("\"");
    for c in path.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    let (mode, bytes) = match content {
        Content::File(bytes) => ("100644", bytes.as_slice()),
        Content::Executable(bytes) => ("100755", bytes.as_slice()),
        Content::Link(target) => ("120000", target.as_bytes()),
        Content::Submodule(commit) => {
            if commit.len() != 40 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(GitServerError::InvalidPath(path.to_owned()));
            }
            script.extend_from_slice(format!("M 160000 {commit} {quoted}\n").as_bytes());
            return Ok(());
        }
        Content::Removed => {
            script.extend_from_slice(format!("D {quoted}\n").as_bytes());
            return Ok(());
        }
    };
    script.extend_from_slice(format!("M {mode} inline {quoted}\n").as_bytes());
    write_data(script, bytes);
    Ok(())
}
