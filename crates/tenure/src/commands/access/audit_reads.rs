//! The reads of `tenure access audit`, with the caller's rights. The module decides their order and concurrency. It reads the data of a Secret only if the metadata is
//! not enough. An unreadable object never counts as missing.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tenure_admission::webhook::find_end;
use tenure_cluster::discovery::{Discovery, KindLookup};
use tenure_inspection::access_audit::secret_uses::KINDS;
use tenure_inspection::access_audit::{Contents, Facts, Inventory, NamedObject, Row, SecretRead, Usage, find_readers};
use tenure_tenancy::access::bindings::{Bindings, Roles};

use crate::failure::Failure;
use crate::inspection::ONLY_METADATA;
use crate::paged_reads::{self, ReadRefusal};
use crate::resources;

/// The number of namespaces that are read at the same time, and the number of Secrets of each.
const AT_ONCE: usize = 4;
/// The largest number of objects of a kind that are searched for references.
const MOST_OBJECTS: usize = 100_000;
/// The largest number of roles and of bindings, for a namespace and for the cluster.
const MOST_OF_NAMESPACE: usize = 2_000;
const MOST_OF_CLUSTER: usize = 10_000;
const JSON: &str = "application/json";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The result of the audit's reads: the Secrets with their facts, and notes about unreadable parts.
pub(super) struct AuditReads {
    /// The Secrets, ordered by name.
    pub(super) rows: Vec<Row>,
    /// Parts that were not read, so the findings may be incomplete.
    pub(super) notes: BTreeSet<String>,
}

/// The ClusterRoles and ClusterRoleBindings, which are read once for all namespaces.
pub(super) struct ClusterRights {
    roles: Roles,
    pub(super) bindings: Result<Bindings, String>,
}

impl AuditReads {
    /// Reads the Secrets that objects of one namespace, or of all, refer to.
    pub(super) async fn make(client: &kube::Client, namespace: Option<&str>, now: Timestamp) -> Result<Self, Failure> {
        let discovery = resources::discover_resources(client).await?;
        let mut notes = BTreeSet::new();
        let inventory = take_inventory(client, &discovery, namespace, &mut notes).await?;
        let mut of: BTreeMap<&str, Vec<(&NamedObject, &Usage)>> = BTreeMap::new();
        for (secret, usage) in inventory.list_secrets() {
            of.entry(&secret.namespace).or_default().push((secret, usage));
        }
        for namespace in inventory.list_left_out() {
            notes.insert(format!(
                "namespace {namespace} names more credentials than are looked at, and the others are left out"
            ));
        }
        let cluster = if of.is_empty() {
            None
        } else {
            Some(list_of_cluster(client).await)
        };
        let cluster = cluster.as_ref();
        let looks = of.into_iter().map(|(namespace, secrets)| async move {
            match cluster {
                Some(cluster) => look_at_namespace(client, namespace, secrets, (cluster, now)).await,
                None => Vec::new(),
            }
        });
        let looked: Vec<Vec<Row>> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
        Ok(Self {
            rows: looked.into_iter().flatten().collect(),
            notes,
        })
    }
}

/// Collects the references of all objects that the caller may list.
async fn take_inventory(
    client: &kube::Client,
    discovery: &Discovery,
    namespace: Option<&str>,
    notes: &mut BTreeSet<String>,
) -> Result<Inventory, Failure> {
    let mut inventory = Inventory::default();
    let (mut is_any_listed, mut first_refusal) = (false, None);
    for (group, kind) in KINDS {
        let resource = match discovery.find(group, None, kind) {
            KindLookup::Served(resource) => resource,
            KindLookup::Unserved => continue,
            KindLookup::Unknown => {
                notes.insert(format!(
                    "the kinds of {group} are not known at the moment, so its {kind}s are left out"
                ));
                continue;
            }
        };
        let path = resources::write_collection(&resource, namespace);
        let most = (JSON, MOST_OBJECTS);
        match paged_reads::visit_objects(client, &path, most, |object| inventory.add(kind, &object)).await {
            Ok(is_whole) => {
                is_any_listed = true;
                if !is_whole {
                    notes.insert(format!(
                        "there are more than {MOST_OBJECTS} {kind}s, and the others are left out"
                    ));
                }
            }
            Err(ReadRefusal::Absent) => {}
            Err(refusal) => {
                notes.insert(format!("{kind}s are left out: {refusal}"));
                first_refusal.get_or_insert(refusal);
            }
        }
    }
    if let Some(refusal) = first_refusal.filter(|_| !is_any_listed) {
        return Err(
            Failure::environment(format!("nothing that uses a credential can be listed: {refusal}"))
                .hint("-n NAMESPACE asks for one namespace, which may be allowed"),
        );
    }
    let accounts: Vec<NamedObject> = inventory.list_accounts().cloned().collect();
    let reads = accounts.into_iter().map(|account| async move {
        let path = write_object("serviceaccounts", &account);
        (paged_reads::read_object(client, &path, JSON).await, account)
    });
    let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
    while let Some((read, account)) = reads.next().await {
        match read {
            Ok(object) => inventory.add_account(&account, &object),
            Err(ReadRefusal::Absent) => {}
            Err(refusal) => {
                notes.insert(format!(
                    "imagePullSecrets of ServiceAccount {account} are left out: {refusal}"
                ));
            }
        }
    }
    Ok(inventory)
}

pub(super) fn write_object(plural: &str, name: &NamedObject) -> String {
    let (namespace, name) = (
        resources::encode_segment(&name.namespace),
        resources::encode_segment(&name.name),
    );
    format!("/api/v1/namespaces/{namespace}/{plural}/{name}")
}

pub(super) async fn list_of_cluster(client: &kube::Client) -> ClusterRights {
    let roles = list_roles(client, &format!("{RBAC}/clusterroles"), MOST_OF_CLUSTER).await;
    let path = format!("{RBAC}/clusterrolebindings");
    let bindings = list_bindings(client, &path, MOST_OF_CLUSTER, (&Roles::default(), &roles)).await;
    ClusterRights { roles, bindings }
}

/// Lists the rights that a namespace's RoleBindings give.
pub(super) async fn list_of_namespace(
    client: &kube::Client,
    namespace: &str,
    cluster: &ClusterRights,
) -> Result<Bindings, String> {
    let base = format!("{RBAC}/namespaces/{}", resources::encode_segment(namespace));
    let roles = list_roles(client, &format!("{base}/roles"), MOST_OF_NAMESPACE).await;
    let path = format!("{base}/rolebindings");
    list_bindings(client, &path, MOST_OF_NAMESPACE, (&roles, &cluster.roles)).await
}

async fn list_roles(client: &kube::Client, path: &str, most: usize) -> Roles {
    let mut roles = Roles::default();
    match paged_reads::visit_objects(client, path, (JSON, most), |role| roles.add(&role)).await {
        Ok(true) => roles,
        Ok(false) => {
            roles.leave_out();
            roles
        }
        Err(_) => Roles::unread(),
    }
}

async fn list_bindings(
    client: &kube::Client,
    path: &str,
    most: usize,
    (roles, cluster_roles): (&Roles, &Roles),
) -> Result<Bindings, String> {
    let mut bindings = Bindings::default();
    let add = |binding: Value| bindings.add(&binding, roles, cluster_roles);
    match paged_reads::visit_objects(client, path, (JSON, most), add).await {
        Ok(true) if !bindings.is_partial => Ok(bindings),
        Ok(_) => Err("there are more bindings than are looked at".to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Reads the Secrets of one namespace, and finds the readers of each.
async fn look_at_namespace(
    client: &kube::Client,
    namespace: &str,
    secrets: Vec<(&NamedObject, &Usage)>,
    (cluster, now): (&ClusterRights, Timestamp),
) -> Vec<Row> {
    let own = &list_of_namespace(client, namespace, cluster).await;
    let looks = secrets.into_iter().map(|(secret, usage)| async move {
        Row {
            secret: secret.clone(),
            usage: usage.clone(),
            secret_read: look_at_secret(client, secret, now).await,
            readers: find_readers(secret, own, &cluster.bindings),
        }
    });
    futures::stream::iter(looks).buffered(AT_ONCE).collect().await
}

/// Reads the metadata of a Secret, and its data only if needed.
async fn look_at_secret(client: &kube::Client, secret: &NamedObject, now: Timestamp) -> SecretRead {
    let path = write_object("secrets", secret);
    let mut facts = match paged_reads::read_object(client, &path, ONLY_METADATA).await {
        Ok(object) => Facts::of_metadata(&object, now),
        Err(refusal) => return make_refused(&refusal),
    };
    if facts.wants_contents() {
        let contents = match paged_reads::read_page(client, &path, JSON).await {
            Ok(text) => Contents::read(&text),
            Err(refusal) => return make_refused(&refusal),
        };
        match contents {
            Ok(contents) => {
                let certificate = contents.find_certificate();
                let end = certificate.and_then(|certificate| find_end(&certificate));
                facts.take_contents(&contents, end);
            }
            Err(error) => return SecretRead::Failed(error.to_string()),
        }
    }
    SecretRead::Seen(facts)
}

fn make_refused(refusal: &ReadRefusal) -> SecretRead {
    match refusal {
        ReadRefusal::Absent => SecretRead::Absent,
        ReadRefusal::Forbidden(_) => SecretRead::Refused,
        ReadRefusal::TooLong | ReadRefusal::Failed(_) => SecretRead::Failed(refusal.to_string()),
    }
}
