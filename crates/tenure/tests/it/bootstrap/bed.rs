//! A Git server with one repository, and runs of `tenure bootstrap` that use it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};
use tenure_git_server::{Access, GitServer, NewKey, NewToken, Options, Repositories, Repository, SshOptions, Tls};
use tenure_sources::DeployKey;

use crate::process::{connect, tenure};

/// The token that may push over HTTP.
pub(crate) const TOKEN: &str = "push-token-7f3a9c2e51";
/// The repository's name at the server.
pub(crate) const NAME: &str = "platform";

/// A Git server, its repository, and a folder.
pub(crate) struct Bed {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) git: GitServer,
    pub(crate) access: Access,
    pub(crate) repository: Repository,
}

/// The end of a run.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Ended {
    /// Expects an exit code and words of the output.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.text);
        for word in words {
            assert!(self.text.contains(word), "no {word:?} in: {}", self.text);
        }
    }
}

impl Bed {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a server with TLS, if there are keys for it.
    pub(crate) async fn start_with(tls: Option<Tls>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::new();
        let options = Options {
            access: Some(access.clone()),
            ssh: Some(SshOptions::loopback(Vec::new())),
            tls,
            ..Options::default()
        };
        let git = GitServer::start(folder.path().join("git"), options).await.unwrap();
        let repository = git.create(NAME).await.unwrap();
        access.add_token(NewToken {
            username: None,
            value: TOKEN,
            repositories: Repositories::One(NAME.to_owned()),
            may_write: true,
            expires_at: None,
        });
        let bed = Self {
            folder,
            git,
            access,
            repository,
        };
        std::fs::write(bed.path("known_hosts"), bed.git.known_hosts().unwrap()).unwrap();
        bed
    }

    /// Returns a path in the folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the address for sources, as the flags about allowed sources have it.
    pub(crate) fn allowed(&self) -> String {
        format!("ssh://{}", self.git.ssh_address().unwrap())
    }

    pub(crate) fn ssh_url(&self) -> String {
        self.git.ssh_url(NAME).unwrap()
    }

    /// Adds a public key at the server, and returns its number.
    pub(crate) fn add_key(&self, public: &str, may_write: bool) -> u64 {
        let key = NewKey {
            public,
            repository: NAME,
            may_write,
            expires_at: None,
        };
        self.access.add_key(key).unwrap()
    }

    /// Writes the key of an administrator who may push over ssh.
    pub(crate) fn write_push_key(&self) -> String {
        let key = DeployKey::generate("administrator").unwrap();
        self.add_key(&key.public().line, true);
        self.write_private("administrator", key.reveal())
    }

    pub(crate) fn write_private(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns the arguments of a bootstrap that pushes over HTTP with the token.
    pub(crate) fn https_arguments(&self, path: &str) -> Vec<String> {
        let url = self.git.http_url(NAME);
        self.complete(&["git", "--url", &url, "--source-url", &self.ssh_url()], path)
    }

    /// Returns the arguments of a bootstrap that pushes over ssh with a key.
    pub(crate) fn ssh_arguments(&self, key: &str, path: &str) -> Vec<String> {
        self.complete(&["git", "--url", &self.ssh_url(), "--private-key-file", key], path)
    }

    pub(crate) fn complete(&self, first: &[&str], path: &str) -> Vec<String> {
        let hosts = self.path("known_hosts");
        let rest = [
            "--path",
            path,
            "--known-hosts",
            hosts.to_str().unwrap(),
            "--timeout",
            "180",
        ];
        first.iter().chain(&rest).map(|word| (*word).to_owned()).collect()
    }

    /// Runs a bootstrap to its end. `add` gets the deploy key that the command prints.
    pub(crate) fn run(&self, kubeconfig: &Path, arguments: &[String], add: impl Fn(&str) + Send) -> Ended {
        let (mut child, output) = start(kubeconfig, arguments, self.folder.path());
        let mut text = String::new();
        for line in output {
            if line.starts_with("ssh-ed25519 ") {
                add(&line);
            }
            text.push_str(&line);
            text.push('\n');
        }
        Ended {
            code: child.wait().unwrap().code(),
            text,
        }
    }

    /// Runs a bootstrap, and adds the deploy key for reading only.
    pub(crate) fn run_with_key(&self, kubeconfig: &Path, arguments: &[String]) -> Ended {
        self.run(kubeconfig, arguments, |key| {
            self.add_key(key, false);
        })
    }

    /// Runs a bootstrap until it has printed a number of lines, and kills it then. Returns the end of a command that had fewer lines.
    pub(crate) fn run_until_line(&self, kubeconfig: &Path, arguments: &[String], lines: usize) -> Option<Ended> {
        let (mut child, output) = start(kubeconfig, arguments, self.folder.path());
        let mut text = String::new();
        for (number, line) in output.iter().enumerate() {
            if line.starts_with("ssh-ed25519 ") {
                self.add_key(&line, false);
            }
            text.push_str(&line);
            text.push('\n');
            if number + 1 == lines {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
        }
        Some(Ended {
            code: child.wait().unwrap().code(),
            text,
        })
    }

    /// Returns the messages of the commits of `main`, oldest first.
    pub(crate) fn list_commits(&self) -> Vec<String> {
        let log = Command::new("git")
            .args(["log", "--reverse", "--format=%s", "refs/heads/main", "--"])
            .current_dir(self.repository.folder())
            .output()
            .unwrap();
        String::from_utf8_lossy(&log.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Starts a bootstrap, with all lines of both outputs.
fn start(kubeconfig: &Path, arguments: &[String], temporary: &Path) -> (Child, mpsc::Receiver<String>) {
    let mut command = tenure(&["bootstrap"]);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("GIT_PASSWORD", TOKEN)
        .env("TMPDIR", temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (send, receive) = mpsc::channel();
    let outputs: [Box<dyn std::io::Read + Send>; 2] = [
        Box::new(child.stdout.take().unwrap()),
        Box::new(child.stderr.take().unwrap()),
    ];
    for output in outputs {
        let send = send.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    (child, receive)
}

/// Returns the object at a path of the API server; `Null` if it does not exist.
pub(crate) async fn get(kubeconfig: &Path, path: &str) -> Value {
    let client = connect(kube::config::Kubeconfig::read_from(kubeconfig).unwrap()).await;
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap_or(Value::Null)
}

pub(crate) const SURFACE: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/surfaces/platform";
pub(crate) const KEY: &str = "/api/v1/namespaces/tenure-system/secrets/platform-deploy-key";

/// Returns a ConfigMap as a manifest.
pub(crate) fn write_map(name: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" } }).to_string()
}
