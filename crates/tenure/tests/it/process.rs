//! Helpers that run the program. A started control plane is ended by its own id, also when the test fails.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Returns the program with a clean environment, so no test sees the user's kubeconfig.
pub(crate) fn tenure(arguments: &[&str]) -> Command {
    let mut command = make_command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command.args(arguments);
    command
}

/// Returns the program under the name of a link to it.
pub(crate) fn make_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("KUBECONFIG")
        .env_remove("TENURE_LOG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    tenure(arguments).output().expect("run tenure")
}

/// Runs the program to its end, and expects this exit code and these words on standard error.
pub(crate) fn fails(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?} does not say {word:?}: {error}");
    }
}

/// A running `tenure up`.
pub(crate) struct Up {
    child: Child,
}

impl Up {
    /// Starts on a free port and waits for the line that reports readiness.
    pub(crate) fn start(data: &Path, more: &[&str]) -> Self {
        let data = data.to_str().expect("a folder in UTF-8");
        let mut arguments = vec!["up", "--data", data, "--port", "0"];
        arguments.extend_from_slice(more);
        Self::spawn(tenure(&arguments)).0
    }

    /// Starts a program that prints its address when it is ready, and returns the address.
    pub(crate) fn spawn(mut command: Command) -> (Self, String) {
        command.stderr(Stdio::piped());
        Self::spawn_as_it_is(command)
    }

    /// Starts such a program with the standard error of the command.
    pub(crate) fn spawn_as_it_is(mut command: Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start tenure up");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let Some(Ok(first)) = lines.next() else {
            let output = child.wait_with_output().expect("output");
            panic!("tenure up ended: {}", String::from_utf8_lossy(&output.stderr));
        };
        let url = first.rsplit(' ').next().expect("an address").to_owned();
        assert!(url.starts_with("https://"), "{first}");
        (Self { child }, url)
    }

    /// Starts on a free port, and returns the first printed lines.
    pub(crate) fn start_telling(data: &Path, more: &[&str], count: usize) -> (Self, Vec<String>) {
        let data = data.to_str().expect("a folder in UTF-8");
        let mut arguments = vec!["up", "--data", data, "--port", "0"];
        arguments.extend_from_slice(more);
        let mut child = tenure(&arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start tenure up");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let lines = lines.take(count).collect::<Result<Vec<_>, _>>().expect("lines");
        assert_eq!(lines.len(), count, "{lines:?}");
        (Self { child }, lines)
    }

    /// Wraps a process, which then ends with the test.
    pub(crate) fn wrap(child: Child) -> Self {
        Self { child }
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("reap");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns an administrator's client of the control plane on `data`.
pub(crate) async fn client(data: &Path) -> kube::Client {
    connect(kube::config::Kubeconfig::read_from(data.join("kubeconfig")).expect("kubeconfig")).await
}

/// Returns a client with these credentials.
pub(crate) async fn connect(kubeconfig: kube::config::Kubeconfig) -> kube::Client {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
        .await
        .expect("config");
    kube::Client::try_from(config).expect("client")
}
