//! The content of a scenario's file: a cluster, a Kustomization, its revisions, and the events in their order.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_planner::kustomization::{
    ApplySettings, Guards, OngoingDeletions, OtherOwner, ServiceAccountFacts, Survey, TokenAnswer,
};
use tenure_tenancy::TenancyFacts;

use crate::builds::Build;
use crate::world::Refusal;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The behaviour that the scenario shows.
    #[expect(dead_code, reason = "for the reader of the file")]
    pub(crate) about: String,
    #[serde(rename = "realm")]
    pub(crate) tenancy: TenancyFacts,
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
    /// Reconcile until no immediate step is left.
    Reconcile,
    /// Make and carry out that many plans, and leave the attempt unfinished.
    Rounds(u32),
    /// Time passes, in seconds.
    Pass(i64),
    /// Another client writes.
    Change {
        id: ObjectId,
        patch: Value,
        manager: String,
        /// Whether the write is a server-side apply.
        #[serde(default)]
        applies: bool,
        /// Whether the watch hasn't reported the write yet.
        #[serde(default)]
        unseen: bool,
    },
    /// The value at a path of an object.
    Shows {
        id: ObjectId,
        path: String,
    },
    /// Another client deletes.
    Remove(ObjectId),
    Refuse(Refusal),
    /// No more refusals.
    Allow,
    /// These kinds are not served, and no objects of them remain.
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
    /// Another Kustomization owns an object, by the object's labels and its own inventory.
    Owner {
        id: ObjectId,
        rival: Box<OtherOwner>,
    },
    /// The result of a survey of the other Kustomizations of the source.
    Siblings(Survey),
    /// The status can't be written that often.
    StatusFails(u32),
    /// Tenants and namespaces are these now.
    #[serde(rename = "realm")]
    Tenancy(TenancyFacts),
    /// The deletions around the Kustomization.
    Endings(OngoingDeletions),
    /// A dependency's state: whether it is ready.
    Dependency {
        name: String,
        ready: bool,
        /// The whole object, for an expression.
        #[serde(default)]
        whole: Option<Value>,
    },
    /// The answer to a request for a token for another cluster.
    Token(TokenAnswer),
    /// An object of this cluster, while the Kustomization applies to another one; its Secrets' data as texts.
    Here(Value),
    /// The object of that name is gone from this cluster.
    GoneHere(ObjectId),
    /// Set an annotation of the Kustomization, in which CLUSTER stands for the cluster's name in Ready.
    Annotate {
        key: String,
        value: String,
    },
    /// The way from dependency to dependency back to the Kustomization.
    Cycle(Vec<String>),
    /// The status gets this inventory by other hands.
    Forge(Vec<String>),
    /// The inventory says that these objects existed before.
    Adopted(Vec<String>),
    /// The number of allowed writes since the last such check.
    Writes(u64),
    /// The number of wake-ups in a row: each causes a plan, without a line in the output.
    Wakes(u32),
    /// The number of requests since the last such check.
    Requests(u64),
    /// The number of events since the last such check.
    Events(u64),
    /// Every request takes that many seconds.
    Slow(i64),
    /// The objects that the last plan watches.
    Watches(Vec<ObjectId>),
}
