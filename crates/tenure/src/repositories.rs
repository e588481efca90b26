//! Folders of this machine, served as Git repositories to the platform's own sources, which are notified of changes. The module has the folder `repositories` of the
//! data folder and one listener on loopback. It refuses pushes and unknown names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_controllers::ReceiverEndpoint;
use tenure_git_server::{GitServer, Mirror, Options};
use tokio_util::task::AbortOnDropHandle;

use crate::failure::{Failure, write_chain};

/// The interval at which a folder is checked for changes.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// The served folders, until the value is dropped.
pub(crate) struct Repositories {
    serving: Option<GitServer>,
    names: Vec<String>,
    _following: Vec<AbortOnDropHandle<()>>,
}

impl Repositories {
    /// Serves each folder under its name; without names, nothing starts. When the function returns, each repository has its folder's content. Sources that fetch from a
    /// repository are notified of changes.
    pub(crate) async fn start(
        data: &Path,
        named: Vec<(String, PathBuf)>,
        port: u16,
        hooks: &ReceiverEndpoint,
    ) -> Result<Self, Failure> {
        let mut repositories = Self {
            serving: None,
            names: Vec::new(),
            _following: Vec::new(),
        };
        if named.is_empty() {
            return Ok(repositories);
        }
        let options = Options {
            http: ([127, 0, 0, 1], port).into(),
            accept_pushes: false,
            ..Options::default()
        };
        let failed = |error: tenure_git_server::GitServerError| {
            Failure::environment(format!("--repository: {}", write_chain(&error)))
                .hint("is git installed and on PATH? --repository-port takes another port, 0 a free one")
        };
        let server = GitServer::start(data.join("repositories"), options)
            .await
            .map_err(failed)?;
        for (name, folder) in named {
            let repository = match server.repository(&name) {
                Ok(repository) if repository.folder().exists() => repository,
                _ => server.create(&name).await.map_err(failed)?,
            };
            let mut mirror = Mirror::new(repository, &folder);
            mirror.update().await.map_err(failed)?;
            repositories.names.push(name.clone());
            let (hooks, url) = (hooks.clone(), server.http_url(&name));
            let following = tokio::spawn(async move {
                let mut last_problem = None;
                loop {
                    tokio::time::sleep(LOOKED_AT).await;
                    let updated = mirror.update().await;
                    if matches!(updated, Ok(Some(_))) {
                        hooks.announce(&url).await;
                    }
                    let problem = updated.err().map(|error| write_chain(&error));
                    // Each problem is logged once, since it occurs every second until it is fixed.
                    if let Some(problem) = problem
                        .as_ref()
                        .filter(|problem| last_problem.as_ref() != Some(*problem))
                    {
                        tracing::warn!(
                            repository = name,
                            problem,
                            "the folder can't be watched; the last content that was read is served"
                        );
                    }
                    last_problem = problem;
                }
            });
            repositories._following.push(AbortOnDropHandle::new(following));
        }
        repositories.serving = Some(server);
        Ok(repositories)
    }

    /// Returns the address of the server, for the policy of sources.
    pub(crate) fn address(&self) -> Option<String> {
        let server = self.serving.as_ref()?;
        Some(format!("http://{}", server.http_address()))
    }

    /// Returns the clone URLs.
    pub(crate) fn urls(&self) -> Vec<String> {
        let urls = |server: &GitServer| self.names.iter().map(|name| server.http_url(name)).collect();
        self.serving.as_ref().map(urls).unwrap_or_default()
    }
}

/// Reads each `NAME=FOLDER`.
pub(crate) fn read_all(named: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    named.iter().map(|text| read_repository(text)).collect()
}

fn read_repository(text: &str) -> Result<(String, PathBuf), Failure> {
    let wanted =
        || Failure::usage(format!("--repository {text:?}: write NAME=FOLDER")).hint("such as platform=./platform");
    let (name, folder) = text.split_once('=').ok_or_else(wanted)?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 63
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if !is_name(name) || folder.is_empty() {
        return Err(wanted().hint("a name has lower-case letters, digits and hyphens: platform=./platform"));
    }
    let folder = PathBuf::from(folder);
    if !folder.is_dir() {
        return Err(
            Failure::usage(format!("--repository {name}: {} is no folder", folder.display()))
                .hint("make it first; it may be empty"),
        );
    }
    Ok((name.to_owned(), folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_a_name_and_a_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let folder = folder.path().display().to_string();
        assert_eq!(
            read_repository(&format!("platform={folder}")).expect("read").0,
            "platform"
        );
        for text in ["platform", "=x", "Platform=/", "a/b=/", "a=", "a=/nonexistent/folder"] {
            assert!(
                read_repository(text).is_err_and(|failure| failure.hint.is_some()),
                "{text}"
            );
        }
    }
}
