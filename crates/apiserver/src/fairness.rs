//! How many requests are worked on at once, in all and for one user, so that nobody starves the others. Owns the
//! numbers. Refuses to know what a request is about: watches and long work are told apart by the caller.
//!
//! A ServiceAccount counts as its namespace: who may make one there may make as many as it likes, and all of them together have
//! one user's share.
//!
//! Who holds a place may still be sending a body; so a user's slow bodies take that user's places only, and the places
//! that all share are taken for the work itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_access::identity::{MASTERS, SERVICE_ACCOUNT_PREFIX, UserInfo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::ledger::{Account, Ledger};
use crate::long_work::{Rest, Turns};

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
    /// Threads that are busy with long work at once.
    pub(crate) long: usize,
    /// Of these, one user's.
    pub(crate) user_long: usize,
    /// How long one of these is kept after a refusal.
    pub(crate) rest: Rest,
}

impl Default for Bounds {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            total: 400,
            user: 64,
            waiting: 1_000,
            patience: Duration::from_secs(10),
            watches: 20_000,
            user_watches: 5_000,
            // Two at least, so that nobody has them all.
            long: processors.max(2),
            user_long: (processors / 2).max(1),
            // A fifth of a processor for what is refused.
            rest: Rest {
                times: 4,
                longest: Duration::from_secs(1),
            },
        }
    }
}

/// There is no place: the client should come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejected;

/// What one user has of everything.
#[derive(Debug)]
pub(crate) struct Share {
    places: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    long: Arc<Semaphore>,
    line: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// What is held for it.
    accounts: Each<Arc<Account>>,
}

/// What bytes are held for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// Answers, until their client has taken them.
    Answers,
    /// Bodies of requests, until the work on them begins.
    Bodies,
    /// What is made of bodies and of stored objects, until the work on it has ended.
    Objects,
}

/// One for each kind of bytes that are held.
#[derive(Debug)]
pub(crate) struct Each<T> {
    answers: T,
    bodies: T,
    objects: T,
}

impl<T> Each<T> {
    pub(crate) fn new(mut make: impl FnMut(Held) -> T) -> Self {
        Self {
            answers: make(Held::Answers),
            bodies: make(Held::Bodies),
            objects: make(Held::Objects),
        }
    }

    pub(crate) fn of(&self, held: Held) -> &T {
        match held {
            Held::Answers => &self.answers,
            Held::Bodies => &self.bodies,
            Held::Objects => &self.objects,
        }
    }
}

/// What is remembered of a user: what it is charged outlives its requests, and so does long work whose client hung up.
#[derive(Debug)]
struct Known {
    share: Weak<Share>,
    accounts: Each<Weak<Account>>,
    long: Weak<Semaphore>,
    line: Weak<Semaphore>,
}

impl Known {
    /// Whether anything of it is in use.
    fn is_held(&self) -> bool {
        let Each {
            answers,
            bodies,
            objects,
        } = &self.accounts;
        let holders = [
            self.share.strong_count(),
            answers.strong_count(),
            bodies.strong_count(),
            objects.strong_count(),
            self.long.strong_count(),
            self.line.strong_count(),
        ];
        holders.into_iter().any(|count| count > 0)
    }
}

/// Hands out places.
#[derive(Debug)]
pub(crate) struct Fairness {
    bounds: Bounds,
    ledgers: Each<Arc<Ledger>>,
    exempt: Each<Arc<Account>>,
    total: Semaphore,
    watches: Arc<Semaphore>,
    long: Arc<Semaphore>,
    users: Mutex<HashMap<String, Known>>,
    rejected: AtomicUsize,
}

/// A user's place, held until the answer is sent.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    fairness: &'a Fairness,
    /// None: this user is not counted.
    held: Option<HeldPlace>,
}

/// A user's place apart from what hands it out.
pub(crate) type HeldPlace = (OwnedSemaphorePermit, Arc<Share>);

/// An open watch.
#[derive(Debug)]
pub(crate) struct WatchPlace {
    _held: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Arc<Share>)>,
}

impl Fairness {
    pub(crate) fn new(bounds: Bounds, ledgers: Each<Arc<Ledger>>) -> Self {
        Self {
            exempt: Each::new(|held| ledgers.of(held).open_exempt()),
            ledgers,
            total: Semaphore::new(bounds.total),
            watches: Arc::new(Semaphore::new(bounds.watches)),
            long: Arc::new(Semaphore::new(bounds.long)),
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
                held: None,
            });
        }
        let share = self.share_of(user);
        if let Ok(permit) = share.places.clone().try_acquire_owned() {
            return Ok(Place {
                fairness: self,
                held: Some((permit, share)),
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
                held: Some((permit, share)),
            }),
            _ => Err(self.reject()),
        }
    }

    /// Where answers to `user` are charged.
    pub(crate) fn account(&self, user: &UserInfo) -> Arc<Account> {
        if is_exempt(user) {
            return self.exempt.answers.clone();
        }
        self.share_of(user).accounts.answers.clone()
    }

    /// Places for steps of long work of `user`; none for who is not counted.
    pub(crate) fn turns(&self, user: &UserInfo) -> Option<Turns> {
        (!is_exempt(user)).then(|| self.turns_of(&self.share_of(user)))
    }

    fn turns_of(&self, share: &Share) -> Turns {
        Turns {
            own: share.long.clone(),
            all: self.long.clone(),
            line: share.line.clone(),
            patience: self.bounds.patience,
            rest: self.bounds.rest,
        }
    }

    /// How long a request waits for something to become free.
    pub(crate) fn patience(&self) -> Duration {
        self.bounds.patience
    }

    /// The bytes of all users that are held for this.
    pub(crate) fn ledger(&self, held: Held) -> &Ledger {
        self.ledgers.of(held)
    }

    /// A place for a watch of `user`.
    pub(crate) fn watch(&self, user: &UserInfo) -> Result<WatchPlace, Rejected> {
        if is_exempt(user) {
            return Ok(WatchPlace { _held: None });
        }
        let share = self.share_of(user);
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

    /// Counts a request that is told to come again.
    pub(crate) fn reject(&self) -> Rejected {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        Rejected
    }

    /// The share of one user; forgotten when nothing of it is taken.
    fn share_of(&self, user: &UserInfo) -> Arc<Share> {
        let name = counted_as(user);
        let mut users = self.users.lock();
        let known = users.get(name);
        if let Some(share) = known.and_then(|known| known.share.upgrade()) {
            return share;
        }
        let accounts = Each::new(|held| {
            let account = known.and_then(|known| known.accounts.of(held).upgrade());
            account.unwrap_or_else(|| self.ledgers.of(held).open())
        });
        let long = known.and_then(|known| known.long.upgrade());
        let line = known.and_then(|known| known.line.upgrade());
        if users.len() > self.bounds.total {
            users.retain(|_, known| known.is_held());
        }
        let share = Arc::new(Share {
            places: Arc::new(Semaphore::new(self.bounds.user)),
            watches: Arc::new(Semaphore::new(self.bounds.user_watches)),
            long: long.unwrap_or_else(|| Arc::new(Semaphore::new(self.bounds.user_long))),
            line: line.unwrap_or_else(|| Arc::new(Semaphore::new(1))),
            waiting: AtomicUsize::new(0),
            accounts,
        });
        let known = Known {
            share: Arc::downgrade(&share),
            accounts: Each::new(|held| Arc::downgrade(share.accounts.of(held))),
            long: Arc::downgrade(&share.long),
            line: Arc::downgrade(&share.line),
        };
        users.insert(name.to_owned(), known);
        share
    }
}

impl Place<'_> {
    /// The places for steps of long work, which are others than those of [`Self::work`]; none for who is not counted.
    pub(crate) fn long_work(&self) -> Option<Turns> {
        let (_, share) = self.held.as_ref()?;
        Some(self.fairness.turns_of(share))
    }

    /// Where bytes that are held for its request are charged.
    pub(crate) fn account(&self, held: Held) -> &Arc<Account> {
        match &self.held {
            Some((_, share)) => share.accounts.of(held),
            None => self.fairness.exempt.of(held),
        }
    }

    /// The place itself, to be held for as long as the answer is sent.
    pub(crate) fn held(self) -> Option<HeldPlace> {
        self.held
    }

    /// Waits for a place among all, once the body is there.
    pub(crate) async fn work(&self) -> Result<Option<SemaphorePermit<'_>>, Rejected> {
        if self.held.is_none() {
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

/// The name that a user's requests are counted under: of a ServiceAccount, all but its own name.
fn counted_as(user: &UserInfo) -> &str {
    let account = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    match account.and_then(|account| account.split_once(':')) {
        Some((_, name)) => user.name.strip_suffix(name).unwrap_or(&user.name),
        None => &user.name,
    }
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
        bounded(Bounds {
            total: 3,
            user: 2,
            waiting: 1,
            patience: Duration::from_millis(20),
            watches: 3,
            user_watches: 2,
            long: 2,
            user_long: 1,
            ..Bounds::default()
        })
    }

    fn bounded(bounds: Bounds) -> Fairness {
        Fairness::new(bounds, Each::new(|_| Ledger::new(1000, 1000)))
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
        let fairness = bounded(Bounds {
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

    #[tokio::test]
    async fn accounts_of_one_namespace_have_one_share() {
        let fairness = small();
        let account = |namespace: &str, name: &str| UserInfo::service_account(namespace, name, "");
        let _first = fairness.place(&account("a", "x")).await.expect("a place");
        let _second = fairness.place(&account("a", "y")).await.expect("a place");
        assert!(
            fairness.place(&account("a", "z")).await.is_err(),
            "a third name, and no third place"
        );
        fairness.place(&account("ab", "x")).await.expect("another namespace's");
        assert!(
            fairness
                .watch(&account("a", "x"))
                .is_ok_and(|_first| fairness.watch(&account("a", "y")).is_ok())
        );
        // Who is only called like one is not one.
        let name = |name: &str| counted_as(&user(name)).to_owned();
        assert_eq!(name("system:serviceaccount:a:x"), "system:serviceaccount:a:");
        assert_eq!(name("system:serviceaccount:a"), "system:serviceaccount:a");
        assert_eq!(name("somebody"), "somebody");
    }

    #[tokio::test]
    async fn long_work_has_places_of_its_own() {
        let fairness = small();
        let place = fairness.place(&user("greedy")).await.expect("a place");
        let turns = place.long_work().expect("who is counted has turns");
        let _own = turns.own.try_acquire().expect("the user's one");
        let _all = turns.all.try_acquire().expect("one of two");
        let second = fairness.place(&user("greedy")).await.expect("a place");
        assert!(second.long_work().is_some_and(|turns| turns.own.try_acquire().is_err()));
        let other = fairness.place(&user("other")).await.expect("a place");
        let turns = other.long_work().expect("turns");
        assert!(turns.own.try_acquire().is_ok() && turns.all.try_acquire().is_ok());
        assert!(other.work().await.expect("a place for work").is_some());
        let mut admin = user("admin");
        admin.ensure_group(MASTERS);
        assert!(fairness.place(&admin).await.expect("a place").long_work().is_none());
    }

    #[tokio::test]
    async fn long_work_counts_when_its_client_hung_up() {
        let fairness = small();
        let turn = {
            let place = fairness.place(&user("greedy")).await.expect("a place");
            let turns = place.long_work().expect("turns");
            turns.own.clone().try_acquire_owned().expect("the user's one")
        };
        let place = fairness.place(&user("greedy")).await.expect("a place");
        let turns = place.long_work().expect("turns");
        assert!(turns.own.try_acquire().is_err(), "a thread still computes for it");
        drop(turn);
        assert!(turns.own.try_acquire().is_ok());
    }

    #[test]
    fn what_a_user_is_charged_outlives_its_requests() {
        let fairness = small();
        let charge = fairness.account(&user("a")).try_charge(10);
        assert!(fairness.account(&user("b")).try_charge(10).is_none(), "all is held");
        assert!(fairness.account(&user("a")).try_charge(10).is_none());
        drop(charge);
        assert!(fairness.account(&user("a")).try_charge(10).is_some());
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
