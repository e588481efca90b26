//! Guards of deletions. Three deletions need a permission first: a large part of an inventory, all of it when the source becomes empty, and objects of protected kinds.
//!
//! A commit that empties a folder, or moves it, is a commit like any other. So a harmful deletion stops with a condition. The condition names the objects and a digest
//! of exactly them, incarnations included. An annotation with this digest allows their deletion and no other, even if it takes more than one attempt. When the
//! Kustomization itself is deleted, only protected objects are guarded. Objects that it has created need that annotation, and objects that existed before stay.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_api::digest::digest_bytes;
use tenure_api::inventory::AllowedDeletion;
use tenure_api::kustomization::KustomizationStatus;
use tenure_api::metadata::ALLOW_DELETION;
use tenure_api::{ObjectId, ObjectView};

use super::context::Context;
use super::outcome::find_status_change;
use super::types::Snapshot;
use super::{Plan, remote_cluster, tracking};
use crate::answer::Live;
use crate::plan::Delete;

/// The number of objects that a message names.
const NAMED: usize = 20;
/// The most bytes of an allowed list that the status stores beside the inventory. A longer list has to be allowed again after a restart.
const MOST_STORED: usize = 256 * 1024;

/// The settings of the guards, from the administrator who runs the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guards {
    /// A prune of more than this share of the inventory is guarded, in percent; 100 guards none.
    pub prune_percent: u8,
    /// A prune of fewer objects is not guarded, whatever their share.
    pub prune_least: usize,
    /// Kinds that are neither pruned nor recreated unasked.
    pub protected: Vec<ProtectedKind>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            prune_percent: 50,
            prune_least: 10,
            protected: PROTECTED.iter().map(|kind| ProtectedKind::from(*kind)).collect(),
        }
    }
}

impl Guards {
    /// Checks whether an object is of a protected kind.
    pub(super) fn is_protected(&self, id: &ObjectId) -> bool {
        self.protected.iter().any(|kind| kind.covers(id))
    }

    /// Checks whether objects that own claims are guarded: where claims are.
    pub(super) fn asks_about_claims(&self) -> bool {
        self.protected.iter().any(|kind| kind.kind == "PersistentVolumeClaim")
    }
}

/// The kinds that are protected unless an administrator names others. Their objects hold data or other objects. The databases
/// and storage systems are those of common operators.
pub const PROTECTED: &[&str] = &[
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StatefulSet.apps",
    "Namespace",
    "CustomResourceDefinition.apiextensions.k8s.io",
    "Tenant.capsule.clastix.io",
    // Snapshots and volumes.
    "VolumeSnapshot.snapshot.storage.k8s.io",
    "VolumeSnapshotContent.snapshot.storage.k8s.io",
    "ObjectBucketClaim.objectbucket.io",
    "DataVolume.cdi.kubevirt.io",
    "VirtualMachine.kubevirt.io",
    "Volume.longhorn.io",
    "LinstorCluster.piraeus.io",
    "CephCluster.ceph.rook.io",
    "CephBlockPool.ceph.rook.io",
    "CephFilesystem.ceph.rook.io",
    "CephObjectStore.ceph.rook.io",
    "Tenant.minio.min.io",
    // PostgreSQL.
    "Cluster.postgresql.cnpg.io",
    "Database.postgresql.cnpg.io",
    "postgresql.acid.zalan.do",
    "PostgresCluster.postgres-operator.crunchydata.com",
    "PerconaPGCluster.pgv2.percona.com",
    "SGCluster.stackgres.io",
    "Cluster.apps.kubeblocks.io",
    // MySQL and MariaDB.
    "InnoDBCluster.mysql.oracle.com",
    "MySQLCluster.moco.cybozu.com",
    "MariaDB.k8s.mariadb.com",
    "PerconaXtraDBCluster.pxc.percona.com",
    "PerconaServerMySQL.ps.percona.com",
    "VitessCluster.planetscale.com",
    "TidbCluster.pingcap.com",
    // Document stores, caches and search.
    "MongoDBCommunity.mongodbcommunity.mongodb.com",
    "MongoDB.mongodb.com",
    "MongoDBMultiCluster.mongodb.com",
    "PerconaServerMongoDB.psmdb.percona.com",
    "Redis.redis.redis.opstreelabs.in",
    "RedisCluster.redis.redis.opstreelabs.in",
    "RedisFailover.databases.spotahome.com",
    "RedisReplication.redis.redis.opstreelabs.in",
    "RedisEnterpriseCluster.app.redislabs.com",
    "RedisEnterpriseDatabase.app.redislabs.com",
    "Valkey.hyperspike.io",
    "Dragonfly.dragonflydb.io",
    "Elasticsearch.elasticsearch.k8s.elastic.co",
    "OpenSearchCluster.opensearch.opster.io",
    "CouchbaseCluster.couchbase.com",
    "AerospikeCluster.asdb.aerospike.com",
    // Others.
    "CassandraDatacenter.cassandra.datastax.com",
    "K8ssandraCluster.k8ssandra.io",
    "ScyllaCluster.scylla.scylladb.com",
    "CrdbCluster.crdb.cockroachlabs.com",
    "FoundationDBCluster.apps.foundationdb.org",
    "ClickHouseInstallation.clickhouse.altinity.com",
    "ClickHouseKeeperInstallation.clickhouse-keeper.altinity.com",
    "Kafka.kafka.strimzi.io",
    "KafkaTopic.kafka.strimzi.io",
    "KafkaNodePool.kafka.strimzi.io",
    "ZookeeperCluster.zookeeper.pravega.io",
    "RabbitmqCluster.rabbitmq.com",
    "EtcdCluster.etcd.aenix.io",
    // Applications of Cozystack.
    "Postgres.apps.cozystack.io",
    "MySQL.apps.cozystack.io",
    "MariaDB.apps.cozystack.io",
    "MongoDB.apps.cozystack.io",
    "Redis.apps.cozystack.io",
    "FerretDB.apps.cozystack.io",
    "FoundationDB.apps.cozystack.io",
    "ClickHouse.apps.cozystack.io",
    "Kafka.apps.cozystack.io",
    "RabbitMQ.apps.cozystack.io",
    "NATS.apps.cozystack.io",
    "OpenSearch.apps.cozystack.io",
    "Qdrant.apps.cozystack.io",
    "Etcd.apps.cozystack.io",
    "OpenBAO.apps.cozystack.io",
    "Harbor.apps.cozystack.io",
    "SeaweedFS.apps.cozystack.io",
    "Monitoring.apps.cozystack.io",
    "Bucket.apps.cozystack.io",
    "VMDisk.apps.cozystack.io",
    "VMInstance.apps.cozystack.io",
    "VirtualMachine.apps.cozystack.io",
    "Kubernetes.apps.cozystack.io",
    "Tenant.apps.cozystack.io",
];

/// `Kind`, in any group, or `Kind.group`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ProtectedKind {
    kind: String,
    group: Option<String>,
}

impl ProtectedKind {
    fn covers(&self, id: &ObjectId) -> bool {
        self.kind == id.kind && self.group.as_ref().is_none_or(|group| *group == id.group)
    }
}

impl From<&str> for ProtectedKind {
    fn from(text: &str) -> Self {
        let (kind, group) = match text.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (text, None),
        };
        Self {
            kind: kind.to_owned(),
            group,
        }
    }
}

impl From<String> for ProtectedKind {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<ProtectedKind> for String {
    fn from(kind: ProtectedKind) -> Self {
        match kind.group {
            Some(group) => format!("{}.{group}", kind.kind),
            None => kind.kind,
        }
    }
}

/// Objects whose deletion was allowed, by their uids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// The digest that allowed it.
    pub digest: String,
    /// The objects.
    pub objects: BTreeMap<ObjectId, String>,
}

/// The result of the guards for deletions.
#[derive(Default)]
pub(super) struct Guarded {
    /// The allowed deletions, in their order.
    pub(super) free: Vec<Delete>,
    /// The reason for which the others are held.
    pub(super) held: Option<String>,
    /// Whether all held objects are held because they own claims. Any user who may create a claim can name an owner, so these objects delay no other deletion.
    pub(super) only_owners: bool,
}

impl Guarded {
    /// Returns why no object may be deleted at all.
    pub(super) fn find_stop(&self) -> Option<&str> {
        self.held.as_deref().filter(|_| !self.only_owners)
    }
}

/// The size of a prune.
pub(super) struct PruneSize {
    /// Counts the objects that this attempt would delete, including those that could not be read.
    pub(super) threatened: usize,
    /// The number of objects in the inventory.
    pub(super) inventory: usize,
    /// The number of objects in the source.
    pub(super) desired: usize,
}

/// Decides which deletions of a prune may happen.
pub(super) fn guard_prune(
    context: &mut Context<'_>,
    deletes: Vec<Delete>,
    owners: &BTreeSet<ObjectId>,
    size: &PruneSize,
) -> Guarded {
    let PruneSize {
        threatened, inventory, ..
    } = *size;
    if size.desired == 0 && !deletes.is_empty() && context.snapshot.guards.prune_percent < 100 {
        let why = format!(
            "prune stopped: path {} of the source has no objects any more, and all {threatened} that the inventory names would go",
            context.path
        );
        return hold_back(context, deletes, owners, |_| true, &why);
    }
    let guards = &context.snapshot.guards;
    let share = usize::from(guards.prune_percent);
    let most =
        threatened >= guards.prune_least.max(1) && threatened.saturating_mul(100) > inventory.saturating_mul(share);
    if most {
        let why = format!(
            "prune stopped: {threatened} of the {inventory} objects of the inventory would go, more than {share} %"
        );
        return hold_back(context, deletes, owners, |_| true, &why);
    }
    let why = "prune stopped: these would go and are protected";
    hold_back(context, deletes, owners, |id| guards.is_protected(id), why)
}

/// Decides which deletions of a recreation may happen.
pub(super) fn guard_recreation(
    context: &mut Context<'_>,
    deletes: Vec<Delete>,
    owners: &BTreeSet<ObjectId>,
) -> Guarded {
    let guards = &context.snapshot.guards;
    let why = "recreation stopped: these would go and are protected";
    hold_back(context, deletes, owners, |id| guards.is_protected(id), why)
}

/// Decides which deletions may happen when the Kustomization is deleted. Objects in a namespace that is being deleted are not guarded.
pub(super) fn guard_deletion(context: &mut Context<'_>, deletes: Vec<Delete>, owners: &BTreeSet<ObjectId>) -> Guarded {
    let snapshot = context.snapshot;
    let why = "deletion stopped: these would go and are protected";
    hold_back(context, deletes, owners, |id| is_guarded(snapshot, id), why)
}

/// Takes the objects of protected kinds out of these that existed before the Kustomization applied them. The deletion of a Kustomization
/// must not delete data that it did not create.
pub(super) fn exclude_adopted(context: &Context<'_>, deletes: &mut Vec<Delete>) -> Vec<Delete> {
    let snapshot = context.snapshot;
    let adopted = tracking::list_adopted(context.status().inventory.as_ref());
    let is_left = |delete: &mut Delete| {
        let id = &delete.target.id;
        adopted.contains(id) && is_guarded(snapshot, id)
    };
    deletes.extract_if(.., is_left).collect()
}

/// Checks whether an object is of a protected kind, and does not go with its namespace anyway.
pub(crate) fn is_guarded(snapshot: &Snapshot, id: &ObjectId) -> bool {
    snapshot.guards.is_protected(id) && !is_being_deleted(snapshot, id)
}

/// Checks whether an object is a namespace that is being deleted, or in one.
pub(super) fn is_being_deleted(snapshot: &Snapshot, id: &ObjectId) -> bool {
    let ending = &snapshot.endings.namespaces;
    let is_namespace = id.group.is_empty() && id.kind == "Namespace";
    !remote_cluster::is_elsewhere(snapshot)
        && (ending.contains(&id.namespace) || (is_namespace && ending.contains(&id.name)))
}

/// Holds back guarded objects, and owners of claims, unless exactly this deletion was allowed.
fn hold_back(
    context: &mut Context<'_>,
    deletes: Vec<Delete>,
    owners: &BTreeSet<ObjectId>,
    is_protected: impl Fn(&ObjectId) -> bool,
    why: &str,
) -> Guarded {
    let is_guarded = |delete: &Delete| is_protected(&delete.target.id) || owners.contains(&delete.target.id);
    let objects: BTreeMap<ObjectId, String> = deletes
        .iter()
        .filter(|delete| is_guarded(delete))
        .map(|delete| (delete.target.id.clone(), delete.uid.clone().unwrap_or_default()))
        .collect();
    if objects.is_empty() || is_allowed(context, &objects) {
        return Guarded {
            free: deletes,
            ..Guarded::default()
        };
    }
    let adopted = tracking::list_adopted(context.status().inventory.as_ref());
    let describe = |id: &ObjectId| {
        let notes = [
            (adopted.contains(id), "existed before"),
            (owners.contains(id), "owns PersistentVolumeClaims"),
        ];
        let notes: Vec<&str> = notes
            .iter()
            .filter(|(is_so, _)| *is_so)
            .map(|(_, note)| *note)
            .collect();
        match notes.is_empty() {
            true => id.subject(),
            false => format!("{} ({})", id.subject(), notes.join(", ")),
        }
    };
    let subjects: Vec<String> = objects.keys().take(NAMED).map(describe).collect();
    let more = match objects.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "{why}: {}{more}. If they are to go: kubectl -n {} annotate kustomization {} --overwrite {ALLOW_DELETION}={}",
        subjects.join(", "),
        context.namespace,
        context.name,
        digest_of(&objects),
    );
    let only_owners = !objects.keys().any(&is_protected);
    Guarded {
        free: deletes.into_iter().filter(|delete| !is_guarded(delete)).collect(),
        held: Some(message),
        only_owners,
    }
}

/// Checks whether the annotation names these objects. The rest of an allowed list is also allowed, as long as the annotation stays.
fn is_allowed(context: &mut Context<'_>, objects: &BTreeMap<ObjectId, String>) -> bool {
    let snapshot = context.snapshot;
    let is_rest = |before: &Allowed| {
        is_named(snapshot, &before.digest) && objects.iter().all(|(id, uid)| before.objects.get(id) == Some(uid))
    };
    if context.memory.allowed.as_ref().is_some_and(is_rest) {
        return true;
    }
    if let Some(stored) = read_stored(&context.status()).filter(is_rest) {
        context.memory.allowed = Some(stored);
        return true;
    }
    let digest = digest_of(objects);
    let named = is_named(snapshot, &digest);
    if named {
        context.memory.allowed = Some(Allowed {
            digest,
            objects: objects.clone(),
        });
    }
    named
}

/// Checks whether the annotation names a digest.
fn is_named(snapshot: &Snapshot, digest: &str) -> bool {
    let allowed = snapshot.attempt.allowed.as_deref().unwrap_or_default();
    let mut digests = allowed.split(|character: char| character == ',' || character.is_whitespace());
    digests.any(|named| named == digest)
}

/// Reads the list that the status stores. Its digest is computed, so the annotation allows no list that was changed in the status.
fn read_stored(status: &KustomizationStatus) -> Option<Allowed> {
    let stored = status.allowed_deletions.iter();
    let objects: BTreeMap<ObjectId, String> = stored
        .map(|allowed| Some((allowed.id.parse().ok()?, allowed.uid.clone())))
        .collect::<Option<_>>()?;
    (!objects.is_empty()).then(|| Allowed {
        digest: digest_of(&objects),
        objects,
    })
}

/// Adds the allowed list to the status that is stored before the first deletion. After a restart, the uids of deleted objects are not known any more, and the digest
/// can't be computed from the rest.
pub(super) fn store_allowed(snapshot: &Snapshot, mut plan: Box<Plan>) -> Box<Plan> {
    let Some(allowed) = plan.memory.allowed.as_ref().filter(|_| !plan.steps.is_empty()) else {
        return plan;
    };
    if !is_in_use(snapshot, allowed) {
        return plan;
    }
    let objects = allowed.objects.iter().map(|(id, uid)| AllowedDeletion {
        id: id.to_string(),
        uid: uid.clone(),
    });
    let objects: Vec<AllowedDeletion> = objects.collect();
    let bytes: usize = objects.iter().map(|object| object.id.len() + object.uid.len()).sum();
    if bytes > MOST_STORED {
        return plan;
    }
    let mut status = plan.status.take().or_else(|| snapshot.kustomization.status.clone());
    status.get_or_insert_default().allowed_deletions = objects;
    plan.status = status.and_then(|status| find_status_change(snapshot, &status));
    plan.status_first = plan.status.is_some();
    plan
}

/// Removes the allowed list from the status if the annotation does not name it any more, or all its objects are gone.
pub(super) fn forget_allowed(snapshot: &Snapshot, status: &mut KustomizationStatus) {
    if !read_stored(status).is_some_and(|allowed| is_in_use(snapshot, &allowed)) {
        status.allowed_deletions.clear();
    }
}

/// Checks whether the annotation names a list, and an object of it exists.
fn is_in_use(snapshot: &Snapshot, allowed: &Allowed) -> bool {
    let exists = |(id, uid): (&ObjectId, &String)| {
        let live = snapshot.live.get(id).and_then(Live::object);
        live.is_some_and(|live| ObjectView::new(live).find_text("/metadata/uid").unwrap_or_default() == uid)
    };
    is_named(snapshot, &allowed.digest) && allowed.objects.iter().any(exists)
}

fn digest_of(objects: &BTreeMap<ObjectId, String>) -> String {
    let lines: String = objects.iter().map(|(id, uid)| format!("{id} {uid}\n")).collect();
    digest_bytes(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_list_in_status_has_another_digest() {
        let store = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(id, uid)| AllowedDeletion {
                id: (*id).to_owned(),
                uid: (*uid).to_owned(),
            });
            let status = KustomizationStatus {
                allowed_deletions: entries.collect(),
                ..KustomizationStatus::default()
            };
            read_stored(&status).map(|allowed| allowed.digest)
        };
        let claim = ("team_data__PersistentVolumeClaim", "u1");
        let allowed = store(&[claim]).unwrap();
        for changed in [
            vec![claim, ("team_more__PersistentVolumeClaim", "u2")],
            vec![(claim.0, "u2")],
            vec![("team_more__PersistentVolumeClaim", "u1")],
        ] {
            assert_ne!(store(&changed), Some(allowed.clone()), "{changed:?}");
        }
        // A list that can't be read, or an empty one, allows nothing.
        assert_eq!(store(&[claim, ("../..", "u")]), None);
        assert_eq!(store(&[]), None);
    }
}
