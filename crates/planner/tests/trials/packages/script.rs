//! The content of a scenario's file: PackageSources, Packages, and the events in their order.

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_planner::package_settings::Settings;

use crate::world::Refusal;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The behaviour that the scenario shows.
    #[expect(dead_code, reason = "for the reader of the file")]
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) settings: Settings,
    /// The Tenants of namespaces.
    #[serde(default)]
    pub(crate) tenants: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) sources: Vec<Value>,
    #[serde(default)]
    pub(crate) packages: Vec<Value>,
    pub(crate) script: Vec<Act>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Act {
    /// Reconcile a Package until no immediate step is left.
    Reconcile(String),
    /// Reconcile a PackageSource until no immediate step is left.
    ReconcileSource(String),
    /// Make and carry out that many plans of a Package, and leave the attempt unfinished.
    Rounds {
        package: String,
        rounds: u32,
    },
    /// A Package is created, or its metadata and spec are replaced.
    Package(Value),
    /// A PackageSource is created, or its metadata and spec are replaced.
    Source(Value),
    /// A merge patch of a Package's spec.
    Spec {
        package: String,
        patch: Value,
    },
    /// A merge patch of a PackageSource's spec.
    SourceSpec {
        source: String,
        patch: Value,
    },
    /// Annotations of a Package.
    Annotate {
        package: String,
        annotations: std::collections::BTreeMap<String, String>,
    },
    /// The changes of a PackageValues; none when null.
    Values {
        package: String,
        #[serde(default)]
        components: Option<Value>,
        #[serde(default)]
        ignore_dependencies: Vec<String>,
        #[serde(default)]
        values_from: Vec<Value>,
    },
    /// The annotation `tenure.dev/allow-deletion`: the digest that the condition names.
    AllowDeletion(String),
    /// A Package is deleted.
    Delete(String),
    /// A PackageSource disappears.
    RemoveSource(String),
    /// A PackageSource is being deleted.
    DeleteSource(String),
    /// helm-controller reports a result for the present generation of a HelmRelease.
    Helm {
        id: ObjectId,
        ready: String,
        #[serde(default)]
        message: String,
        /// A reason before the installation: helm-controller leaves `status.observedGeneration` then.
        #[serde(default)]
        early: Option<String>,
    },
    /// The controller of ArtifactGenerators reports a result.
    Generator {
        id: ObjectId,
        ready: String,
        reason: String,
        message: String,
        /// Another generation than the present one.
        #[serde(default)]
        observed: Option<i64>,
    },
    /// Another client writes.
    Change {
        id: ObjectId,
        patch: Value,
        manager: String,
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
    /// The definitions drop the fields of the status that record objects.
    DropRecords,
    /// The definitions have these fields.
    StoreRecords,
    /// The definition of HelmReleases is older than `spec.valuesFrom[].literal`.
    DropLiterals,
    /// The process dies: its memory, the attempts and the random text are lost.
    Crash,
    /// Time passes, in seconds.
    Pass(i64),
    /// The number of writes to other objects since the last such check.
    Writes(u64),
}
