//! What a scenario's file says: a cluster, a Kustomization, its revisions, and what happens in which order.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_planner::kustomization::{ApplySettings, Endings, Guards, Rival, ServiceAccountFacts, Survey, TokenAnswer};
use tenure_tenancy::Realm;

use crate::builds::Build;
use crate::world::Refusal;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scenario {
    /// What it shows.
    #[expect(dead_code, reason = "for the reader of the file")]
    pub(crate) about: String,
    pub(crate) realm: Realm,
    pub(crate) kustomization: Value,
    /// Rendered objects by revision: origin → object.
    pub(crate) revisions: BTreeMap<String, Build>,
    #[serde(default)]
    pub(crate) unknown_kinds: Vec<String>,
    #[serde(default)]
    pub(crate) guards: Guards,
    #[serde(default)]
    pub(crate) settings: ApplySettings,
    /// In seconds.
    #[serde(default)]
    pub(crate) least_interval: u64,
    pub(crate) script: Vec<Act>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Act {
    /// The source has this revision now.
    Source(String),
    /// The source is not there, or has nothing: its Ready message.
    SourceFails(String),
    /// Reconcile until there is nothing to do at once.
    Reconcile,
    /// Make and carry out that many plans, and leave the attempt unfinished.
    Rounds(u32),
    /// Time passes, in seconds.
    Pass(i64),
    /// Somebody writes.
    Change {
        id: ObjectId,
        patch: Value,
        manager: String,
        /// By server-side apply.
        #[serde(default)]
        applies: bool,
        /// The watch hasn't told of it yet.
        #[serde(default)]
        unseen: bool,
    },
    /// What is at a path of an object.
    Shows {
        id: ObjectId,
        path: String,
    },
    /// Somebody deletes.
    Remove(ObjectId),
    Refuse(Refusal),
    /// No more refusals.
    Allow,
    /// These kinds are not served, and no objects of them are left.
    UnknownKinds(Vec<String>),
    /// Encrypted files that were changed are refused from here on.
    StrictSops,
    /// A merge patch of the Kustomization's spec.
    Spec(Value),
    /// The annotation `reconcile.fluxcd.io/requestedAt`.
    Request(String),
    /// The annotation `tenure.dev/allow-deletion`: the digest that the Ready condition names.
    AllowDeletion,
    /// The annotation `tenure.dev/apply`; all when empty.
    ApplyMode(String),
    /// The Kustomization is deleted.
    Delete,
    /// The process dies: its memory and the attempt are lost.
    Crash,
    /// The ServiceAccount, or that it is gone.
    ServiceAccount(ServiceAccountFacts),
    /// Another Kustomization owns an object, by its labels and its own inventory.
    Owner {
        id: ObjectId,
        rival: Box<Rival>,
    },
    /// What a look at the other Kustomizations of its source shows.
    Siblings(Survey),
    /// The status can't be written that often.
    StatusFails(u32),
    /// Tenants and namespaces are these now.
    Realm(Realm),
    /// What is ending around it.
    Endings(Endings),
    /// A dependency's state: whether it is ready.
    Dependency {
        name: String,
        ready: bool,
        /// All of it, for an expression.
        #[serde(default)]
        whole: Option<Value>,
    },
    /// What is said when a token to send to another cluster is ordered.
    Token(TokenAnswer),
    /// An object of this cluster, while the Kustomization applies to another one; its Secrets' data as texts.
    Here(Value),
    /// The object of that name is gone from this cluster.
    GoneHere(ObjectId),
    /// An annotation of the Kustomization, in which CLUSTER is what Ready calls the cluster.
    Annotate {
        key: String,
        value: String,
    },
    /// The way from dependency to dependency back to the Kustomization.
    Cycle(Vec<String>),
    /// The status gets this inventory by other hands.
    Forge(Vec<String>),
    /// The inventory says that these existed before.
    Adopted(Vec<String>),
    /// That many writes may have happened since the last of these.
    Writes(u64),
    /// Something wakes it that often in a row: it is planned each time, and nothing of that is told.
    Wakes(u32),
    /// That many requests were made since the last of these.
    Requests(u64),
    /// That many events were emitted since the last of these.
    Events(u64),
    /// Every request takes that many seconds.
    Slow(i64),
    /// These are what the last plan watches.
    Watches(Vec<ObjectId>),
}
