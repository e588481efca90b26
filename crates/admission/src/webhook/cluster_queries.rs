//! The questions that a decision asks the cluster. The controller asks them of the API server. This module bounds the number of questions of
//! one review, and the time that an answer is remembered.
//!
//! A decision is pure and can't wait. Questions without an answer are therefore noted, their answers are fetched, and the decision is made
//! again. With the same facts and the same answers, a decision asks the same questions, so each round knows more than the previous one. A
//! failed question counts as no answer at all: a user that gains by such an answer could cause failures.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_admission_rules::{ClusterQueries, Question};
use tenure_api::ObjectView;
use tenure_cluster::{Client, ClusterError};
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::{FactIndex, TenantFacts};
use tokio::sync::Semaphore;

use super::mentions::KnownMentions;

/// The greatest number of remembered answers, the time they are remembered, and the longest
/// question.
const REMEMBERED: usize = 4096;
const FRESH: Duration = Duration::from_secs(5);
const LONGEST_KEY: usize = 4 << 10;
/// The greatest number of requests at one time.
const AT_ONCE: usize = 32;
/// The field manager of access reviews.
const MANAGER: &str = "tenure-webhook";

/// The kinds of objects that a decision can ask for, and how they are read.
const KINDS: [(&str, &str, &str, &str); 13] = [
    ("", "namespaces", "v1", "Namespace"),
    ("", "persistentvolumes", "v1", "PersistentVolume"),
    ("capsule.clastix.io", "tenants", "capsule.clastix.io/v1beta2", "Tenant"),
    (
        "kustomize.toolkit.fluxcd.io",
        "kustomizations",
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
    ),
    ("tenure.dev", "surfaces", "tenure.dev/v1alpha1", "Surface"),
    (
        "source.toolkit.fluxcd.io",
        "gitrepositories",
        "source.toolkit.fluxcd.io/v1",
        "GitRepository",
    ),
    (
        "source.toolkit.fluxcd.io",
        "ocirepositories",
        "source.toolkit.fluxcd.io/v1",
        "OCIRepository",
    ),
    (
        "source.toolkit.fluxcd.io",
        "buckets",
        "source.toolkit.fluxcd.io/v1",
        "Bucket",
    ),
    (
        "source.toolkit.fluxcd.io",
        "externalartifacts",
        "source.toolkit.fluxcd.io/v1",
        "ExternalArtifact",
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        "scheduling.k8s.io/v1",
        "PriorityClass",
    ),
    ("node.k8s.io", "runtimeclasses", "node.k8s.io/v1", "RuntimeClass"),
    ("storage.k8s.io", "storageclasses", "storage.k8s.io/v1", "StorageClass"),
    (
        "networking.k8s.io",
        "ingressclasses",
        "networking.k8s.io/v1",
        "IngressClass",
    ),
];

/// A question whether the sender of a request, or a ServiceAccount, has a right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RightQuery {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The ServiceAccount with this right, by namespace and name. None for the sender of the request.
    pub(super) account: Option<(String, String)>,
}

impl From<&Question<'_>> for RightQuery {
    fn from(question: &Question<'_>) -> Self {
        let (resource, subresource) = question.resource.split_once('/').unwrap_or((question.resource, ""));
        Self {
            account: None,
            verb: question.verb.to_owned(),
            group: question.group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: question.namespace.to_owned(),
            name: question.name.to_owned(),
        }
    }
}

/// The key of an object that a decision reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The answers of one review, and the questions that are still open.
#[derive(Debug)]
pub(super) struct QueryAnswers {
    mentions: KnownMentions,
    rights: BTreeMap<RightQuery, bool>,
    objects: BTreeMap<ObjectKey, Option<Arc<Value>>>,
    open_rights: Mutex<Vec<RightQuery>>,
    open_objects: Mutex<Vec<ObjectKey>>,
}

impl QueryAnswers {
    /// Returns answers without any question.
    pub(super) fn new(mentions: KnownMentions) -> Self {
        Self {
            mentions,
            rights: BTreeMap::new(),
            objects: BTreeMap::new(),
            open_rights: Mutex::default(),
            open_objects: Mutex::default(),
        }
    }

    /// Returns the number of questions so far.
    pub(super) fn count(&self) -> usize {
        let (rights, objects) = (self.open_rights.lock(), self.open_objects.lock());
        self.rights.len() + self.objects.len() + rights.len() + objects.len()
    }

    /// Checks whether a decision with these answers had an answer to each of its questions.
    pub(super) fn is_complete(&self) -> bool {
        self.open_rights.lock().is_empty() && self.open_objects.lock().is_empty()
    }

    /// Asks all open questions, about the user that the review names as its sender.
    pub(super) async fn fetch(&mut self, asker: &QueryClient, user: &Value) -> Result<(), ClusterError> {
        let (rights, objects) = (
            std::mem::take(self.open_rights.get_mut()),
            std::mem::take(self.open_objects.get_mut()),
        );
        let asked = futures::future::try_join_all(rights.into_iter().map(|right| async move {
            let is_allowed = asker.is_allowed(user, &right).await?;
            Ok::<_, ClusterError>((right, is_allowed))
        }));
        let read = futures::future::try_join_all(objects.into_iter().map(|place| async move {
            let found = asker.find(&place).await?;
            Ok::<_, ClusterError>((place, found.map(Arc::new)))
        }));
        let (asked, read) = futures::future::try_join(asked, read).await?;
        self.rights.extend(asked);
        self.objects.extend(read);
        Ok(())
    }
}

impl QueryAnswers {
    /// Returns the answer about a right. Notes the question if no answer is known.
    fn look_up(&self, right: RightQuery) -> bool {
        if let Some(is_allowed) = self.rights.get(&right) {
            return *is_allowed;
        }
        let mut open = self.open_rights.lock();
        if !open.contains(&right) {
            open.push(right);
        }
        false
    }
}

impl ClusterQueries for QueryAnswers {
    fn is_allowed(&self, question: &Question<'_>) -> bool {
        self.look_up(RightQuery::from(question))
    }

    fn may_account(&self, (namespace, name): (&str, &str), question: &Question<'_>) -> bool {
        self.look_up(RightQuery {
            account: Some((namespace.to_owned(), name.to_owned())),
            ..RightQuery::from(question)
        })
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let place = ObjectKey {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if let Some(found) = self.objects.get(&place) {
            return found.clone();
        }
        let mut open = self.open_objects.lock();
        if !open.contains(&place) {
            open.push(place);
        }
        None
    }

    fn find_mention(
        &self,
        facts: &FactIndex,
        tenant: &TenantFacts,
        namespace: &str,
    ) -> Result<Option<Mention>, String> {
        self.mentions.find_outside(facts, tenant, namespace)
    }
}

/// Sends the questions of decisions to the API server, and remembers answers about rights for a short time.
pub(super) struct QueryClient {
    client: Client,
    memory: Mutex<HashMap<String, (Instant, bool)>>,
    turns: Semaphore,
}

impl std::fmt::Debug for QueryClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("QueryClient")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl QueryClient {
    /// Returns an asker with this client. The client needs the right to create SubjectAccessReviews, and to
    /// read the objects of the rules.
    #[must_use]
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            memory: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Checks whether the user of a review has a right, or the ServiceAccount that the question names.
    pub(super) async fn is_allowed(&self, user: &Value, right: &RightQuery) -> Result<bool, ClusterError> {
        let account = right.account.as_ref().map(|(namespace, name)| {
            json!({
                "username": format!("system:serviceaccount:{namespace}:{name}"),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"]
            })
        });
        let user = account.as_ref().unwrap_or(user);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups"), "extra": user.get("extra"),
                "resourceAttributes": {
                    "verb": right.verb, "group": right.group, "resource": right.resource, "subresource": right.subresource,
                    "namespace": right.namespace, "name": right.name
                }
            }
        });
        let key = review.to_string();
        if let Some(known) = self.recall(&key) {
            return Ok(known);
        }
        let _turn = self.turns.acquire().await;
        let answer = self.client.create(&review, MANAGER).await?.object;
        let is_allowed = ObjectView::new(&answer).is_true("/status/allowed");
        self.remember(key, is_allowed);
        Ok(is_allowed)
    }

    /// Returns a remembered answer, unless it is too old.
    fn recall(&self, key: &str) -> Option<bool> {
        let memory = self.memory.lock();
        let (since, is_allowed) = memory.get(key)?;
        (since.elapsed() < FRESH).then_some(*is_allowed)
    }

    /// Stores an answer.
    fn remember(&self, key: String, is_allowed: bool) {
        if key.len() > LONGEST_KEY {
            return;
        }
        let mut memory = self.memory.lock();
        if memory.len() >= REMEMBERED {
            memory.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        if memory.len() < REMEMBERED {
            memory.insert(key, (Instant::now(), is_allowed));
        }
    }

    /// Returns the stored object, or none if the object is missing or its kind is not served.
    pub(super) async fn find(&self, place: &ObjectKey) -> Result<Option<Value>, ClusterError> {
        let known = KINDS
            .iter()
            .find(|(group, plural, _, _)| *group == place.group && *plural == place.plural);
        let Some((_, _, api_version, kind)) = known else {
            return Ok(None);
        };
        // No object has such a name, and no path leads to one.
        if place.name.is_empty() || !is_name(&place.name) || !is_name(&place.namespace) {
            return Ok(None);
        }
        let _turn = self.turns.acquire().await;
        let resource = match self.client.resource_in_any_version(api_version, kind).await {
            Ok(resource) => resource,
            Err(ClusterError::NoKindMatch { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.client.find(&resource, &place.namespace, &place.name).await
    }
}

/// Checks whether the text can be the name of an object of these kinds, or is empty.
fn is_name(text: &str) -> bool {
    let is_known = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    text.len() <= 253 && text.bytes().all(is_known) && !text.starts_with('.')
}
