//! Guards of deletions. Three deletions need a permission first: a large part of an inventory, all of it when the source becomes empty, and objects of protected kinds.
//!
//! A commit that empties a folder, or moves it, is a commit like any other. So a harmful deletion stops with a condition. The condition names the objects and a digest
//! of exactly them, incarnations included. An annotation with this digest allows their deletion and no other, even if it takes more than one attempt. When the
//! Kustomization itself is deleted, only protected objects are guarded. Objects that it has created need that annotation, and objects that existed before stay.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;
use tenure_api::digest::digest_bytes;
use tenure_api::metadata::ALLOW_DELETION;

use super::context::Context;
use super::types::Snapshot;
use super::{remote_cluster, tracking};
use crate::plan::Delete;

/// The number of objects that a message names.
const NAMED: usize = 20;

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
    let allowed = context.snapshot.attempt.allowed.as_deref().unwrap_or_default();
    let is_named = |digest: &str| {
        let mut digests = allowed.split(|character: char| character == ',' || character.is_whitespace());
        digests.any(|named| named == digest)
    };
    if let Some(before) = &context.memory.allowed
        && is_named(&before.digest)
        && objects.iter().all(|(id, uid)| before.objects.get(id) == Some(uid))
    {
        return true;
    }
    let digest = digest_of(objects);
    let named = is_named(&digest);
    if named {
        context.memory.allowed = Some(Allowed {
            digest,
            objects: objects.clone(),
        });
    }
    named
}

fn digest_of(objects: &BTreeMap<ObjectId, String>) -> String {
    let lines: String = objects.iter().map(|(id, uid)| format!("{id} {uid}\n")).collect();
    digest_bytes(lines.as_bytes())
}
