//! The submodules of a commit: which repositories they are, and what is shown to their servers.
//!
//! Owns how far they are followed. Credentials go to the scheme, host and port of the source's own URL and nowhere else; a repository
//! elsewhere has to be public, or be a source of its own that is included. Every address is dialed as the source's own is, and everything
//! counts against its limits. Refuses whatever is no URL of a Git repository: files and commands among it.

use std::collections::VecDeque;

use crate::archive::Submodules;
use crate::error::FetchError;
use crate::git::modules::{read_modules, resolve_address};
use crate::git::oid::Oid;
use crate::policy::Scheme;
use crate::receive::Remote;
use crate::secret::{self, Credentials, TlsOptions};
use crate::url::RemoteUrl;

/// Submodules of a fetch, those of submodules included.
const MOST: usize = 32;
/// Submodules in submodules (go-git's).
const DEEPEST: usize = 10;

/// A submodule that is to be fetched.
pub(crate) struct Module {
    /// Its path, from the root of the artifact.
    pub(crate) path: String,
    pub(crate) remote: Remote,
    pub(crate) commit: Oid,
    depth: usize,
}

/// Those that are still to be fetched.
pub(crate) struct Pending<'a> {
    /// The source's own repository.
    home: &'a Remote,
    queue: VecDeque<Module>,
    found: usize,
}

impl<'a> Pending<'a> {
    /// Begins with those of the source's own commit.
    pub(crate) fn new(home: &'a Remote, submodules: &Submodules) -> Result<Self, FetchError> {
        let mut pending = Self {
            home,
            queue: VecDeque::new(),
            found: 0,
        };
        pending.add("", &home.url, 1, submodules)?;
        Ok(pending)
    }

    /// The next one.
    pub(crate) fn take(&mut self) -> Option<Module> {
        self.queue.pop_front()
    }

    /// Adds those of a submodule.
    pub(crate) fn add_of(&mut self, module: &Module, submodules: &Submodules) -> Result<(), FetchError> {
        self.add(&module.path, &module.remote.url, module.depth + 1, submodules)
    }

    /// Adds the submodules of a commit. One whose address is nowhere is refused, unless its files would be excluded: less content than the commit has could
    /// delete objects. (Git leaves it out.)
    fn add(
        &mut self,
        folder: &str,
        parent: &RemoteUrl,
        depth: usize,
        submodules: &Submodules,
    ) -> Result<(), FetchError> {
        let file = submodules.file.as_deref().unwrap_or_default();
        let join = |path: &str| {
            if folder.is_empty() {
                path.to_owned()
            } else {
                format!("{folder}/{path}")
            }
        };
        let addresses = read_modules(file).map_err(|problem| FetchError::Misplaced {
            problem: format!("{:?} can't be read: {problem}", join(".gitmodules")),
        })?;
        for (path, commit) in &submodules.links {
            let Some(address) = addresses.get(path) else {
                if submodules.excluded.contains(path) {
                    continue;
                }
                let (path, file) = (join(path), join(".gitmodules"));
                let problem = format!(
                    "the submodule {path:?} has no address: add it to {file:?}, take it out of the repository, or leave it out with spec.ignore"
                );
                return Err(FetchError::Misplaced { problem });
            };
            let too_many = |what, limit: usize| FetchError::TooLarge {
                what,
                limit: limit.to_string(),
                advice: "include repositories as sources of their own instead",
            };
            self.found += 1;
            if self.found > MOST {
                return Err(too_many("submodules", MOST));
            }
            if depth > DEEPEST {
                return Err(too_many("submodules in submodules", DEEPEST));
            }
            let path = join(path);
            let remote = self.find_remote(parent, address).map_err(|error| wrap(&path, error))?;
            self.queue.push_back(Module {
                path,
                remote,
                commit: *commit,
                depth,
            });
        }
        Ok(())
    }

    /// Where a submodule is, with credentials if it is where the source itself is.
    fn find_remote(&self, parent: &RemoteUrl, address: &str) -> Result<Remote, FetchError> {
        let resolved = resolve_address(&parent.to_string(), address).map_err(|problem| FetchError::InvalidUrl {
            url: "(not shown)".to_owned(),
            problem: problem.to_owned(),
        })?;
        let url = RemoteUrl::parse(&resolved)?;
        if url.endpoint() == self.home.url.endpoint() {
            let mut credentials = self.home.credentials.clone();
            if let (Credentials::SshKey { user, .. }, Some(own)) = (&mut credentials, url.user()) {
                own.clone_into(user);
            }
            return Ok(Remote {
                url,
                credentials,
                tls: self.home.tls.clone(),
            });
        }
        if url.endpoint().scheme == Scheme::Ssh {
            return Err(FetchError::Unauthorized {
                url: url.to_string(),
                problem: format!(
                    "ssh needs a key, and credentials are only sent to the host of spec.url, {}; make a GitRepository of it, and include that",
                    self.home.url.endpoint()
                ),
            });
        }
        // What its URL has of its own.
        let (credentials, _) = secret::read_secret(&url, None)?;
        Ok(Remote {
            url,
            credentials,
            tls: TlsOptions {
                ca: self.home.tls.ca.clone(),
                client: None,
            },
        })
    }
}

/// Says of which submodule an error is.
pub(crate) fn wrap(path: &str, error: FetchError) -> FetchError {
    FetchError::Submodule {
        path: path.to_owned(),
        error: Box::new(error),
    }
}
