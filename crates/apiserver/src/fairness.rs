//! How many requests are worked on at once, in all and for one user, so that nobody starves the others. Owns the
//! numbers. Refuses to know what a request is about: watches are told apart by the caller.
//!
//! Who holds a place may still be sending a body; so a user's slow bodies take that user's places only, and the places
//! that all share are taken for the work itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::authentication::{MASTERS, UserInfo};

/// How many there may be.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Requests worked on at once.
    pub(crate) total: usize,
    /// Of these, one user's, bodies that are still being sent included.
    pub(crate) user: usize,
    /// Requests of one user that wait for a place; the next is told to come again.
    pub(crate) waiting: usize,
    /// How long one waits.
    pub(crate) patience: Duration,
    /// Watches that are open at once.
    pub(crate) watches: usize,
    /// Of these, one user's.
    pub(crate) user_watches: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            total: 400,
            user: 64,
            waiting: 1_000,
            patience: Duration::from_secs(10),
            watches: 20_000,
            user_watches: 5_000,
        }
    }
}

/// There is no place: the client should come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejected;

#[derive(Debug)]
struct Share {
    places: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Hands out places.
#[derive(Debug)]
pub(crate) struct Fairness {
    bounds: Bounds,
    total: Semaphore,
    watches: Arc<Semaphore>,
    users: Mutex<HashMap<String, Weak<Share>>>,
    rejected: AtomicUsize,
}

/// A user's place, held until the request is answered.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    fairness: &'a Fairness,
    /// None: this user is not counted.
    _held: Option<(OwnedSemaphorePermit, Arc<Share>)>,
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct WatchPlace {
    _held: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Arc<Share>)>,
}

impl Fairness {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            total: Semaphore::new(bounds.total),
            watches: Arc::new(Semaphore::new(bounds.watches)),
            users: Mutex::default(),
            rejected: AtomicUsize::new(0),
            bounds,
        }
    }

    /// Waits for a place for a request of `user`.
    pub(crate) async fn place(&self, user: &UserInfo) -> Result<Place<'_>, Rejected> {
        if is_exempt(user) {
            return Ok(Place {
                fairness: self,
                _held: None,
            });
        }
        let share = self.share_of(&user.name);
        if let Ok(permit) = share.places.clone().try_acquire_owned() {
            return Ok(Place {
                fairness: self,
                _held: Some((permit, share)),
            });
        }
        let waiting = Waiting::enter(&share.waiting);
        if waiting.others >= self.bounds.waiting {
            return Err(self.reject());
        }
        let permit = tokio::time::timeout(self.bounds.patience, share.places.clone().acquire_owned()).await;
        drop(waiting);
        match permit {
            Ok(Ok(permit)) => Ok(Place {
                fairness: self,
                _held: Some((permit, share)),
            }),
            _ => Err(self.reject()),
        }
    }

    /// A place for a watch of `user`.
    pub(crate) fn watch(&self, user: &UserInfo) -> Result<WatchPlace, Rejected> {
        if is_exempt(user) {
            return Ok(WatchPlace { _held: None });
        }
        let share = self.share_of(&user.name);
        let (Ok(own), Ok(all)) = (
            share.watches.clone().try_acquire_owned(),
            self.watches.clone().try_acquire_owned(),
        ) else {
            return Err(self.reject());
        };
        Ok(WatchPlace {
            _held: Some((own, all, share)),
        })
    }

    /// How many requests were told to come again.
    pub(crate) fn rejected(&self) -> usize {
        self.rejected.load(Ordering::Relaxed)
    }

    fn reject(&self) -> Rejected {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        Rejected
    }

    /// The share of one user; forgotten when nothing of it is taken.
    fn share_of(&self, user: &str) -> Arc<Share> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(user).and_then(Weak::upgrade) {
            return share;
        }
        if users.len() > self.bounds.total {
            users.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Share {
            places: Arc::new(Semaphore::new(self.bounds.user)),
            watches: Arc::new(Semaphore::new(self.bounds.user_watches)),
            waiting: AtomicUsize::new(0),
        });
        users.insert(user.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl Place<'_> {
    /// Waits for a place among all, once the body is there.
    pub(crate) async fn work(&self) -> Result<Option<SemaphorePermit<'_>>, Rejected> {
        if self._held.is_none() {
            return Ok(None);
        }
        match tokio::time::timeout(self.fairness.bounds.patience, self.fairness.total.acquire()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(self.fairness.reject()),
        }
    }
}

/// An administrator is let in always: who is to end a stampede must not wait behind it.
fn is_exempt(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

struct Waiting<'a> {
    count: &'a AtomicUsize,
    others: usize,
}

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        let others = count.fetch_add(1, Ordering::Relaxed);
        Self { count, others }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            ..UserInfo::default()
        }
    }

    fn small() -> Fairness {
        Fairness::new(Bounds {
            total: 3,
            user: 2,
            waiting: 1,
            patience: Duration::from_millis(20),
            watches: 3,
            user_watches: 2,
        })
    }

    #[tokio::test]
    async fn one_user_does_not_take_the_places_of_another() {
        let fairness = small();
        let greedy = user("greedy");
        let _first = fairness.place(&greedy).await.expect("a place");
        let _second = fairness.place(&greedy).await.expect("a place");
        assert_eq!(fairness.place(&greedy).await.err(), Some(Rejected), "waited in vain");
        let other = fairness.place(&user("other")).await.expect("a place");
        assert!(other.work().await.expect("work").is_some());
        assert_eq!(fairness.rejected(), 1);
    }

    #[tokio::test]
    async fn who_waits_too_many_is_told_at_once() {
        let fairness = Fairness::new(Bounds {
            patience: Duration::from_secs(3600),
            ..small().bounds
        });
        let greedy = user("greedy");
        let first = fairness.place(&greedy).await.expect("a place");
        let _second = fairness.place(&greedy).await.expect("a place");
        let mut waits = Box::pin(fairness.place(&greedy));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!(fairness.place(&greedy).await.err(), Some(Rejected));
        drop(first);
        waits.await.expect("the place that was given back");
    }

    #[tokio::test]
    async fn an_administrator_is_always_let_in() {
        let fairness = small();
        let mut admin = user("admin");
        admin.ensure_group(MASTERS);
        let mut places = Vec::new();
        for _ in 0..10 {
            places.push(fairness.place(&admin).await.expect("a place"));
            fairness.watch(&admin).expect("a watch");
        }
    }

    #[test]
    fn watches_are_counted_apart() {
        let fairness = small();
        let _first = fairness.watch(&user("a")).expect("a watch");
        let second = fairness.watch(&user("a")).expect("a watch");
        assert!(fairness.watch(&user("a")).is_err());
        let _other = fairness.watch(&user("b")).expect("a watch");
        assert!(fairness.watch(&user("b")).is_err(), "no more in all");
        drop(second);
        assert!(fairness.watch(&user("a")).is_ok());
    }
}
