//! One credential in one namespace, from the intent to make it to the proof that it is in use, and to the end of its predecessor.
//!
//! The ledger in the request's status records the progress. The next step follows from the ledger, the observed state, and the answer to the previous step. A
//! controller that dies between two steps loses only the answer. Each order to the host is recorded under its name before the controller sends the order. If the
//! answer to an order is unknown, the plan looks for that name at the host before it makes another credential.
//!
//! ```text
//!  due ─▶ Preflight ─▶ Intent ──────▶ Staged ────────▶ Distributed ────────────▶ current        the old one:
//!        dry runs of   recorded, then  value in the     value in the Secret,       verified  ──▶ retiring ──▶ revoked
//!        all writes    ordered         staging Secret,  sources asked, probed again             for the overlap
//!                        │ no answer    probed
//!                        ▼
//!                      list, find by name ─▶ Minted (value lost) ─▶ revoked, and from the beginning under another name
//! ```
//!
//! A plan never holds a value: the shell makes and stages a credential in one step, and keeps the value only during this step. A plan never touches a Secret of
//! another writer. While a credential is wanted, the plan revokes it only after a newer one is proven. Silence, a ban or an outage of the host is no answer.

mod answer;
pub mod conditions;
mod failures;
pub mod handover;
mod host_checks;
pub mod leftover_credentials;
pub mod name;
mod pull_secret_names;
pub mod rate_limits;
mod revocation;
pub mod schedule;
mod state_machine;
mod trials;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;
use tenure_api::access::request::CredentialLedger;

use self::handover::{Predecessor, Successor};
use self::rate_limits::RateLimitState;
pub use self::trials::TrialResult;
use super::pull_secrets::{AccountChange, ObservedAccounts};
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, ListedCredential, MintRequest, MintedCredential, Role, Target,
    TargetDescription,
};

/// The observed state of one credential.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Uid of the request.
    pub request_uid: String,
    /// Name of the request. The label of the Secret has this name.
    pub request_name: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
    /// The approved project or group.
    pub target: Target,
    /// The kind of the credentials.
    pub kind: CredentialKind,
    /// The capabilities of such credentials at this host.
    pub capabilities: Capabilities,
    /// The role of the credential.
    pub role: Role,
    /// The user name of a token, if the request sets one.
    pub username: Option<String>,
    /// The interval of replacement.
    pub rotate: Period,
    /// The wanted state.
    pub wanted: WantedState,
    /// Requests of the same entry whose Secret may be taken over.
    pub predecessors: Vec<Predecessor>,
    /// The request of the same entry that takes over the Secret, if any.
    pub successor: Option<Successor>,
    /// The order of a user to replace the credential now.
    pub order: Option<Order>,
    /// The recorded ledger.
    pub ledger: CredentialLedger,
    /// The namespace.
    pub namespace: NamespaceState,
    /// The Secret in the namespace.
    pub secret: SecretState,
    /// True if the request in the Secret's label delivers such a Secret to the namespace, or has delivered one. Otherwise another user wrote the label.
    pub is_mark_valid: bool,
    /// The content of the staging Secret for this credential.
    pub staging: StagingState,
    /// The ServiceAccounts of the namespace that should list the Secret in `imagePullSecrets`.
    pub accounts: ObservedAccounts,
    /// The sources of the namespace that use the Secret.
    pub sources: Vec<SourceState>,
    /// SHA-256 of the host's own certificate authority, as hex. Unset if the host has none, or if the controller has not read it yet.
    pub authority: Option<String>,
    /// The last known list of the host.
    pub listing: Option<Listing>,
    /// The limits for requests to the host.
    pub restraint: RateLimitState,
    /// The time by which the host's clock (the header `Date`) is ahead of the local clock.
    pub host_ahead: SignedDuration,
    /// Random letters and digits, different in each snapshot.
    pub nonce: String,
    /// The answer to the step of the previous plan. Unset if the answer is unknown, for example after a start.
    pub answer: Option<Answer>,
}

/// The wanted state of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedState {
    /// The credential is in the namespace.
    Delivered,
    /// Nothing new is made or distributed for now, for this reason.
    HeldBack(String),
    /// The credential exists nowhere, for this reason.
    Revoked(String),
    /// As `Revoked`, but without waiting for the host: the plan reports the credentials that remain there, and forgets them.
    Abandoned(String),
}

/// An order to replace a credential before it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Identifies the order, so that the ledger can record its completion.
    pub id: String,
    /// The reason.
    pub cause: String,
    /// The old credential has leaked: the plan revokes it as soon as the new one is proven.
    pub is_leak: bool,
}

/// The state of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// The namespace exists.
    Present,
    /// The namespace is being deleted.
    Terminating,
    /// The namespace is missing.
    Gone,
    /// The state is unknown.
    Unknown,
}

/// The Secret in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretState {
    /// The Secret couldn't be read, for this reason.
    Unknown(String),
    /// The Secret is missing.
    Absent,
    /// The Secret exists.
    Present(SecretFacts),
}

/// The facts of a Secret that a plan needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Uid.
    pub uid: String,
    /// Resource version: writes require this version.
    pub resource_version: String,
    /// Value of the label that marks Tenure's Secrets.
    pub marked_for: Option<String>,
    /// SHA-256 of the value in the Secret, as hex. Unset if the Secret has no value of the expected form.
    pub fingerprint: Option<String>,
    /// SHA-256 of the Secret's `ca.crt`, as hex.
    pub authority: Option<String>,
}

/// The content of the staging Secret for this credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagingState {
    /// The staging Secret couldn't be read, for this reason.
    Unknown(String),
    /// The staging Secret has no value of this credential.
    Absent,
    /// The staging Secret has a value of this credential.
    Present(StagedFacts),
}

/// The metadata of a staged value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFacts {
    /// The nonce of the credential's name.
    pub nonce: String,
    /// True if the host has made the credential. The private half of a key is staged before the host knows the key.
    pub is_minted: bool,
    /// The host's number of the credential.
    pub id: Option<u64>,
    /// SHA-256 of the value.
    pub fingerprint: String,
    /// The end of the credential.
    pub expires_at: Option<Timestamp>,
}

/// A source that uses the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Kind and name, such as `GitRepository/apps`.
    pub name: String,
    /// True if the source is suspended, so it fetches nothing.
    pub is_suspended: bool,
    /// The interval between fetches.
    pub interval: Duration,
    /// The annotation `reconcile.fluxcd.io/requestedAt`.
    pub asked: Option<String>,
    /// `status.lastHandledReconcileAt`.
    pub last_handled: Option<String>,
    /// Start of the host's refusal, if the host refuses the credential: the reason of the source's condition is `AuthenticationFailed`.
    pub refused_at: Option<Timestamp>,
}

impl SourceState {
    /// Checks whether the source has fetched since the annotation with this token, and was not refused. Other failures, such as a missing branch, don't count against
    /// the credential: the source has read the Secret.
    pub(crate) fn has_used(&self, token: &str) -> bool {
        self.last_handled.as_deref() == Some(token) && self.refused_at.is_none()
    }
}

/// A list of credentials from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The time of the request for the list.
    pub asked_at: Timestamp,
    /// All credentials of the kind and target.
    pub credentials: Vec<ListedCredential>,
}

/// The next step. A shell executes the step and returns the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the plan's ledger into the status, bound to the version that was read: [`Answer::Recorded`].
    Record,
    /// Begin a trial of the target ([`rate_limits::HostRateLimiter::begin_trial`]), write the ledger as `Record` does, then order the recorded credential at once:
    /// [`Answer::Begun`]. No other caller sends this order, and no later plan does. Without room for the trial, nothing is written, and the plan is made again.
    Begin,
    /// Try all coming writes as dry runs, in the staging Secret and in the Secret of the namespace: [`Answer::Preflight`].
    Preflight,
    /// Order the credential, and write value, nonce and number into the staging Secret: [`Answer::Minted`]. For a key, the shell first makes and stages the private
    /// half, then orders the public half.
    MintAndStage(MintRequest),
    /// Request all pages of the list, and store the result as the last list: [`Answer::Listed`].
    List(Target),
    /// Look up the project or group with the target's number: [`Answer::Found`].
    Find(Target),
    /// End a credential at the host: [`Answer::Revoked`].
    Revoke {
        /// The project or group.
        target: Target,
        /// The host's number of the credential.
        id: u64,
    },
    /// Try the staged value as its client would: [`Answer::Probed`].
    ProbeStaged,
    /// Write the staged value into the Secret of the namespace, with Tenure's mark, bound to the observed version: [`Answer::Spread`].
    Spread(Option<SecretFacts>),
    /// Restore Tenure's mark on the Secret, and write the host's authority into the Secret: [`Answer::Spread`].
    Mark(SecretFacts),
    /// Annotate these sources with this value of `reconcile.fluxcd.io/requestedAt`: [`Answer::Asked`].
    AskSources {
        /// Kinds and names.
        sources: Vec<String>,
        /// The value.
        token: String,
    },
    /// Try the value in the Secret as its client would: [`Answer::Probed`].
    ProbeDelivered,
    /// Delete the Secret, bound to its uid and version: [`Answer::SecretDeleted`].
    DeleteSecret(SecretFacts),
    /// Add the Secret to the `imagePullSecrets` of accounts, or remove it, bound to the observed version of each account: [`Answer::Named`].
    ChangeAccounts(Vec<AccountChange>),
    /// Remove this credential's value from the staging Secret: [`Answer::StagingCleared`].
    ClearStaging,
}

impl Step {
    /// Returns the name of the step without its content, for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Record => "Record",
            Self::Begin => "Begin",
            Self::Preflight => "Preflight",
            Self::MintAndStage(_) => "MintAndStage",
            Self::List(_) => "List",
            Self::Find(_) => "Find",
            Self::Revoke { .. } => "Revoke",
            Self::ProbeStaged => "ProbeStaged",
            Self::Spread(_) => "Spread",
            Self::Mark(_) => "Mark",
            Self::AskSources { .. } => "AskSources",
            Self::ProbeDelivered => "ProbeDelivered",
            Self::DeleteSecret(_) => "DeleteSecret",
            Self::ChangeAccounts(_) => "ChangeAccounts",
            Self::ClearStaging => "ClearStaging",
        }
    }
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ledger was written.
    Recorded,
    /// The ledger was written, and the order was not sent yet.
    Begun,
    /// The result of the dry runs. An error names the refused write and the missing grant.
    Preflight(Result<(), String>),
    /// The credential was made and staged.
    Minted(MintedCredential),
    /// The credential was made, but could not be staged.
    MintedOnly(MintedCredential, String),
    /// The credential was not made, or the result is unknown.
    MintFailed(HostError),
    /// The list.
    Listed(Result<Vec<ListedCredential>, HostError>),
    /// The project or group with the number.
    Found(Result<Option<TargetDescription>, HostError>),
    /// The result of the revocation of this number.
    Revoked(u64, Result<(), HostError>),
    /// The result of the probe.
    Probed(Probe),
    /// The result of the write of the Secret: its uid.
    Spread(Result<String, WriteFailure>),
    /// All sources were annotated, except where the write failed.
    Asked,
    /// The result of the deletion of the Secret.
    SecretDeleted(Result<(), WriteFailure>),
    /// The result of the change of accounts.
    Named(Result<(), WriteFailure>),
    /// The result of clearing the staging Secret.
    StagingCleared(Result<(), WriteFailure>),
}

/// The reason why a write to the cluster failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// The object has changed since the snapshot.
    Changed,
    /// The API server refuses the write. The text names the missing grant.
    Refused(String),
    /// The result is unknown.
    Unknown(String),
}

/// The result that a client of the credential would see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The server accepts the credential.
    Works,
    /// The server refuses the credential.
    Refused(String),
    /// The host takes no requests of this address until the given time, by the local clock. That is no statement about the credential.
    Banned(Timestamp),
    /// The result is unknown.
    Unreachable(String),
}

/// An occurrence for the history, events and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationEvent {
    /// `Begun`, `Minted`, `Lost`, `Distributed`, `Verified`, `Revoked` or `Expired`.
    pub action: &'static str,
    /// The number of the credential.
    pub generation: u64,
    /// The host's number of the credential.
    pub id: Option<u64>,
    /// The reason.
    pub cause: String,
}

/// The decisions for one credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ledger to record. Equal to the recorded ledger, unless the step records it.
    pub ledger: CredentialLedger,
    /// The next step.
    pub step: Option<Step>,
    /// Occurrences since the last record of the ledger. They are reported when this ledger is recorded.
    pub happened: Vec<RotationEvent>,
    /// The findings for the conditions.
    pub findings: Vec<conditions::Finding>,
    /// The host's verdict on a new credential, if it is known now: [`rate_limits::HostRateLimiter::record_trial`].
    pub trial: Option<TrialResult>,
    /// The time of the next plan, if no change is observed before.
    pub again: Timestamp,
    /// Everything that should end has ended or is forgotten, so the ledger can be removed.
    pub is_over: bool,
    /// Another writer owns the Secret: Tenure makes no credential, and doesn't observe its use.
    pub is_by_hand: bool,
}

/// Returns the next step and the state to record.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    state_machine::StateMachine::new(snapshot, now).run()
}

#[cfg(test)]
mod outside_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
