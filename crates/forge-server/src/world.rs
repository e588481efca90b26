//! The content of the host: projects, groups, people, and issued credentials.
//!
//! The rules here hold for all three APIs: the rights of each person, and the validity of each credential. The server of repositories accepts exactly the valid
//! credentials.

use std::collections::BTreeMap;
use std::time::SystemTime;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tenure_git_server::{Access, NewKey, NewToken, Repositories};

use crate::clock::Clock;
use crate::oauth::DeviceCode;
use crate::server::Kind;

/// The project or group to which a credential belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The project with this number.
    Project(u64),
    /// The group with this number.
    Group(u64),
}

/// The kind of a [`LiveCredential`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LiveCredentialKind {
    /// A user name and a token.
    Token,
    /// An ssh key.
    Key,
}

/// A deploy token or key that the host accepts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCredential {
    /// The kind.
    pub kind: LiveCredentialKind,
    /// The number at the host.
    pub id: u64,
    /// The project or group.
    pub owner: Owner,
    /// The name.
    pub name: String,
    /// Whether the credential may write.
    pub may_write: bool,
    /// The time of the last use with Git.
    pub last_used_at: Option<Timestamp>,
}

/// An issue of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The project.
    pub project: u64,
    /// The number in the project.
    pub number: u64,
    /// The title.
    pub title: String,
    /// The text.
    pub description: String,
    /// Whether only members of the project see the issue.
    pub is_confidential: bool,
    /// Whether the issue is open.
    pub is_open: bool,
}

/// A token that authenticates a client of the API.
pub(crate) struct ApiToken {
    pub(crate) sha256: [u8; 32],
    /// The number of the person; no person stands behind a GitHub App.
    pub(crate) person: u64,
    /// GitLab's scopes, or GitHub's permissions.
    pub(crate) scopes: Vec<String>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) is_revoked: bool,
}

/// A deploy token of a project or group, or a token of an App's installation.
pub(crate) struct Token {
    pub(crate) id: u64,
    pub(crate) owner: Owner,
    pub(crate) name: String,
    pub(crate) username: String,
    pub(crate) sha256: [u8; 32],
    pub(crate) scopes: Vec<String>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) is_revoked: bool,
    /// The numbers of the entries with which the server of repositories accepts the token.
    pub(crate) let_in: Vec<u64>,
}

/// A deploy key of a project.
pub(crate) struct Key {
    pub(crate) id: u64,
    pub(crate) project: u64,
    pub(crate) title: String,
    /// The kind and the key, without a comment.
    pub(crate) key: String,
    pub(crate) may_write: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) let_in: u64,
}

/// The content and the settings of the host: projects, groups, people, credentials and issues.
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) clock: Clock,
    pub(crate) access: Access,
    /// The parts before and after a path in the clone URLs, for HTTP and for ssh.
    pub(crate) clone_urls: [(String, String); 2],
    pub(crate) registry: Option<String>,
    /// The largest number of entries on a page.
    pub(crate) page_size: usize,
    /// The address in the host's answers, if it differs from the listener's address.
    pub(crate) known_as: Option<String>,
    /// Whether deploy tokens end at 00:00 UTC of the requested date, as GitLab's documents say.
    pub(crate) ends_at_midnight: bool,
    last: u64,
    pub(crate) projects: BTreeMap<u64, String>,
    pub(crate) groups: BTreeMap<u64, String>,
    /// The projects to which former paths redirect.
    pub(crate) moved: BTreeMap<String, u64>,
    pub(crate) members: BTreeMap<(u64, Owner), u8>,
    pub(crate) people: BTreeMap<u64, String>,
    pub(crate) authorisers: Vec<ApiToken>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) keys: Vec<Key>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) devices: Vec<DeviceCode>,
    /// GitHub's installations: number, owner of the repositories, and the public key that its App signs with.
    pub(crate) installations: Vec<(u64, String)>,
    pub(crate) app: Option<(u64, Vec<u8>)>,
}

impl World {
    pub(crate) fn new(kind: Kind, clock: Clock, access: Access, clone_urls: [(String, String); 2]) -> Self {
        Self {
            kind,
            clock,
            access,
            clone_urls,
            registry: None,
            page_size: 100,
            known_as: None,
            ends_at_midnight: true,
            last: 100,
            projects: BTreeMap::new(),
            groups: BTreeMap::new(),
            moved: BTreeMap::new(),
            members: BTreeMap::new(),
            people: BTreeMap::new(),
            authorisers: Vec::new(),
            tokens: Vec::new(),
            keys: Vec::new(),
            issues: Vec::new(),
            devices: Vec::new(),
            installations: Vec::new(),
            app: None,
        }
    }

    /// Returns a number that no other object has or gets later.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn find_path(&self, owner: Owner) -> Option<&String> {
        match owner {
            Owner::Project(id) => self.projects.get(&id),
            Owner::Group(id) => self.groups.get(&id),
        }
    }

    /// Returns the project or group that has a path now.
    pub(crate) fn find(&self, is_project: bool, path: &str) -> Option<Owner> {
        let (map, make): (_, fn(u64) -> Owner) = if is_project {
            (&self.projects, Owner::Project)
        } else {
            (&self.groups, Owner::Group)
        };
        let mut all = map.iter();
        all.find(|(_, known)| known.eq_ignore_ascii_case(path))
            .map(|(id, _)| make(*id))
    }

    /// Returns the API token with this value, if it is valid.
    pub(crate) fn find_authoriser(&self, token: Option<&str>) -> Option<&ApiToken> {
        let shown = hash_value(token?);
        let now = self.clock.now();
        let mut all = self.authorisers.iter();
        all.find(|known| {
            let is_over = known.is_revoked || known.expires_at.is_some_and(|end| end <= now);
            !is_over && bool::from(known.sha256.ct_eq(&shown))
        })
    }

    pub(crate) fn authorise(
        &mut self,
        person: u64,
        scopes: &[&str],
        prefix: &str,
        expires_at: Option<Timestamp>,
    ) -> String {
        let value = make_value(prefix);
        self.authorisers.push(ApiToken {
            sha256: hash_value(&value),
            person,
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            expires_at,
            is_revoked: false,
        });
        value
    }

    /// Returns the level of a person in a project or group: the highest of the levels there and in the groups above.
    pub(crate) fn level(&self, person: u64, owner: Owner) -> u8 {
        let Some(path) = self.find_path(owner) else { return 0 };
        let mut level = self.members.get(&(person, owner)).copied().unwrap_or(0);
        for (id, group) in &self.groups {
            let is_above = path
                .strip_prefix(group.as_str())
                .is_some_and(|rest| rest.starts_with('/'));
            if is_above {
                let there = self.members.get(&(person, Owner::Group(*id))).copied();
                level = level.max(there.unwrap_or(0));
            }
        }
        level
    }

    /// Issues a token. Only the answer has its value.
    pub(crate) fn add_token(&mut self, mut token: Token, value: &str, repositories: Vec<Repositories>) {
        let reads = token.scopes.iter().any(|scope| scope == "read_repository");
        token.sha256 = hash_value(value);
        if reads {
            for repositories in repositories {
                token.let_in.push(self.access.add_token(NewToken {
                    username: Some(&token.username),
                    value,
                    repositories,
                    may_write: false,
                    expires_at: token.expires_at.map(SystemTime::from),
                }));
            }
        }
        self.tokens.push(token);
    }

    /// Ends a token. The row stays only with `keeps_row`.
    pub(crate) fn end_token(&mut self, owner: Owner, id: u64, keeps_row: bool) -> bool {
        let access = self.access.clone();
        let mut all = self.tokens.iter_mut();
        let Some(token) = all.find(|token| token.id == id && token.owner == owner) else {
            return false;
        };
        for number in token.let_in.drain(..) {
            access.revoke(number);
        }
        token.is_revoked = true;
        if !keeps_row {
            self.tokens.retain(|token| token.id != id);
        }
        true
    }

    /// Accepts a key; returns `None` if the text is not a key, or the project is missing.
    pub(crate) fn add_key(
        &mut self,
        project: u64,
        title: &str,
        key: &str,
        may_write: bool,
        expires_at: Option<Timestamp>,
    ) -> Option<u64> {
        let repository = self.projects.get(&project)?;
        let let_in = self.access.add_key(NewKey {
            public: key,
            repository,
            may_write,
            expires_at: expires_at.map(SystemTime::from),
        });
        let let_in = let_in.ok()?;
        let id = self.next();
        self.keys.push(Key {
            id,
            project,
            title: title.to_owned(),
            key: strip_comment(key),
            may_write,
            created_at: self.clock.now(),
            expires_at,
            let_in,
        });
        Some(id)
    }

    /// Removes a key.
    pub(crate) fn end_key(&mut self, project: u64, id: u64) -> bool {
        let mut all = self.keys.iter();
        let Some(at) = all.position(|key| key.id == id && key.project == project) else {
            return false;
        };
        let key = self.keys.remove(at);
        self.access.revoke(key.let_in);
        true
    }

    /// Removes a project with everything that belongs to it.
    pub(crate) fn remove_project(&mut self, id: u64) {
        self.projects.remove(&id);
        self.moved.retain(|_, to| *to != id);
        let keys: Vec<u64> = self
            .keys
            .iter()
            .filter(|key| key.project == id)
            .map(|key| key.id)
            .collect();
        let tokens = self.tokens.iter().filter(|token| token.owner == Owner::Project(id));
        let tokens: Vec<u64> = tokens.map(|token| token.id).collect();
        for key in keys {
            self.end_key(id, key);
        }
        for token in tokens {
            self.end_token(Owner::Project(id), token, false);
        }
    }

    /// Returns the credentials that are valid now.
    pub(crate) fn live(&self) -> Vec<LiveCredential> {
        let now = self.clock.now();
        let is_over = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        let tokens = self
            .tokens
            .iter()
            .filter(|token| !token.is_revoked && !is_over(token.expires_at));
        let tokens = tokens.map(|token| LiveCredential {
            kind: LiveCredentialKind::Token,
            id: token.id,
            owner: token.owner,
            name: token.name.clone(),
            may_write: token.scopes.iter().any(|scope| scope.contains("write")),
            last_used_at: token
                .let_in
                .iter()
                .filter_map(|number| self.last_used_at(*number))
                .max(),
        });
        let keys = self
            .keys
            .iter()
            .filter(|key| !is_over(key.expires_at))
            .map(|key| LiveCredential {
                kind: LiveCredentialKind::Key,
                id: key.id,
                owner: Owner::Project(key.project),
                name: key.title.clone(),
                may_write: key.may_write,
                last_used_at: self.last_used_at(key.let_in),
            });
        tokens.chain(keys).collect()
    }

    pub(crate) fn last_used_at(&self, number: u64) -> Option<Timestamp> {
        self.access.last_used_at(number).and_then(|time| time.try_into().ok())
    }

    /// Returns the clone URLs of a project, for HTTP and for ssh.
    pub(crate) fn clone_urls(&self, path: &str) -> [String; 2] {
        self.clone_urls
            .clone()
            .map(|(before, after)| format!("{before}{path}{after}"))
    }
}

pub(crate) fn hash_value(value: &str) -> [u8; 32] {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest(&SHA256, value.as_bytes()).as_ref());
    sha256
}

/// Returns the kind and the key of a public key, without its comment.
pub(crate) fn strip_comment(key: &str) -> String {
    key.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Makes a value that can't be guessed.
pub(crate) fn make_value(prefix: &str) -> String {
    use base64::Engine as _;
    let mut bytes = [0_u8; 15];
    // A test without random bytes proves nothing. A second value of zeros would be noticed as a duplicate.
    let _ = SystemRandom::new().fill(&mut bytes);
    format!(
        "{prefix}{}",
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
    )
}
