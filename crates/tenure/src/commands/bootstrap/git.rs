//! The branch of the repository, by `git` of this machine in a temporary folder without a work tree. So no link of the repository leads a write elsewhere. git reads no
//! configuration of the user and no variable of theirs, except those for proxies and the ssh-agent.
//!
//! A password goes to git in an environment variable of its process, which only this user can read. It is in no argument, no file and no message.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use tenure_api::text::visible_line;
use tenure_inspection::bootstrap::{
    Commit, EntryKind, Folder, PushOutcome, RepositoryFacts, list_needed_files, read_push,
};
use tenure_sources::{RemoteUrl, SecretBytes};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::credential::{PushCredential, read_url};
use crate::failure::Failure;

/// The reference that has the fetched commit.
const FETCHED: &str = "refs/heads/fetched";
/// The most bytes of a file whose content the plan needs.
const LARGEST: u64 = 16 << 20;
/// The most files whose contents the plan needs. Most of them are links.
const MOST_FILES: usize = 5_000;
/// The variables of the user that git gets.
const PASSED: [&str; 8] = [
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSH_AUTH_SOCK",
];

/// A push that did not succeed.
pub(super) enum PushFailure {
    /// The branch moved: another writer pushed.
    Moved,
    /// The server or git refused.
    Refused(Failure),
}

/// A branch of a remote repository.
pub(super) struct Branch {
    folder: tempfile::TempDir,
    url: String,
    shown_url: RemoteUrl,
    branch: String,
    environment: Vec<(String, OsString)>,
    /// Texts that no message may contain.
    secrets: Vec<SecretBytes>,
    timeout: Duration,
}

/// The outputs of a git command.
struct Output {
    is_done: bool,
    stdout: Vec<u8>,
    stderr: String,
}

impl Branch {
    /// Makes the temporary folder. Nothing is sent yet.
    pub(super) async fn open(
        (url, branch): (&str, &str),
        credential: &PushCredential,
        known_hosts: Option<&str>,
        ca_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let shown_url = read_url("--url", url)?;
        // The folder has mode 0700.
        let folder = tempfile::Builder::new().prefix("tenure-bootstrap-").tempdir();
        let folder = folder.map_err(|error| Failure::environment(format!("no temporary folder: {error}")))?;
        let scheme = shown_url.endpoint().scheme.as_str();
        let mut settings = vec![
            ("protocol.allow".to_owned(), "never".to_owned()),
            (format!("protocol.{scheme}.allow"), "always".to_owned()),
            ("http.followRedirects".to_owned(), "false".to_owned()),
            ("credential.helper".to_owned(), String::new()),
            ("core.hooksPath".to_owned(), "/dev/null".to_owned()),
        ];
        if let Some(file) = ca_file {
            let file = std::fs::canonicalize(file).map_err(|error| Failure::usage(format!("--ca-file: {error}")))?;
            settings.push(("http.sslCAInfo".to_owned(), file.display().to_string()));
        }
        let mut environment = Vec::new();
        let mut secrets = Vec::new();
        match credential {
            PushCredential::Nothing => {}
            PushCredential::Password { username, password } => {
                let pair = SecretBytes::new(format!("{username}:{}", password.reveal()));
                let header = SecretBytes::new(base64::engine::general_purpose::STANDARD.encode(pair.reveal()));
                let key = format!("http.{}/.extraHeader", shown_url.endpoint());
                settings.push((key, format!("Authorization: Basic {}", header.reveal())));
                secrets.extend([header, password.clone()]);
            }
            PushCredential::Key(file) => {
                let hosts = folder.path().join("known_hosts");
                let written = std::fs::write(&hosts, known_hosts.unwrap_or_default());
                written.map_err(|error| Failure::environment(format!("{}: {error}", hosts.display())))?;
                environment.push(("GIT_SSH_COMMAND".to_owned(), write_ssh(&hosts, file.as_deref()).into()));
                environment.push(("GIT_SSH_VARIANT".to_owned(), "ssh".into()));
            }
        }
        environment.push(("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string().into()));
        for (number, (key, value)) in settings.into_iter().enumerate() {
            environment.push((format!("GIT_CONFIG_KEY_{number}"), key.into()));
            environment.push((format!("GIT_CONFIG_VALUE_{number}"), value.into()));
        }
        let opened = Self {
            folder,
            url: url.to_owned(),
            shown_url,
            branch: branch.to_owned(),
            environment,
            secrets,
            timeout,
        };
        let allowed = opened.run(&["check-ref-format", "--branch", branch], b"", &[]).await?;
        if !allowed.is_done {
            return Err(Failure::usage(format!("--branch {branch:?}: git allows no such name")));
        }
        opened
            .check(&["init", "--quiet", "--bare", "--template=", "."], b"")
            .await?;
        Ok(opened)
    }

    /// Returns the address without credentials.
    pub(super) fn name(&self) -> String {
        self.shown_url.to_string()
    }

    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Returns the commit of the branch at the server; `None` in a repository without branches.
    pub(super) async fn find_head(&self) -> Result<Option<String>, Failure> {
        let listed = self.check(&["ls-remote", "--heads", "--", &self.url], b"").await?;
        let listed = String::from_utf8_lossy(&listed);
        let heads: BTreeMap<&str, &str> = listed
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(commit, name)| (name, commit))
            .collect();
        match heads.get(self.reference().as_str()) {
            Some(commit) => Ok(Some((*commit).to_owned())),
            None if heads.is_empty() => Ok(None),
            None => {
                let names = heads.keys().filter_map(|name| name.strip_prefix("refs/heads/"));
                let names = names.take(5).collect::<Vec<_>>().join(", ");
                Err(
                    Failure::negative(format!("{} has no branch {}", self.name(), self.branch)).hint(
                        visible_line(&format!(
                            "it has {names}; name one with --branch, or make the branch first"
                        ))
                        .into_owned(),
                    ),
                )
            }
        }
    }

    /// Fetches the tip of the branch, and returns its entries and the contents that the plan needs.
    pub(super) async fn fetch(&mut self, folder: &Folder) -> Result<RepositoryFacts, Failure> {
        if self.find_head().await?.is_none() {
            return Ok(RepositoryFacts::default());
        }
        let refspec = format!("+{}:{FETCHED}", self.reference());
        let arguments = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-write-fetch-head",
            "--",
            &self.url,
            &refspec,
        ];
        self.check(&arguments, b"").await?;
        let head = self
            .check(&["rev-parse", "--verify", &format!("{FETCHED}^{{commit}}")], b"")
            .await?;
        let head = String::from_utf8_lossy(&head).trim().to_owned();
        let listed = self
            .check(&["ls-tree", "-r", "-l", "-z", "--full-tree", &head], b"")
            .await?;
        let mut facts = RepositoryFacts {
            head: Some(head),
            ..RepositoryFacts::default()
        };
        let mut blobs = BTreeMap::new();
        for entry in String::from_utf8_lossy(&listed).split('\0') {
            let Some((about, path)) = entry.split_once('\t') else {
                continue;
            };
            let words: Vec<&str> = about.split_whitespace().collect();
            let &[mode, _, object, size] = words.as_slice() else {
                continue;
            };
            let kind = match mode {
                "120000" => EntryKind::Link,
                "160000" => EntryKind::Submodule,
                _ => EntryKind::File,
            };
            facts.entries.insert(path.to_owned(), kind);
            if size.parse().is_ok_and(|size: u64| size <= LARGEST) {
                blobs.insert(path.to_owned(), object.to_owned());
            }
        }
        let needed = list_needed_files(&facts.entries, folder);
        if needed.len() > MOST_FILES {
            return Err(
                Failure::negative(format!("{} has more than {MOST_FILES} symbolic links", self.name()))
                    .hint("use a repository of its own for the platform"),
            );
        }
        for path in needed {
            let Some(object) = blobs.get(&path) else { continue };
            let content = self.check(&["cat-file", "blob", object], b"").await?;
            if let Ok(text) = String::from_utf8(content) {
                facts.texts.insert(path, text);
            }
        }
        Ok(facts)
    }

    /// Adds the commits to the branch, in one push, and returns the last one.
    pub(super) async fn push(
        &mut self,
        parent: Option<&str>,
        commits: &[Commit],
        author: (&str, &str),
    ) -> Result<String, PushFailure> {
        let head = self
            .write_commits(parent, commits, author)
            .await
            .map_err(PushFailure::Refused)?;
        let refspec = format!("{head}:{}", self.reference());
        let arguments = ["push", "--porcelain", "--no-verify", "--", &self.url, &refspec];
        let pushed = self.run(&arguments, b"", &[]).await.map_err(PushFailure::Refused)?;
        if pushed.is_done {
            return Ok(head);
        }
        let stdout = self.redact(&String::from_utf8_lossy(&pushed.stdout));
        Err(match read_push(&stdout, &pushed.stderr) {
            PushOutcome::Moved => PushFailure::Moved,
            PushOutcome::Protected(words) => PushFailure::Refused(
                Failure::negative(format!("{} refuses commits on {}: {words}", self.name(), self.branch)).hint(
                    "the branch may be protected: let your credential push to it, or name another branch with --branch",
                ),
            ),
            PushOutcome::Failed(words) => PushFailure::Refused(self.explain(&words)),
        })
    }

    async fn write_commits(
        &self,
        parent: Option<&str>,
        commits: &[Commit],
        (name, email): (&str, &str),
    ) -> Result<String, Failure> {
        let index = [("GIT_INDEX_FILE", OsString::from(self.folder.path().join("next-index")))];
        let people: Vec<(&str, OsString)> = [
            ("GIT_AUTHOR_NAME", name),
            ("GIT_AUTHOR_EMAIL", email),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_COMMITTER_EMAIL", email),
        ]
        .map(|(key, value)| (key, OsString::from(value)))
        .into();
        let mut parent = parent.map(str::to_owned);
        self.check_with(&["read-tree", parent.as_deref().unwrap_or("--empty")], b"", &index)
            .await?;
        for commit in commits {
            for (path, text) in &commit.files {
                let object = self.check(&["hash-object", "-w", "--stdin"], text.as_bytes()).await?;
                let entry = format!("100644,{},{path}", String::from_utf8_lossy(&object).trim());
                self.check_with(&["update-index", "--add", "--cacheinfo", &entry], b"", &index)
                    .await?;
            }
            let tree = self.check_with(&["write-tree"], b"", &index).await?;
            let tree = String::from_utf8_lossy(&tree).trim().to_owned();
            let mut arguments = vec!["commit-tree", &tree, "-F", "-"];
            if let Some(parent) = &parent {
                arguments.extend(["-p", parent]);
            }
            let made = self.check_with(&arguments, commit.message.as_bytes(), &people).await?;
            parent = Some(String::from_utf8_lossy(&made).trim().to_owned());
        }
        parent.ok_or_else(|| Failure::internal("a push without commits"))
    }

    async fn check(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
        self.check_with(arguments, input, &[]).await
    }

    /// Runs git, and returns its output if it succeeds.
    async fn check_with(
        &self,
        arguments: &[&str],
        input: &[u8],
        more: &[(&str, OsString)],
    ) -> Result<Vec<u8>, Failure> {
        let output = self.run(arguments, input, more).await?;
        match output.is_done {
            true => Ok(output.stdout),
            false => Err(self.explain(&output.stderr)),
        }
    }

    async fn run(&self, arguments: &[&str], input: &[u8], more: &[(&str, OsString)]) -> Result<Output, Failure> {
        let mut command = Command::new("git");
        command.env_clear();
        for name in PASSED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .args(arguments)
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .envs(more.iter().map(|(key, value)| (key, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::environment("there is no git on PATH, with which the command fetches and pushes")
                    .hint("install git 2.31 or later")
            }
            _ => Failure::environment(format!("git can't be started: {error}")),
        })?;
        let stdin = child.stdin.take();
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // If git stops reading, its exit status says why.
                let _ = stdin.write_all(input).await;
            }
        };
        let ended = async { tokio::join!(feed, child.wait_with_output()).1 };
        let ended = tokio::time::timeout(self.timeout, ended).await.map_err(|_| {
            let (what, seconds) = (arguments.first().copied().unwrap_or_default(), self.timeout.as_secs());
            Failure::environment(format!("{}: git {what} did not end in {seconds} s", self.name()))
        })?;
        let ended = ended.map_err(|error| Failure::environment(format!("git: {error}")))?;
        Ok(Output {
            is_done: ended.status.success(),
            stdout: ended.stdout,
            stderr: self.redact(&String::from_utf8_lossy(&ended.stderr)),
        })
    }

    /// Removes credentials from a text of git.
    fn redact(&self, text: &str) -> String {
        let hide = |text: String, secret: &SecretBytes| text.replace(secret.reveal(), "(hidden)");
        self.secrets.iter().fold(text.to_owned(), hide)
    }

    /// Explains a failure by git's words.
    fn explain(&self, stderr: &str) -> Failure {
        let lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
        let words = lines.take(3).collect::<Vec<_>>().join("; ");
        let words = visible_line(&words).into_owned();
        let has = |parts: &[&str]| parts.iter().any(|part| stderr.contains(part));
        let failure = Failure::environment(format!("{}: {words}", self.name()));
        if has(&["Host key verification failed", "REMOTE HOST IDENTIFICATION"]) {
            return failure.hint("the server shows another key than the known ones: the connection may be intercepted, or the server has new keys; --known-hosts names them");
        }
        if has(&[
            "could not read Username",
            "Authentication failed",
            "Permission denied",
            "401",
            "403",
        ]) {
            return failure.hint("the server refuses your credential: it needs the right to push to this repository");
        }
        failure
    }
}

/// Writes the command with which git starts ssh: with the given host keys and key alone, and without questions.
fn write_ssh(known_hosts: &Path, key: Option<&Path>) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let hosts = format!("UserKnownHostsFile=\"{}\"", known_hosts.display());
    let mut words = vec!["ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=yes -o UpdateHostKeys=no".to_owned()];
    words.extend(["-o GlobalKnownHostsFile=/dev/null -o".to_owned(), quote(&hosts)]);
    if let Some(key) = key {
        words.extend(["-o IdentitiesOnly=yes -i".to_owned(), quote(&key.display().to_string())]);
    }
    words.join(" ")
}
