//! A helm-controller that `tenure up` starts, confines and keeps running. It gets an account of its own, whose token this process renews in a file, and a folder of its own.
//!
//! ```text
//! up ─[account, token, kubeconfig]─▶ supervisor ─▶ tenure confined ─▶ helm-controller
//!                                        ▲                                  │
//!                                        └────────── lines, end ◀───────────┘
//! ```

mod supervisor;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tenure_api::installation::{HELM_CONTROLLER_ACCOUNT, HELM_CONTROLLER_NAMESPACE};
use tenure_apiserver::Server;

use crate::control_plane::make_folder;
use crate::failure::{Failure, write_chain};
use supervisor::{SupervisedProgram, Supervisor};

/// The lifetime of a token, in seconds. client-go reads the file again each minute.
const TOKEN_SECONDS: i64 = 3600;
/// The time between two renewals of the token. A jump of the clock can end a token at any time.
const RENEWAL: Duration = Duration::from_secs(60);
/// The largest memory, in bytes.
const MEMORY: u64 = 2 << 30;
/// The memory from which Go collects garbage more often, in bytes.
const SOFT_MEMORY: u64 = MEMORY / 4 * 3;

/// A running helm-controller.
pub(crate) struct HelmController {
    supervisor: Supervisor,
    renewal: tokio::task::JoinHandle<()>,
}

impl HelmController {
    /// Starts the program of [`find_program`], after the objects of its account exist. `data` is the folder of the control plane, and `url` the address of its API server for this machine.
    pub(crate) fn start(program: &Path, data: &Path, url: &str, server: &Server) -> Result<Self, Failure> {
        let own = std::path::absolute(data.join("helm-controller"))
            .map_err(|error| Failure::environment(format!("{}: {error}", data.display())))?;
        make_folder(&own)?;
        let files = Files { folder: own };
        files.write("ca.crt", server.ca_pem())?;
        files.write("kubeconfig", &files.make_kubeconfig(url))?;
        files.renew_token(server)?;
        let supervisor = Supervisor::start(files.describe_program(program)?)?;
        let server = server.clone();
        let renewal = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                if let Err(failure) = files.renew_token(&server) {
                    tracing::warn!(error = failure.message, "the token of helm-controller is not renewed");
                }
            }
        });
        Ok(Self { supervisor, renewal })
    }

    /// Ends the program, and waits for its end.
    pub(crate) async fn stop(self) {
        self.renewal.abort();
        let supervisor = self.supervisor;
        let _ended = tokio::task::spawn_blocking(move || supervisor.stop()).await;
    }
}

/// Returns the absolute path of the program, if it is an executable file.
pub(crate) fn find_program(program: &Path) -> Result<PathBuf, Failure> {
    let fail = |problem: &str| {
        Failure::environment(format!("--helm-controller {}: {problem}", program.display()))
            .hint("name the program of Flux's helm-controller, version 1.6 or later")
    };
    let found = std::fs::canonicalize(program).map_err(|error| fail(&error.to_string()))?;
    let metadata = std::fs::metadata(&found).map_err(|error| fail(&error.to_string()))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(fail("is no executable file"));
    }
    Ok(found)
}

/// The files of the program.
struct Files {
    folder: PathBuf,
}

impl Files {
    /// Replaces a file that only this user can read, in one step.
    fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        let fail = |error: std::io::Error| Failure::environment(format!("{}: {error}", path.display()));
        let fresh = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(&self.folder)
            .map_err(fail)?;
        std::fs::write(fresh.path(), content).map_err(fail)?;
        fresh.persist(&path).map_err(|error| fail(error.error))?;
        Ok(())
    }

    fn renew_token(&self, server: &Server) -> Result<(), Failure> {
        let token = server.service_account_token(HELM_CONTROLLER_NAMESPACE, HELM_CONTROLLER_ACCOUNT, TOKEN_SECONDS);
        let token = token.map_err(|error| Failure::internal(write_chain(&error)))?;
        self.write("token", &token)
    }

    fn make_kubeconfig(&self, url: &str) -> String {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tenure",
            "clusters": [{ "name": "tenure", "cluster": { "server": url, "certificate-authority": path("ca.crt") } }],
            "users": [{ "name": "helm-controller", "user": { "tokenFile": path("token") } }],
            "contexts": [{ "name": "tenure", "context": { "cluster": "tenure", "user": "helm-controller" } }]
        });
        config.to_string()
    }

    fn describe_program(&self, program: &Path) -> Result<SupervisedProgram, Failure> {
        let own = std::env::current_exe()
            .map_err(|error| Failure::environment(format!("this program's own file is unknown: {error}")))?;
        let path = |name: &str| self.folder.join(name).display().to_string();
        let scratch = self.folder.join("scratch");
        make_folder(&scratch)?;
        let mut arguments = vec!["confined".to_owned(), "--memory".to_owned(), MEMORY.to_string()];
        arguments.extend(["--".to_owned(), program.display().to_string()]);
        arguments.extend(
            [
                "--feature-gates=ExternalArtifact=true",
                "--enable-leader-election=false",
                "--watch-all-namespaces=true",
                "--metrics-addr=127.0.0.1:0",
                "--health-addr=127.0.0.1:0",
                "--events-addr=",
            ]
            .map(str::to_owned),
        );
        Ok(SupervisedProgram {
            program: own,
            arguments,
            folder: self.folder.clone(),
            environment: vec![
                ("KUBECONFIG".to_owned(), path("kubeconfig")),
                ("RUNTIME_NAMESPACE".to_owned(), HELM_CONTROLLER_NAMESPACE.to_owned()),
                ("HOME".to_owned(), path("scratch")),
                ("TMPDIR".to_owned(), path("scratch")),
                ("GOMEMLIMIT".to_owned(), SOFT_MEMORY.to_string()),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_file_is_taken_as_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        for (path, expected) in [
            (folder.path().join("missing"), "No such file"),
            (folder.path().to_owned(), "is no executable file"),
            (file.clone(), "is no executable file"),
        ] {
            let failure = find_program(&path).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
        std::fs::set_permissions(&file, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find_program(&file).unwrap(), std::fs::canonicalize(&file).unwrap());
    }

    #[test]
    fn files_are_of_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            folder: folder.path().to_owned(),
        };
        for content in ["one", "two"] {
            files.write("token", content).unwrap();
        }
        let path = folder.path().join("token");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no other file is left"
        );
    }
}
