//! Requests and answers about credentials at a host of repositories: one vocabulary for GitLab, GitHub, and Gitea with Forgejo.
//!
//! The types contain no addresses, connections or values. `crates/git-hosts` sends the requests and has all of these. A new value goes from the host's answer into
//! a Secret, without passing through this module.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The kind of a Git host, which determines its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// GitLab: deploy tokens of projects and groups, deploy keys of projects.
    Gitlab,
    /// GitHub: tokens of an App's installation, deploy keys.
    Github,
    /// Gitea and Forgejo: deploy keys.
    Gitea,
    /// No API: an administrator writes the Secret by hand, and Tenure watches only its age.
    Static,
}

/// The right that a credential gives: reading a repository, or pulling from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To clone and fetch.
    ReadRepository,
    /// To pull from the container registry.
    ReadRegistry,
}

/// The scope of a target: a project or a group of projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One repository, with its registry.
    Project,
    /// All projects below a path.
    Group,
}

/// A project or group with a known number. An approval stays bound to this number, even if the path later leads to another project.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// The scope: project or group.
    pub scope: Scope,
    /// The host's own number of the target. A host never gives the number to another target.
    pub id: u64,
    /// The last observed path of the target, such as `group-1/project-a`. Some APIs take no numbers (GitHub's deploy keys). For these, the path is used after a check
    /// that the path still has this number.
    pub path: String,
}

/// The kind of a credential that a Git host makes.
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
    /// All kinds.
    const ALL: [Self; 3] = [Self::DeployToken, Self::DeployKey, Self::InstallationToken];

    /// Returns the name of the kind in AccessProviders and requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DeployToken => "deploy-token",
            Self::DeployKey => "deploy-key",
            Self::InstallationToken => "installation-token",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The features that a Git host has for one kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact of a host's documentation"
)]
pub struct Capabilities {
    /// The host can make a new credential while an old one works.
    pub overlap: bool,
    /// The host ends the credential at a time that the order sets.
    pub expiry: bool,
    /// The host reports the last use of the credential.
    pub last_used: bool,
    /// The same order, sent twice, makes one credential.
    pub idempotent_create: bool,
    /// The host has such credentials for groups.
    pub group_scope: bool,
    /// A credential can be found by name and revoked by id after its creation.
    pub listed: bool,
}

/// An order to a Git host to make a new credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintRequest {
    /// The project or group.
    pub target: Target,
    /// The kind of the credential.
    pub kind: CredentialKind,
    /// The rights of the credential.
    pub role: Role,
    /// The name with which the credential is found again. The name is unique and identifies the owner.
    pub name: String,
    /// The user name for a token, where the host lets the client choose it. Unset: the host chooses.
    pub username: Option<String>,
    /// The time at which the host ends the credential, if the host supports an end.
    pub expires_at: Option<Timestamp>,
    /// For a deploy key: its public half in OpenSSH's form. The private half stays at the place of its creation.
    pub public_key: Option<String>,
}

/// The result of a [`MintRequest`], without the value. Only the caller has the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintedCredential {
    /// The host's number of the credential. Installation tokens have none.
    pub id: Option<u64>,
    /// The user name for the credential, as the host returned it. The order may have asked for another one.
    pub username: Option<String>,
    /// The end of the credential, as the host reports it.
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of the value (for a key: of its public half), as hex. With this, a Secret is recognised as the holder of the credential.
    pub fingerprint: String,
}

/// A credential, as a Git host lists it: without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCredential {
    /// The host's number of the credential.
    pub id: u64,
    /// The name or title of the credential.
    pub name: String,
    /// The end of the credential.
    pub expires_at: Option<Timestamp>,
    /// The credential was revoked, and the host still lists it.
    pub is_revoked: bool,
    /// The host reports that the credential has expired.
    pub is_expired: bool,
    /// The credential allows writes.
    pub may_write: bool,
    /// The time of the last use, where the host reports it.
    pub last_used_at: Option<Timestamp>,
}

/// The host's description of a project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetDescription {
    /// The target, with the path as the host writes it.
    pub target: Target,
    /// The URL for clones by HTTP, and by ssh. A group has neither.
    pub http_url: Option<String>,
    /// As `http_url`, for ssh. Converted to a URL where the host uses ssh's shorter form (`git@host:path`).
    pub ssh_url: Option<String>,
    /// The prefix of the project's image names, such as `registry.example.org/group-1/project-a`.
    pub registry_prefix: Option<String>,
}

/// The rights of a user in a project or group, in GitLab's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccessLevel(pub u8);

impl AccessLevel {
    /// The level that may approve for a project.
    pub const MAINTAINER: Self = Self(40);
    /// The level that may approve for a group.
    pub const OWNER: Self = Self(50);
}

/// One question or order to a host. The caller decides about HTTP requests, pages and retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostQuery {
    /// Find the project or group that has this path now.
    FindByPath {
        /// The scope: project or group.
        scope: Scope,
        /// The path as the user wrote it.
        path: String,
    },
    /// Read the host's current description of this number. The path may have changed.
    FindById {
        /// The scope: project or group.
        scope: Scope,
        /// The number.
        id: u64,
    },
    /// Find a project of a group, to try a credential of the group: the oldest project that has the content for the role.
    FindMember {
        /// The group.
        group: Target,
        /// The role that reads in the project.
        role: Role,
    },
    /// List all credentials of a kind, for all owners.
    List {
        /// The project or group.
        target: Target,
        /// The kind of the credentials.
        kind: CredentialKind,
    },
    /// Make a credential.
    Mint(MintRequest),
    /// End a credential. A missing credential counts as success.
    Revoke {
        /// The project or group.
        target: Target,
        /// The kind of the credential.
        kind: CredentialKind,
        /// The host's number of the credential.
        id: u64,
    },
    /// Check whether the authoriser's own credential works, and until when.
    ReadOwnCredential,
    /// Find the open, confidential issue of a project with this title and this text. An issue with another text belongs to another author.
    FindIssue {
        /// The project.
        target: Target,
        /// The complete title.
        title: String,
        /// The text with which the issue was opened.
        body: String,
    },
    /// Open an issue that only members of the project see.
    OpenIssue {
        /// The project.
        target: Target,
        /// The title.
        title: String,
        /// The text, in Markdown.
        body: String,
    },
    /// Close an issue. A missing issue counts as success.
    CloseIssue {
        /// The project.
        target: Target,
        /// The number of the issue in the project.
        number: u64,
    },
}

impl HostQuery {
    /// Checks whether the request changes the host. If its answer is lost, the effect is unknown.
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

/// An issue of a project at a Git host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// The number of the issue in the project.
    pub number: u64,
    /// The page of the issue for users.
    pub url: String,
}

/// The content of a host's answer, one variant for each kind of [`HostQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReply {
    /// To `FindByPath`, `FindById` and `FindMember`: the target. `None` if the target is missing *or* if the authoriser may not see it. The host's answer is the same
    /// in both cases.
    Found(Option<TargetDescription>),
    /// To `List`: all pages.
    Listed(Vec<ListedCredential>),
    /// To `Mint`.
    Minted(MintedCredential),
    /// To `Revoke`.
    Revoked,
    /// To `ReadOwnCredential`: the end of the credential, where the host reports it.
    OwnCredential(Option<Timestamp>),
    /// To `FindIssue` and `OpenIssue`.
    Issue(Option<Issue>),
    /// To `CloseIssue`.
    IssueClosed,
}

/// A code with which a user proves an identity in a browser (RFC 8628). Only the caller has the secret that belongs to the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCode {
    /// The code that the user types.
    pub user_code: String,
    /// The page on which the user types the code.
    pub verification_url: String,
    /// The end of the code.
    pub expires_at: Timestamp,
    /// The least number of seconds between two polls.
    pub interval_seconds: u64,
}

/// The result of a poll during the device flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DevicePollResult {
    /// The user has not typed the code yet.
    Pending,
    /// The user has not typed the code yet, and the poll came too early: from now on, wait five seconds more.
    SlowDown,
    /// The user refused.
    Denied,
    /// The code has expired.
    Expired,
    /// The user has proved the identity. The token that the host gave out for this was revoked.
    Shown(Membership),
}

/// The membership of a user in a project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The host's number of the user, which Tenure uses as the name.
    pub user_id: u64,
    /// The level of the user. Unset if the user is no member.
    pub level: Option<AccessLevel>,
}

/// The result of a probe, which shows a credential as its own client does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeResult {
    /// The credential opens its target.
    Accepted,
    /// The server doesn't know the credential, or refuses it for this target.
    Refused(String),
    /// No result: the server is down, blocks this address, or answers something else.
    Unclear(String),
    /// No result: the server takes no requests of this address for a while.
    Limited {
        /// The answer.
        why: String,
        /// The server's address, without credentials.
        url: String,
        /// The wait that the server requests, if it names one.
        wait: Option<Duration>,
    },
}

/// The reason why there is no usable answer. Text of a host is first made harmless: it is short, has one line, and contains nothing of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostError {
    /// The host refused the request, which had no effect.
    Refused {
        /// The HTTP status. 0 if no request was sent, because the host lacks this feature.
        status: u16,
        /// The host's message, made harmless.
        message: String,
    },
    /// The host doesn't accept the authoriser's credential, or no longer accepts it: 401.
    Unauthenticated,
    /// The credential is accepted but lacks the right: 403, with a body in the API's own form.
    Forbidden(String),
    /// 403 or 429 without the API's own form: the host blocks this address for a while. The block is no statement about any credential.
    Banned {
        /// The time of the next attempt, by the local clock.
        until: Timestamp,
    },
    /// Too many requests: the request had no effect.
    Limited {
        /// The time from which the host accepts requests again, by the local clock.
        until: Timestamp,
    },
    /// The effect is unknown: the connection was cut, timed out, returned a 5xx, or an answer to an order couldn't be read.
    Unknown(String),
    /// The request had no effect: no connection was made, or a question got no answer or a 5xx.
    Unreachable(String),
    /// The path leads elsewhere (301). The order was not executed there.
    Moved,
    /// Not an answer of this API: HTML, or too large. Only for questions; for an order this is `Unknown`.
    NotUnderstood(String),
}

impl HostError {
    /// Checks whether the order may have been executed despite the error.
    #[must_use]
    pub fn leaves_effect_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for HostError {
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
            Self::Unknown(why) => write!(formatter, "it is unknown whether it was done: {why}"),
            Self::Unreachable(why) => write!(formatter, "the host can't be asked: {why}"),
            Self::Moved => formatter.write_str("it has moved to another path; nothing was done there"),
            Self::NotUnderstood(why) => write!(formatter, "the answer is not one of this API: {why}"),
        }
    }
}
