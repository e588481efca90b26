//! One credential in one namespace, from the intent to make it to the proof that it is in use, and to the end of its predecessor.
//!
//! Owns every decision about it. The ledger in the request's status says how far it has come; what is done next follows from that, from what is seen, and from
//! the answer to the step before. Whoever dies in between loses the answer and nothing else: each order to the host is recorded under its name before it is
//! given, and a name that nobody has an answer for is looked for before another one is made.
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
//! Refuses values: minting and staging is one step of the shell, which keeps the value from one to the other. Refuses to touch a Secret that isn't
//! ours, to revoke what no newer one is proven for, and to take silence, a ban or an outage for an answer.

mod answer;
pub mod conditions;
mod ending;
pub mod handover;
mod looks;
mod machine;
pub mod name;
mod naming;
pub mod restraint;
pub mod schedule;
pub mod sweep;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;
use tenure_api::access::request::CredentialLedger;

use self::handover::{Heir, Predecessor};
use self::restraint::RestraintSeen;
use super::host::{Capabilities, CredentialKind, Found, Listed, MintRequest, Minted, Role, Target, Trouble};
use super::pull_secrets::{AccountChange, AccountsSeen};

/// All that is known of one credential.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Uid of the request.
    pub request_uid: String,
    /// Name of the request: by this the Secret is marked.
    pub request_name: String,
    /// What the Secret is called.
    pub secret_name: String,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
    /// The project or group, as it was approved.
    pub target: Target,
    /// Of which form credentials are.
    pub kind: CredentialKind,
    /// What such a credential can do at this host.
    pub capabilities: Capabilities,
    /// What it is for.
    pub role: Role,
    /// The user name of a token, where one is chosen.
    pub username: Option<String>,
    /// How often it is replaced.
    pub rotate: Period,
    /// What is wanted.
    pub wanted: Wanted,
    /// Requests of the same entry whose Secret may be taken over.
    pub predecessors: Vec<Predecessor>,
    /// The request of the same entry that takes the Secret over, if one does.
    pub heir: Option<Heir>,
    /// Somebody's order to replace it now.
    pub order: Option<Order>,
    /// The ledger, as it is recorded.
    pub ledger: CredentialLedger,
    /// The namespace.
    pub namespace: NamespaceSeen,
    /// The Secret in it.
    pub secret: SecretSeen,
    /// The staging Secret, as far as it is about this credential.
    pub staging: StagingSeen,
    /// The accounts of the namespace that are to have the Secret among their `imagePullSecrets`.
    pub accounts: AccountsSeen,
    /// The sources of the namespace that use the Secret.
    pub sources: Vec<SourceSeen>,
    /// SHA-256 of the host's own certificate authority, as hex; none if the host has none, or was not asked yet.
    pub authority: Option<String>,
    /// The last list of the host that is known.
    pub listing: Option<Listing>,
    /// How often the host may be asked.
    pub restraint: RestraintSeen,
    /// By how much the host's clock (the header `Date`) is ahead of this one.
    pub host_ahead: SignedDuration,
    /// Random letters and digits, others for each snapshot.
    pub nonce: String,
    /// The answer to the step that the plan before ordered. None when that is unknown: after a start, above all.
    pub answer: Option<Answer>,
}

/// What is wanted of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// That it is in the namespace.
    Delivered,
    /// That nothing new is made or spread for now, for this reason.
    HeldBack(String),
    /// That it is nowhere any more, for this reason.
    Revoked(String),
    /// The same, and nobody waits for the host: what lives on there is told, and forgotten.
    Abandoned(String),
}

/// An order to replace a credential before it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// By which it is known to be carried out.
    pub id: String,
    /// Why.
    pub cause: String,
    /// The old one is known to others: it is revoked as soon as the new one is proven.
    pub is_leak: bool,
}

/// Whether a namespace is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceSeen {
    /// It is.
    Present,
    /// It is being deleted.
    Terminating,
    /// It isn't.
    Gone,
    /// Nobody knows.
    Unknown,
}

/// The Secret in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSeen {
    /// It couldn't be read, and why.
    Unknown(String),
    /// There is none.
    Absent,
    /// There is one.
    Present(SecretFacts),
}

/// What counts of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Uid.
    pub uid: String,
    /// Version: writes are bound to it.
    pub resource_version: String,
    /// Value of the label by which we mark what is ours.
    pub marked_for: Option<String>,
    /// SHA-256 of the value in it, as hex; none if it has none of the form.
    pub fingerprint: Option<String>,
    /// SHA-256 of its `ca.crt`, as hex.
    pub authority: Option<String>,
}

/// What the staging Secret has of this credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagingSeen {
    /// It couldn't be read, and why.
    Unknown(String),
    /// Nothing.
    Absent,
    /// A value.
    Present(StagedFacts),
}

/// What stands beside a value that is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFacts {
    /// The nonce of its name.
    pub nonce: String,
    /// Whether the host has made it: of a key the private half is staged before.
    pub is_minted: bool,
    /// The host's number of it.
    pub id: Option<u64>,
    /// SHA-256 of it.
    pub fingerprint: String,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// A source that uses the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSeen {
    /// Kind and name, such as `GitRepository/apps`.
    pub name: String,
    /// Nothing is fetched for now.
    pub is_suspended: bool,
    /// How often it is fetched.
    pub interval: Duration,
    /// Its annotation `reconcile.fluxcd.io/requestedAt`.
    pub asked: Option<String>,
    /// `status.lastHandledReconcileAt`.
    pub last_handled: Option<String>,
    /// Since when the host refuses what it shows, if it does: the reason of its condition is `AuthenticationFailed`.
    pub refused_at: Option<Timestamp>,
}

impl SourceSeen {
    /// Whether it has fetched since it was asked with this token, and was not refused. Other failures, such as a branch that isn't there, don't count
    /// against the credential: the source has read the Secret.
    pub(in crate::access) fn has_used(&self, token: &str) -> bool {
        self.last_handled.as_deref() == Some(token) && self.refused_at.is_none()
    }
}

/// A list of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// All credentials of the kind and target.
    pub credentials: Vec<Listed>,
}

/// What is to be done next. A shell carries it out and brings the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the plan's ledger into the status, bound to the version that was read: [`Answer::Recorded`].
    Record,
    /// The same, and then order at once what was recorded: [`Answer::Begun`]. Nobody else does, and nobody does later.
    Begin,
    /// Dry runs of all writes that are to come, the staging Secret and the one of the namespace: [`Answer::Preflight`].
    Preflight,
    /// Order the credential, and write value, nonce and number into the staging Secret: [`Answer::Minted`]. Of a key the private half is made and staged
    /// first, and its public half ordered.
    MintAndStage(MintRequest),
    /// Ask for all pages of the list, and keep it as the last one: [`Answer::Listed`].
    List(Target),
    /// Ask what has the target's number: [`Answer::Found`].
    Find(Target),
    /// End a credential at the host: [`Answer::Revoked`].
    Revoke {
        /// Of what.
        target: Target,
        /// Which.
        id: u64,
    },
    /// Try the staged value as its client would: [`Answer::Probed`].
    ProbeStaged,
    /// Write the staged value into the Secret of the namespace, with our mark, bound to what was seen: [`Answer::Spread`].
    Spread(Option<SecretFacts>),
    /// Put our mark on the Secret again, and the host's authority into it: [`Answer::Spread`].
    Mark(SecretFacts),
    /// Annotate these sources with this value of `reconcile.fluxcd.io/requestedAt`: [`Answer::Asked`].
    AskSources {
        /// Kinds and names.
        sources: Vec<String>,
        /// The value.
        token: String,
    },
    /// Try what is in the Secret as its client would: [`Answer::Probed`].
    ProbeDelivered,
    /// Delete the Secret, bound to its uid and version: [`Answer::SecretDeleted`].
    DeleteSecret(SecretFacts),
    /// Put the Secret among the `imagePullSecrets` of accounts, or take it out, bound to what was seen of each: [`Answer::Named`].
    ChangeAccounts(Vec<AccountChange>),
    /// Take this credential's value out of the staging Secret: [`Answer::StagingCleared`].
    ClearStaging,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ledger was written.
    Recorded,
    /// The ledger was written, and nothing has been ordered since.
    Begun,
    /// What the dry runs said; what was refused, and which grant is missing.
    Preflight(Result<(), String>),
    /// It was made and staged.
    Minted(Minted),
    /// It was made and could not be staged.
    MintedOnly(Minted, String),
    /// It was not made, or nobody knows.
    MintFailed(Trouble),
    /// The list.
    Listed(Result<Vec<Listed>, Trouble>),
    /// What has the number.
    Found(Result<Option<Found>, Trouble>),
    /// What came of the revocation of this number.
    Revoked(u64, Result<(), Trouble>),
    /// What came of the probe.
    Probed(Probe),
    /// What came of writing the Secret: its uid.
    Spread(Result<String, WriteFailure>),
    /// The sources were asked, those that could be.
    Asked,
    /// What came of deleting the Secret.
    SecretDeleted(Result<(), WriteFailure>),
    /// What came of changing accounts.
    Named(Result<(), WriteFailure>),
    /// What came of clearing the staging Secret.
    StagingCleared(Result<(), WriteFailure>),
}

/// Why something could not be written to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// It isn't any more what it was when it was seen.
    Changed,
    /// It is refused; which grant is missing.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// What a client would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It is let in.
    Works,
    /// It is refused.
    Refused(String),
    /// The host keeps this address out until then: that says nothing of the credential.
    Banned(Timestamp),
    /// Nobody knows.
    Unreachable(String),
}

/// Something that happened, for the history, events and figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// `Begun`, `Minted`, `Lost`, `Distributed`, `Verified`, `Revoked` or `Expired`.
    pub action: &'static str,
    /// The number of the credential.
    pub generation: u64,
    /// The host's number of it.
    pub id: Option<u64>,
    /// Why.
    pub cause: String,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ledger as it is to be recorded; what is recorded already unless the step says so.
    pub ledger: CredentialLedger,
    /// The next step.
    pub step: Option<Step>,
    /// What has happened since the ledger was recorded; told when this one is.
    pub happened: Vec<Happening>,
    /// What there is to say.
    pub findings: Vec<conditions::Finding>,
    /// Whether the host refused a new credential for good: [`restraint::HostRestraint::note_refusal`].
    pub is_refused: bool,
    /// When to look again, if nothing is seen to change before.
    pub again: Timestamp,
    /// Everything that was wanted gone is gone, or forgotten: the ledger can go, too.
    pub is_over: bool,
    /// Somebody else writes the Secret: nothing is made, and nobody sees it in use.
    pub is_by_hand: bool,
}

/// What to do next.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    machine::Machine::new(snapshot, now).run()
}

#[cfg(test)]
mod outside_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
