//! Limits of concurrent requests, in total and per tenant, so that no client starves the others. The caller decides
//! which requests are watches or long work.
//!
//! - A ServiceAccount in a tenant's namespace has a share within that of its namespace, within that of its tenant. The
//!   account of a tenant's lane has the same, with the platform namespace.
//! - An owner has a share within that of the tenant.
//! - Another ServiceAccount has a share within that of its namespace.
//! - Any other user has a whole share.
//!
//! A share within a whole one has three quarters of it, and a share within that one has half of it.
//!
//!
//! A tenant may create any number of namespaces and ServiceAccounts: all of them together have one share. Within this
//! share no member can take everything: a request takes a permit of its own level first, and then one of each level
//! above.
//!
//! A client that holds a permit may still be sending its body. So slow bodies use up only that user's permits, and
//! the permits that all users share are taken only for the work itself.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_auth::identity::{MASTERS, SERVICE_ACCOUNT_PREFIX, UserInfo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::byte_ledger::{Account, ByteLedger};
use crate::long_work::{RefusalPause, StepLimiter};

/// The limits for requests, watches and threads of long work. A limit of one user is for a whole share: that of a
/// tenant, or of a user without a tenant.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Requests worked on at once.
    pub(crate) total: usize,
    /// Of these, requests of one user, including those whose body is still arriving.
    pub(crate) user: usize,
    /// Requests of one user that wait for a permit. Further ones are rejected with the advice to retry.
    pub(crate) waiting: usize,
    /// How long a request waits for a permit.
    pub(crate) patience: Duration,
    /// Watches that are open at once.
    pub(crate) watches: usize,
    /// Of these, watches of one user.
    pub(crate) user_watches: usize,
    /// Threads that are busy with long work at once.
    pub(crate) long: usize,
    /// Of these, threads of one user.
    pub(crate) user_long: usize,
    /// How long a thread's permit stays taken after a refusal.
    pub(crate) rest: RefusalPause,
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
            // At least two, so that one user can't have all of them.
            long: processors.max(2),
            user_long: (processors / 2).max(1),
            // After a refusal the permit stays taken for four times the duration of the work. So the work of refused
            // requests takes about a fifth of the time of each permit.
            rest: RefusalPause {
                times: 4,
                longest: Duration::from_secs(1),
            },
        }
    }
}

/// The error for a request or watch that found no free permit: the client should retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejected;

/// Returns the name of a user's tenant, if the user belongs to one.
pub(crate) type FindTenant = Box<dyn Fn(&UserInfo) -> Option<String> + Send + Sync>;

/// The share of one user, one namespace or one tenant: its permits, and its accounts for memory.
#[derive(Debug)]
pub(crate) struct Share {
    /// The share that contains this one.
    parent: Option<Arc<Share>>,
    places: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    long: Arc<Semaphore>,
    line: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// The accounts for the bytes that requests of this share hold in memory.
    accounts: PerMemoryUse<Arc<Account>>,
}

impl Share {
    /// Returns this share and the shares that contain it, from the innermost.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |share| share.parent.as_deref())
    }

    /// Takes permits of all levels, if all are free now.
    fn try_take(&self) -> Option<Permits> {
        let taken = self.levels().map(|share| share.places.clone().try_acquire_owned().ok());
        taken.collect()
    }

    /// Takes permits of all levels, one after the other.
    async fn take_permits(&self) -> Permits {
        let mut permits = Vec::new();
        for share in self.levels() {
            permits.extend(share.places.clone().acquire_owned().await);
        }
        permits
    }
}

/// A permit of a share, and of each share that contains it.
type Permits = Vec<OwnedSemaphorePermit>;

/// The reason for which bytes are held in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MemoryUse {
    /// Answers, until their client has taken them.
    Answers,
    /// Bodies of requests, until the work on them begins.
    Bodies,
    /// Values decoded from bodies and stored objects, until the work on them has ended.
    Objects,
}

/// A value of the type `T` for each [`MemoryUse`].
#[derive(Debug)]
pub(crate) struct PerMemoryUse<T> {
    answers: T,
    bodies: T,
    objects: T,
}

impl<T> PerMemoryUse<T> {
    pub(crate) fn new(mut make: impl FnMut(MemoryUse) -> T) -> Self {
        Self {
            answers: make(MemoryUse::Answers),
            bodies: make(MemoryUse::Bodies),
            objects: make(MemoryUse::Objects),
        }
    }

    pub(crate) fn get(&self, held: MemoryUse) -> &T {
        match held {
            MemoryUse::Answers => &self.answers,
            MemoryUse::Bodies => &self.bodies,
            MemoryUse::Objects => &self.objects,
        }
    }
}

/// The cached state of a user. Charges outlive the user's requests, and so does long work whose client hung up.
#[derive(Debug)]
struct CachedUser {
    share: Weak<Share>,
    accounts: PerMemoryUse<Weak<Account>>,
    long: Weak<Semaphore>,
    line: Weak<Semaphore>,
}

/// The shares in use, and unused ones until the next sweep.
#[derive(Debug, Default)]
struct ShareTable {
    /// The shares, by the names of all their levels from the outermost.
    by_path: HashMap<String, CachedUser>,
    /// The number of shares above which unused ones are removed.
    sweep_above: usize,
}

impl CachedUser {
    /// Checks whether any request, charge or long work still uses the share.
    fn is_held(&self) -> bool {
        let PerMemoryUse {
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

/// Limits concurrent requests: hands out permits for requests, watches and long work, and accounts for memory.
pub(crate) struct Fairness {
    bounds: Bounds,
    find_tenant: FindTenant,
    ledgers: PerMemoryUse<Arc<ByteLedger>>,
    exempt: PerMemoryUse<Arc<Account>>,
    total: Semaphore,
    watches: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// The shares of users, namespaces and tenants.
    users: Mutex<ShareTable>,
    rejected: AtomicUsize,
}

impl std::fmt::Debug for Fairness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fairness").finish_non_exhaustive()
    }
}

/// The permits of one request in its user's share, held until the answer is sent.
#[derive(Debug)]
pub(crate) struct UserPermit<'a> {
    fairness: &'a Fairness,
    /// `None`: this user is not counted.
    held: Option<OwnedUserPermit>,
}

/// A user's permit without the borrow of [`Fairness`].
pub(crate) type OwnedUserPermit = (Permits, Arc<Share>);

/// The permits of an open watch, until it is dropped.
#[derive(Debug)]
pub(crate) struct WatchPermit {
    _held: Option<(Permits, OwnedSemaphorePermit, Arc<Share>)>,
}

impl Fairness {
    pub(crate) fn new(bounds: Bounds, ledgers: PerMemoryUse<Arc<ByteLedger>>, find_tenant: FindTenant) -> Self {
        Self {
            find_tenant,
            exempt: PerMemoryUse::new(|held| ledgers.get(held).open_exempt()),
            ledgers,
            total: Semaphore::new(bounds.total),
            watches: Arc::new(Semaphore::new(bounds.watches)),
            long: Arc::new(Semaphore::new(bounds.long)),
            users: Mutex::default(),
            rejected: AtomicUsize::new(0),
            bounds,
        }
    }

    /// Waits for a permit for a request of `user`.
    pub(crate) async fn wait_for_permit(&self, user: &UserInfo) -> Result<UserPermit<'_>, Rejected> {
        if is_exempt(user) {
            return Ok(UserPermit {
                fairness: self,
                held: None,
            });
        }
        let share = self.share_of(user);
        if let Some(permits) = share.try_take() {
            return Ok(UserPermit {
                fairness: self,
                held: Some((permits, share)),
            });
        }
        let waiting: Vec<WaitCount<'_>> = share
            .levels()
            .map(|share| WaitCount::count_in(&share.waiting))
            .collect();
        if waiting.iter().any(|waiting| waiting.others >= self.bounds.waiting) {
            return Err(self.count_rejected());
        }
        let permits = tokio::time::timeout(self.bounds.patience, share.take_permits()).await;
        drop(waiting);
        match permits {
            Ok(permits) => Ok(UserPermit {
                fairness: self,
                held: Some((permits, share)),
            }),
            Err(_) => Err(self.count_rejected()),
        }
    }

    /// Returns the account to which answers to `user` are charged.
    pub(crate) fn account(&self, user: &UserInfo) -> Arc<Account> {
        if is_exempt(user) {
            return self.exempt.answers.clone();
        }
        self.share_of(user).accounts.answers.clone()
    }

    /// Returns the permits for steps of long work of `user`; `None` for a user that is not counted.
    pub(crate) fn step_limiter(&self, user: &UserInfo) -> Option<StepLimiter> {
        (!is_exempt(user)).then(|| self.turns_of(&self.share_of(user)))
    }

    fn turns_of(&self, share: &Share) -> StepLimiter {
        StepLimiter {
            own: share.levels().map(|share| share.long.clone()).collect(),
            all: self.long.clone(),
            // The line is that of the outermost share, so only one request of a tenant waits for a lock that all
            // tenants share.
            line: share.levels().last().unwrap_or(share).line.clone(),
            patience: self.bounds.patience,
            rest: self.bounds.rest,
        }
    }

    /// Returns how long a request waits for a permit or for free bytes.
    pub(crate) fn patience(&self) -> Duration {
        self.bounds.patience
    }

    /// Returns the bytes of all users that are held for this reason.
    pub(crate) fn ledger(&self, held: MemoryUse) -> &ByteLedger {
        self.ledgers.get(held)
    }

    /// Takes a permit for a watch of `user`.
    pub(crate) fn watch(&self, user: &UserInfo) -> Result<WatchPermit, Rejected> {
        if is_exempt(user) {
            return Ok(WatchPermit { _held: None });
        }
        let share = self.share_of(user);
        let own = share
            .levels()
            .map(|share| share.watches.clone().try_acquire_owned().ok());
        let own = own.collect::<Option<Permits>>();
        let (Some(own), Ok(all)) = (own, self.watches.clone().try_acquire_owned()) else {
            return Err(self.count_rejected());
        };
        Ok(WatchPermit {
            _held: Some((own, all, share)),
        })
    }

    /// Returns the number of requests that were rejected with the advice to retry.
    pub(crate) fn rejected_count(&self) -> usize {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Counts a request that is rejected with the advice to retry.
    pub(crate) fn count_rejected(&self) -> Rejected {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        Rejected
    }

    /// Returns the share of one user, within the shares that contain it. A share is removed when no part of it is in
    /// use.
    fn share_of(&self, user: &UserInfo) -> Arc<Share> {
        let tenant = (self.find_tenant)(user);
        let mut users = self.users.lock();
        let (mut path, mut parent) = (String::new(), None);
        let namespace = find_namespace(user);
        // A valid name has no line feed, so paths of different shares differ.
        for (sort, name) in [("tenant", tenant.as_deref()), ("namespace", namespace)] {
            if let Some(name) = name {
                let _infallible = writeln!(path, "{sort} {name}");
                parent = Some(self.find_share(&mut users, &path, parent));
            }
        }
        let _infallible = write!(path, "user {}", user.name);
        self.find_share(&mut users, &path, parent)
    }

    /// Returns the share at a path, or creates it.
    fn find_share(&self, users: &mut ShareTable, path: &str, parent: Option<Arc<Share>>) -> Arc<Share> {
        let known = users.by_path.get(path);
        if let Some(share) = known.and_then(|known| known.share.upgrade()) {
            return share;
        }
        let depth = parent.as_ref().map_or(0, |parent| parent.levels().count());
        let part = |whole: usize| share_at_depth(whole, depth);
        let accounts = PerMemoryUse::new(|held| {
            let account = known.and_then(|known| known.accounts.get(held).upgrade());
            account.unwrap_or_else(|| match &parent {
                Some(parent) => self.ledgers.get(held).open_within(parent.accounts.get(held), part),
                None => self.ledgers.get(held).open(),
            })
        });
        let long = known.and_then(|known| known.long.upgrade());
        let line = known.and_then(|known| known.line.upgrade());
        users.sweep(self.bounds.total);
        let share = Arc::new(Share {
            places: Arc::new(Semaphore::new(part(self.bounds.user))),
            watches: Arc::new(Semaphore::new(part(self.bounds.user_watches))),
            long: long.unwrap_or_else(|| Arc::new(Semaphore::new(part(self.bounds.user_long)))),
            line: line.unwrap_or_else(|| Arc::new(Semaphore::new(1))),
            waiting: AtomicUsize::new(0),
            accounts,
            parent,
        });
        let known = CachedUser {
            share: Arc::downgrade(&share),
            accounts: PerMemoryUse::new(|held| Arc::downgrade(share.accounts.get(held))),
            long: Arc::downgrade(&share.long),
            line: Arc::downgrade(&share.line),
        };
        users.by_path.insert(path.to_owned(), known);
        share
    }
}

impl ShareTable {
    /// Removes shares that are not in use, once there are twice as many as after the last time, and more than `least`.
    /// So the cost for one new share does not grow with the shares that one tenant keeps in use.
    fn sweep(&mut self, least: usize) {
        if self.by_path.len() > self.sweep_above.max(least) {
            self.by_path.retain(|_, known| known.is_held());
            self.sweep_above = self.by_path.len().saturating_mul(2);
        }
    }
}

/// Returns the part of `whole` for a share at this depth. Each level has less than the level above, so that no member
/// takes everything.
fn share_at_depth(whole: usize, depth: usize) -> usize {
    let quarters = 4_usize.saturating_sub(depth).max(1);
    whole.saturating_mul(quarters).div_ceil(4)
}

impl UserPermit<'_> {
    /// Returns the permits for steps of long work, which are separate from those of [`Self::wait_for_work_permit`]; `None` for a user
    /// that is not counted.
    pub(crate) fn long_work(&self) -> Option<StepLimiter> {
        let (_, share) = self.held.as_ref()?;
        Some(self.fairness.turns_of(share))
    }

    /// Returns the account to which bytes of this request are charged.
    pub(crate) fn account(&self, held: MemoryUse) -> &Arc<Account> {
        match &self.held {
            Some((_, share)) => share.accounts.get(held),
            None => self.fairness.exempt.get(held),
        }
    }

    /// Returns the permit itself, to be held while the answer is sent.
    pub(crate) fn into_permit(self) -> Option<OwnedUserPermit> {
        self.held
    }

    /// Waits for one of the permits that all users share. Call this once the body has arrived.
    pub(crate) async fn wait_for_work_permit(&self) -> Result<Option<SemaphorePermit<'_>>, Rejected> {
        if self.held.is_none() {
            return Ok(None);
        }
        match tokio::time::timeout(self.fairness.bounds.patience, self.fairness.total.acquire()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(self.fairness.count_rejected()),
        }
    }
}

/// Checks whether a user is exempt from limits. Administrators are: they must be able to end a stampede without
/// waiting behind it.
fn is_exempt(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Returns the namespace of a ServiceAccount.
fn find_namespace(user: &UserInfo) -> Option<&str> {
    let account = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?;
    account.split_once(':').map(|(namespace, _)| namespace)
}

/// Counts a request among those of a share that wait for a permit, until it is dropped.
struct WaitCount<'a> {
    count: &'a AtomicUsize,
    /// The number of requests that waited before this one.
    others: usize,
}

impl<'a> WaitCount<'a> {
    fn count_in(count: &'a AtomicUsize) -> Self {
        let others = count.fetch_add(1, Ordering::Relaxed);
        Self { count, others }
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
