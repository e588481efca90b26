//! What a host of repositories is asked about credentials, and what it answers: one vocabulary for GitLab, GitHub, and Gitea with Forgejo.
//!
//! Owns requests and answers as data. Refuses addresses, connections and values: who asks (`crates/providers`) has them, and what it made goes from
//! the answer into a Secret without passing here.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which API a host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// GitLab: deploy tokens of projects and groups, deploy keys of projects.
    Gitlab,
    /// GitHub: tokens of an App's installation, deploy keys.
    Github,
    /// Gitea and Forgejo: deploy keys.
    Gitea,
    /// None: somebody writes the Secret by hand, and only its age is watched.
    Static,
}

/// What a credential is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To clone and fetch.
    ReadRepository,
    /// To pull from the container registry.
    ReadRegistry,
}

/// Whether something is a project or a group of projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One repository, with its registry.
    Project,
    /// All projects below a path.
    Group,
}

/// A project or group whose number is known: what somebody approved stays this one, whatever its path comes to mean.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// Which of both.
    pub scope: Scope,
    /// The host's own number of it, which never comes to mean something else.
    pub id: u64,
    /// Its path when it was last seen, such as `group-1/project-a`. Where an API takes no numbers (GitHub's deploy keys), the path is asked after
    /// it was seen to have this number still.
    pub path: String,
}

/// Which form a credential has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialKind {
    /// A user name and a token (GitLab's deploy token).
    DeployToken,
    /// An ssh key of one repository.
    DeployKey,
    /// A token of an App's installation, which lives for one hour.
    InstallationToken,
}

impl CredentialKind {
    /// All of them.
    const ALL: [Self; 3] = [Self::DeployToken, Self::DeployKey, Self::InstallationToken];

    /// As AccessProviders and requests have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DeployToken => "deploy-token",
            Self::DeployKey => "deploy-key",
            Self::InstallationToken => "installation-token",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a kind of credential can do at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact of a host's documentation"
)]
pub struct Capabilities {
    /// A new one can be made while an old one works.
    pub overlap: bool,
    /// The host ends it at a time that is given when it is made.
    pub expiry: bool,
    /// The host says when it was used last.
    pub last_used: bool,
    /// What was asked twice is there once.
    pub idempotent_create: bool,
    /// There are some for a group.
    pub group_scope: bool,
    /// It can be found by its name, and revoked by its id, after it was made.
    pub listed: bool,
}

/// A credential that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintRequest {
    /// For what.
    pub target: Target,
    /// Of which form.
    pub kind: CredentialKind,
    /// What may be done with it.
    pub role: Role,
    /// By which it is found again: unique, and saying whose it is.
    pub name: String,
    /// The user name that goes with a token, where the host lets it be chosen; the host's own when absent.
    pub username: Option<String>,
    /// When the host ends it, if it can.
    pub expires_at: Option<Timestamp>,
    /// Of a deploy key: its public half in OpenSSH's form. The private half is where it was made.
    pub public_key: Option<String>,
}

/// What became of [`MintRequest`], besides the value, which is whoever's who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minted {
    /// The host's number of it. Installation tokens have none.
    pub id: Option<u64>,
    /// The user name that goes with it, as the host gave it, not as it was asked for.
    pub username: Option<String>,
    /// When it ends, as the host says.
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of the value (of a key: of its public half), as hex: by which a Secret is known to hold it.
    pub fingerprint: String,
}

/// A credential in a list of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The host's number of it.
    pub id: u64,
    /// Its name or title.
    pub name: String,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Somebody revoked it, and the host keeps the row.
    pub is_revoked: bool,
    /// The host says that its time is over.
    pub is_expired: bool,
    /// It may write.
    pub may_write: bool,
    /// When it was used last, where the host says so.
    pub last_used_at: Option<Timestamp>,
}

/// What a host says of a project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Which it is, with the path as the host writes it.
    pub target: Target,
    /// Where one clones it by HTTP, and by ssh. A group has neither.
    pub http_url: Option<String>,
    /// As `http_url`, and as a URL where the host has ssh's shorter form (`git@host:path`).
    pub ssh_url: Option<String>,
    /// What its images' names begin with, such as `registry.example.org/group-1/project-a`.
    pub registry_prefix: Option<String>,
}

/// How much somebody may at a project or group, in GitLab's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccessLevel(pub u8);

impl AccessLevel {
    /// What approves for a project.
    pub const MAINTAINER: Self = Self(40);
    /// What approves for a group.
    pub const OWNER: Self = Self(50);
}

/// One question or order to a host. What it takes in requests, pages and retries is the business of who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Which project or group has this path now.
    FindByPath {
        /// Which of both.
        scope: Scope,
        /// As somebody wrote it.
        path: String,
    },
    /// What the host says of this number now: its path may be another one.
    FindById {
        /// Which of both.
        scope: Scope,
        /// The number.
        id: u64,
    },
    /// A project of a group, in which a credential of the group can be tried: the oldest one that has what the role reads.
    FindMember {
        /// Of which group.
        group: Target,
        /// What is to be read there.
        role: Role,
    },
    /// All credentials of a kind, whosever they are.
    List {
        /// Of what.
        target: Target,
        /// Of which kind.
        kind: CredentialKind,
    },
    /// Make one.
    Mint(MintRequest),
    /// End one. That it is not there is success.
    Revoke {
        /// Of what.
        target: Target,
        /// Of which kind.
        kind: CredentialKind,
        /// Which.
        id: u64,
    },
    /// Whether the authoriser's own credential works, and until when.
    ReadOwnCredential,
    /// The open issue of a project that is called so and says so, which only members see. One that says something else is somebody else's.
    FindIssue {
        /// Of which project.
        target: Target,
        /// Its title, whole.
        title: String,
        /// What is in it, as it was opened.
        body: String,
    },
    /// Open an issue that only members of the project see.
    OpenIssue {
        /// Of which project.
        target: Target,
        /// Its title.
        title: String,
        /// What is in it, in Markdown.
        body: String,
    },
    /// Close an issue. That it is not there is success.
    CloseIssue {
        /// Of which project.
        target: Target,
        /// Its number there.
        number: u64,
    },
}

impl Ask {
    /// Whether it changes something at the host, so that a lost answer leaves open whether it was done.
    #[must_use]
    pub fn is_order(&self) -> bool {
        match self {
            Self::Mint(_) | Self::Revoke { .. } | Self::OpenIssue { .. } | Self::CloseIssue { .. } => true,
            Self::FindByPath { .. }
            | Self::FindById { .. }
            | Self::FindMember { .. }
            | Self::List { .. }
            | Self::ReadOwnCredential
            | Self::FindIssue { .. } => false,
        }
    }
}

/// An issue of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// Its number in the project.
    pub number: u64,
    /// Where people read it.
    pub url: String,
}

/// What a host answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// To `FindByPath`, `FindById` and `FindMember`: it, or `None` where there is none *or* where the authoriser may not see it: both read alike.
    Found(Option<Found>),
    /// To `List`: all pages.
    Listed(Vec<Listed>),
    /// To `Mint`.
    Minted(Minted),
    /// To `Revoke`.
    Revoked,
    /// To `ReadOwnCredential`: until when it works, where the host says so.
    OwnCredential(Option<Timestamp>),
    /// To `FindIssue`, and to `OpenIssue`.
    Issue(Option<Issue>),
    /// To `CloseIssue`.
    IssueClosed,
}

/// A code with which somebody shows in a browser who they are (RFC 8628). The secret that belongs to it is whoever's who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCode {
    /// What they type.
    pub user_code: String,
    /// Where they type it.
    pub verification_url: String,
    /// Until when.
    pub expires_at: Timestamp,
    /// How many seconds lie at least between two questions whether they did.
    pub interval_seconds: u64,
}

/// Whether somebody has shown who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceTold {
    /// Not yet.
    Pending,
    /// Not yet, and it was asked too soon: five seconds more from now on.
    SlowDown,
    /// They would not.
    Denied,
    /// The code lives no more.
    Expired,
    /// They have. What was given for that was given back.
    Shown(Membership),
}

/// What somebody is in a project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The host's number of them, by which they are called.
    pub user_id: u64,
    /// How much they may; nothing where they are no member.
    pub level: Option<AccessLevel>,
}

/// What came of showing a credential as its own client shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probed {
    /// It opens what it is for.
    Accepted,
    /// The server knows it not, or not for that.
    Refused(String),
    /// Neither: the server is down, keeps this address out, or answers something else.
    Unclear(String),
}

/// Why there is no answer that one can go on with. No text of a host's is in it but what was made harmless: short, one line, without what was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The host refused: what was asked had no effect.
    Refused {
        /// The status of HTTP; 0 where it was not asked at all, since the host has no such thing.
        status: u16,
        /// What it says, made harmless.
        message: String,
    },
    /// The authoriser's credential isn't accepted (any more): 401.
    Unauthenticated,
    /// It is accepted and may not do that: 403, with a body that is the API's own.
    Forbidden(String),
    /// 403 or 429 without the API's own form: the host keeps this address out for a while. Says nothing of any credential.
    Banned {
        /// When to ask again.
        until: Timestamp,
    },
    /// Too many requests: nothing was done.
    Limited {
        /// When the host takes requests again.
        until: Timestamp,
    },
    /// Nobody knows whether it had an effect: cut off, timed out, a 5xx, or an answer that can't be read after an order.
    Unknown(String),
    /// Nothing was done: no connection, or a question that got no answer, or a 5xx.
    Unreachable(String),
    /// The path leads elsewhere (301): what was ordered was not done there.
    Moved,
    /// Not an answer of this API: HTML, or more than is taken. Of a question only; an order's is `Unknown`.
    NotUnderstood(String),
}

impl Trouble {
    /// Whether what was ordered may have been done all the same.
    #[must_use]
    pub fn leaves_effect_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status: 0, message } => write!(formatter, "the host can't do that: {message}"),
            Self::Refused { status, message } => write!(formatter, "the host refused ({status}): {message}"),
            Self::Unauthenticated => formatter.write_str("the host does not accept the authoriser's credential (401)"),
            Self::Forbidden(message) => write!(
                formatter,
                "the authoriser's credential may not do that (403): {message}"
            ),
            Self::Banned { until } => write!(formatter, "the host keeps this address out until {until}"),
            Self::Limited { until } => write!(formatter, "the host takes no more requests until {until}"),
            Self::Unknown(why) => write!(formatter, "nobody knows whether it was done: {why}"),
            Self::Unreachable(why) => write!(formatter, "the host can't be asked: {why}"),
            Self::Moved => formatter.write_str("it has moved to another path; nothing was done there"),
            Self::NotUnderstood(why) => write!(formatter, "the answer is not one of this API: {why}"),
        }
    }
}
