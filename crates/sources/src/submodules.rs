//! The submodules of a commit: their repositories, and the credentials for their servers.
//!
//! Credentials go only to the scheme, host and port of the source's own URL. A repository elsewhere has to be public, or a source of its own that is included. The dialer
//! checks every address like the source's own, and all content counts against the source's limits. Addresses that are no URL of a Git repository are refused, such as
//! files and commands.

use std::collections::VecDeque;

use crate::archive::Submodules;
use crate::error::FetchError;
use crate::git::modules::{read_modules, resolve_address};
use crate::git::oid::Oid;
use crate::pack_transfer::RemoteRepository;
use crate::policy::Scheme;
use crate::secret::{self, Credentials, TlsOptions};
use crate::url::RemoteUrl;

/// The most submodules of a fetch, nested ones included.
const MOST: usize = 32;
/// The deepest nesting of submodules (go-git's).
const DEEPEST: usize = 10;

/// A submodule that has to be fetched: its path in the artifact, its repository and its commit.
pub(crate) struct Module {
    /// Its path, from the root of the artifact.
    pub(crate) path: String,
    pub(crate) remote: RemoteRepository,
    pub(crate) commit: Oid,
    depth: usize,
}

/// The queue of submodules that still have to be fetched, and the number of all submodules found so far.
pub(crate) struct PendingSubmodules<'a> {
    /// The source's own repository.
    home: &'a RemoteRepository,
    queue: VecDeque<Module>,
    found: usize,
}

impl<'a> PendingSubmodules<'a> {
    /// Begins with the submodules of the source's own commit.
    pub(crate) fn new(home: &'a RemoteRepository, submodules: &Submodules) -> Result<Self, FetchError> {
        let mut pending = Self {
            home,
            queue: VecDeque::new(),
            found: 0,
        };
        pending.add_modules("", &home.url, 1, submodules)?;
        Ok(pending)
    }

    /// Returns the next submodule.
    pub(crate) fn take_next(&mut self) -> Option<Module> {
        self.queue.pop_front()
    }

    /// Adds the submodules that the commit of a fetched submodule has.
    pub(crate) fn add_nested(&mut self, module: &Module, submodules: &Submodules) -> Result<(), FetchError> {
        self.add_modules(&module.path, &module.remote.url, module.depth + 1, submodules)
    }

    /// Adds the submodules of a commit. A submodule without an address is refused unless its files would be excluded: an artifact with less content than the commit could
    /// delete objects. (Git leaves such a submodule out.)
    fn add_modules(
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
            let remote = self
                .find_remote(parent, address)
                .map_err(|error| add_submodule_path(&path, error))?;
            self.queue.push_back(Module {
                path,
                remote,
                commit: *commit,
                depth,
            });
        }
        Ok(())
    }

    /// Finds the repository of a submodule, with credentials if it is on the source's own server.
    fn find_remote(&self, parent: &RemoteUrl, address: &str) -> Result<RemoteRepository, FetchError> {
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
            return Ok(RemoteRepository {
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
        // The credentials in the URL itself.
        let (credentials, _) = secret::read_secret(&url, None)?;
        Ok(RemoteRepository {
            url,
            credentials,
            tls: TlsOptions {
                ca: self.home.tls.ca.clone(),
                client: None,
            },
        })
    }
}

/// Adds the submodule's path to an error.
pub(crate) fn add_submodule_path(path: &str, error: FetchError) -> FetchError {
    FetchError::Submodule {
        path: path.to_owned(),
        error: Box::new(error),
    }
}
