//! Access to single repositories: tokens and ssh keys that are added and removed while the server runs.
//!
//! Each has its repositories, its expiry and the time of its last use. Of a token, only the SHA-256 is stored. It is compared in constant time with every known one, so
//! that the duration of an answer reveals nothing. The caller decides which tokens and keys exist.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ring::digest::{SHA256, digest};
use russh::keys::PublicKey;
use russh::keys::ssh_key::public::KeyData;
use subtle::ConstantTimeEq as _;

use crate::error::GitServerError;

/// A function that returns the current time.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The tokens and ssh keys with which clients may access single repositories. Cheap to clone: all clones share one table.
#[derive(Clone)]
pub struct Access {
    table: Arc<Mutex<Table>>,
    clock: Clock,
}

/// The accepted tokens and keys, and the last number that was assigned to one of them.
#[derive(Default)]
struct Table {
    last: u64,
    tokens: Vec<Token>,
    keys: Vec<Key>,
}

/// A token that the server accepts, stored as its digest.
struct Token {
    id: u64,
    username: Option<String>,
    sha256: [u8; 32],
    repositories: Repositories,
    may_write: bool,
    expires_at: Option<SystemTime>,
    last_used_at: Option<SystemTime>,
}

/// An ssh key that the server accepts for one repository.
struct Key {
    id: u64,
    key: KeyData,
    repository: String,
    may_write: bool,
    expires_at: Option<SystemTime>,
    last_used_at: Option<SystemTime>,
}

/// The repositories that a token opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repositories {
    /// Only this repository.
    One(String),
    /// All repositories whose names begin with this path and a slash.
    Below(String),
}

/// A token to add to an [`Access`].
#[derive(Clone)]
pub struct NewToken<'a> {
    /// The required user name; any if absent.
    pub username: Option<&'a str>,
    /// The token itself. Only its digest is stored.
    pub value: &'a str,
    /// The repositories that it opens.
    pub repositories: Repositories,
    /// Whether it may push.
    pub may_write: bool,
    /// The time of its expiry.
    pub expires_at: Option<SystemTime>,
}

/// An ssh key to add to an [`Access`].
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// Its public half in OpenSSH's form.
    pub public: &'a str,
    /// The repository that it opens.
    pub repository: &'a str,
    /// Whether it may push.
    pub may_write: bool,
    /// The time of its expiry.
    pub expires_at: Option<SystemTime>,
}

/// Whether a token or key allows a request, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// The token or key is unknown or expired.
    Unknown,
    /// The token or key is for another repository.
    Elsewhere,
    /// The token or key may only read.
    ReadOnly,
}

impl Default for Access {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.lock_table();
        write!(f, "Access({} tokens, {} keys)", table.tokens.len(), table.keys.len())
    }
}

impl Access {
    /// Creates an empty table; expiry uses the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemTime::now))
    }

    /// Creates an empty table like [`Access::new`], with another clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            table: Arc::default(),
            clock,
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a token and returns the number for its revocation.
    pub fn add_token(&self, token: NewToken<'_>) -> u64 {
        let mut table = self.lock_table();
        let id = table.next();
        table.tokens.push(Token {
            id,
            username: token.username.map(str::to_owned),
            sha256: hash_value(token.value),
            repositories: token.repositories,
            may_write: token.may_write,
            expires_at: token.expires_at,
            last_used_at: None,
        });
        id
    }

    /// Adds an ssh key and returns the number for its removal.
    ///
    /// # Errors
    /// [`GitServerError::Keys`] when the text is no public key.
    pub fn add_key(&self, key: NewKey<'_>) -> Result<u64, GitServerError> {
        let public = PublicKey::from_openssh(key.public).map_err(|error| GitServerError::Keys(error.to_string()))?;
        let mut table = self.lock_table();
        let id = table.next();
        table.keys.push(Key {
            id,
            key: public.key_data().clone(),
            repository: key.repository.to_owned(),
            may_write: key.may_write,
            expires_at: key.expires_at,
            last_used_at: None,
        });
        Ok(id)
    }

    /// Revokes a token or a key. Returns whether it existed.
    pub fn revoke(&self, id: u64) -> bool {
        let mut table = self.lock_table();
        let before = table.tokens.len() + table.keys.len();
        table.tokens.retain(|token| token.id != id);
        table.keys.retain(|key| key.id != id);
        before > table.tokens.len() + table.keys.len()
    }

    /// Returns the time when a token or a key was last used.
    #[must_use]
    pub fn last_used_at(&self, id: u64) -> Option<SystemTime> {
        let table = self.lock_table();
        let token = table.tokens.iter().find(|token| token.id == id);
        let key = || table.keys.iter().find(|key| key.id == id);
        token.map_or_else(|| key()?.last_used_at, |token| token.last_used_at)
    }

    /// Renames a repository: tokens and keys for the old name open the new one.
    pub(crate) fn rename(&self, old: &str, new: &str) {
        let mut table = self.lock_table();
        for token in &mut table.tokens {
            if let Repositories::One(name) = &mut token.repositories
                && name == old
            {
                new.clone_into(name);
            }
        }
        for key in &mut table.keys {
            if key.repository == old {
                new.clone_into(&mut key.repository);
            }
        }
    }

    /// Decides whether a user name and a token may access a repository.
    pub(crate) fn judge_token(&self, username: &str, value: &str, repository: &str, writes: bool) -> Verdict {
        let now = (self.clock)();
        let shown = hash_value(value);
        let mut table = self.lock_table();
        let mut verdict = Verdict::Unknown;
        // Always compares all tokens, so that the duration doesn't depend on which one matches.
        for token in &mut table.tokens {
            let is_shown = bool::from(token.sha256.ct_eq(&shown));
            let is_named = token.username.as_deref().is_none_or(|name| name == username);
            if !is_shown || !is_named || is_over(token.expires_at, now) {
                continue;
            }
            let reaches = match &token.repositories {
                Repositories::One(name) => name == repository,
                Repositories::Below(path) => repository
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| rest.starts_with('/')),
            };
            let judged = decide_access(reaches, token.may_write, writes);
            if judged == Verdict::Allowed {
                token.last_used_at = Some(now);
            }
            verdict = verdict.or(judged);
        }
        verdict
    }

    /// Checks whether a key is known for any repository. A client names the repository later.
    pub(crate) fn knows_key(&self, key: &KeyData) -> bool {
        let now = (self.clock)();
        let table = self.lock_table();
        let mut keys = table.keys.iter();
        keys.any(|known| known.key == *key && !is_over(known.expires_at, now))
    }

    /// Decides whether a key may access a repository.
    pub(crate) fn judge_key(&self, key: &KeyData, repository: &str, writes: bool) -> Verdict {
        let now = (self.clock)();
        let mut table = self.lock_table();
        let mut verdict = Verdict::Unknown;
        for known in &mut table.keys {
            if known.key != *key || is_over(known.expires_at, now) {
                continue;
            }
            let judged = decide_access(known.repository == repository, known.may_write, writes);
            if judged == Verdict::Allowed {
                known.last_used_at = Some(now);
            }
            verdict = verdict.or(judged);
        }
        verdict
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Verdict {
    /// Returns the more permissive decision: several entries of one token or key add up.
    fn or(self, other: Self) -> Self {
        let rank = |verdict| match verdict {
            Self::Allowed => 3,
            Self::ReadOnly => 2,
            Self::Elsewhere => 1,
            Self::Unknown => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// Decides about a known token or key. `reaches`: it is for the repository. `writes`: the request is a push.
fn decide_access(reaches: bool, may_write: bool, writes: bool) -> Verdict {
    match (reaches, writes && !may_write) {
        (false, _) => Verdict::Elsewhere,
        (true, true) => Verdict::ReadOnly,
        (true, false) => Verdict::Allowed,
    }
}

fn is_over(expires_at: Option<SystemTime>, now: SystemTime) -> bool {
    expires_at.is_some_and(|end| end <= now)
}

fn hash_value(value: &str) -> [u8; 32] {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest(&SHA256, value.as_bytes()).as_ref());
    sha256
}
