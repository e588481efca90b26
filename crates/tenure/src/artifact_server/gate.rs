//! The check of readers of artifacts: the cluster's own rules decide who may `get` the object of an artifact.
//!
//! A client authenticates with a token of the cluster, or with a certificate of an authority that an administrator named. Answers of the API server are cached in small
//! number and for a short time, with a share for each user. The module decides nothing itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_planner::artifact_address::ArtifactAddress;
use tokio::sync::Semaphore;

use crate::reviews::{NoReviewAnswer, Reviewer, User, read_token};

/// The group of all users that the API server knows.
const AUTHENTICATED: &str = "system:authenticated";
/// The timeout for a TokenReview or a SubjectAccessReview.
const ASKING: Duration = Duration::from_secs(10);
/// The time for which an allowed and a denied answer is cached. A revoked right ends after the former.
const REMEMBERED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));
/// The number of cached tokens and users, and the number of objects for each user.
const TOKENS: usize = 128;
const USERS: usize = 128;
const OBJECTS: usize = 64;

/// The reason why a client may not read an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReaderRefusal {
    /// The client is unauthenticated.
    Unknown,
    /// The user is known and lacks the right.
    Forbidden { user: String, object: String },
    /// The API server gave no answer.
    Unanswered,
}

/// An answer of the API server with its time. A good answer stays in the cache for longer.
struct CachedAnswer<T> {
    since: Instant,
    answer: T,
    is_good: bool,
}

impl<T> CachedAnswer<T> {
    fn is_fresh(&self, now: Instant) -> bool {
        let (good, bad) = REMEMBERED;
        now.saturating_duration_since(self.since) < if self.is_good { good } else { bad }
    }
}

/// Cached answers of the API server, by token or by object.
struct AnswerCache<K, T>(HashMap<K, CachedAnswer<T>>);

impl<K: Hash + Eq, T: Clone> AnswerCache<K, T> {
    fn recall(&self, key: &K, now: Instant) -> Option<T> {
        let known = self.0.get(key).filter(|known| known.is_fresh(now))?;
        Some(known.answer.clone())
    }

    /// Stores an answer. A full cache first drops denied and expired answers, so a client that is often refused evicts no allowed answers.
    fn remember(&mut self, key: K, (answer, is_good): (T, bool), (now, most): (Instant, usize)) {
        if self.0.len() >= most {
            self.0.retain(|_, known| known.is_good && known.is_fresh(now));
        }
        if self.0.len() < most {
            let since = now;
            self.0.insert(key, CachedAnswer { since, answer, is_good });
        }
    }
}

/// The check of artifact readers: asks the API server for the user of a token and the user's rights, and caches the answers for a while.
pub(super) struct Gate {
    reviewer: Reviewer,
    /// The authorities of client certificates, if any.
    clients: Option<Arc<ClientCertificates>>,
    tokens: Mutex<AnswerCache<String, Option<Arc<User>>>>,
    users: Mutex<HashMap<Arc<User>, AnswerCache<String, bool>>>,
    asking: Semaphore,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    pub(super) fn new(client: kube::Client, clients: Option<Arc<ClientCertificates>>) -> Self {
        Self {
            reviewer: Reviewer::new(client, "artifacts"),
            clients,
            tokens: Mutex::new(AnswerCache(HashMap::new())),
            users: Mutex::default(),
            asking: Semaphore::new(4),
        }
    }

    /// Identifies the client. A certificate counts before a token, as on an API server.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'_>],
    ) -> Result<Arc<User>, ReaderRefusal> {
        if let Some(clients) = self.clients.as_ref().filter(|_| !certificates.is_empty()) {
            let named = clients.identify(certificates, Timestamp::now());
            let named = named.ok().flatten().ok_or(ReaderRefusal::Unknown)?;
            let mut groups = named.groups;
            groups.push(AUTHENTICATED.to_owned());
            return Ok(Arc::new(User {
                name: named.name,
                uid: named.uid,
                groups,
                extra: named.extra,
            }));
        }
        let token = read_token(headers).ok_or(ReaderRefusal::Unknown)?.to_owned();
        let recall = || lock(&self.tokens).recall(&token, Instant::now());
        let known = match recall() {
            Some(known) => known,
            None => {
                let asked = async {
                    let _turn = self.asking.acquire().await;
                    if let Some(known) = recall() {
                        return Ok(known);
                    }
                    let found = self.reviewer.identify(&token).await?.map(Arc::new);
                    let answer = (found.clone(), found.is_some());
                    lock(&self.tokens).remember(token.clone(), answer, (Instant::now(), TOKENS));
                    Ok(found)
                };
                limit_wait(asked).await?
            }
        };
        known.ok_or(ReaderRefusal::Unknown)
    }

    /// Checks whether a user may get the object of an artifact.
    pub(super) async fn admit(&self, user: &Arc<User>, address: &ArtifactAddress) -> Result<(), ReaderRefusal> {
        let ArtifactAddress {
            resource,
            namespace,
            name,
            ..
        } = address;
        let object = format!("{resource}.{} {namespace}/{name}", address.group());
        let recall = || lock(&self.users).get(user)?.recall(&object, Instant::now());
        let may = match recall() {
            Some(may) => may,
            None => {
                let asked = async {
                    let _turn = self.asking.acquire().await;
                    if let Some(may) = recall() {
                        return Ok(may);
                    }
                    let wanted = json!({
                        "verb": "get", "group": address.group(), "version": "v1", "resource": resource,
                        "namespace": namespace, "name": name,
                    });
                    let may = self.reviewer.is_allowed(user, ("resourceAttributes", wanted)).await?;
                    self.remember(user, &object, may, Instant::now());
                    Ok(may)
                };
                limit_wait(asked).await?
            }
        };
        match may {
            true => Ok(()),
            false => Err(ReaderRefusal::Forbidden {
                user: user.name.clone(),
                object,
            }),
        }
    }

    fn remember(&self, user: &Arc<User>, object: &str, may: bool, now: Instant) {
        let mut users = lock(&self.users);
        if users.len() >= USERS && !users.contains_key(user) {
            users.retain(|_, objects| objects.0.values().any(|known| known.is_good && known.is_fresh(now)));
            if users.len() >= USERS {
                return;
            }
        }
        let objects = users
            .entry(Arc::clone(user))
            .or_insert_with(|| AnswerCache(HashMap::new()));
        objects.remember(object.to_owned(), (may, may), (now, OBJECTS));
    }
}

/// Waits for an answer within the timeout.
async fn limit_wait<T>(asked: impl Future<Output = Result<T, NoReviewAnswer>>) -> Result<T, ReaderRefusal> {
    let answered = tokio::time::timeout(ASKING, asked).await;
    answered
        .unwrap_or(Err(NoReviewAnswer))
        .map_err(|NoReviewAnswer| ReaderRefusal::Unanswered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_memory_is_limited_and_per_user() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _inside = runtime.enter();
        let gate = Gate::new(kube::Client::new(service, "default"), None);
        let user = |name: String| {
            Arc::new(User {
                name,
                ..User::default()
            })
        };
        let now = Instant::now();
        let one = user("one".to_owned());
        gate.remember(&one, "mine", true, now);
        // One user with many requests, and many users without rights.
        let greedy = user("greedy".to_owned());
        for number in 0..10 * OBJECTS {
            gate.remember(&greedy, &format!("object-{number}"), number % 2 == 0, now);
            gate.remember(&user(format!("user-{number}")), "mine", false, now);
        }
        let users = lock(&gate.users);
        assert!(users.len() <= USERS);
        assert!(users.values().all(|objects| objects.0.len() <= OBJECTS));
        let recall = |when: Instant| users.get(&one)?.recall(&"mine".to_owned(), when);
        assert_eq!(recall(now), Some(true));
        assert_eq!(recall(now + REMEMBERED.0), None);
    }
}
