//! Counts of the bytes that are held for one purpose, for example answers: per user and in total.
//!
//! A user may hold at most its own limit, and at most as much as is still free for all users. A small amount is
//! always allowed, however much others hold. An account within another account, such as a user's within its tenant's,
//! also counts against the outer limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Fixed cost of a charge beside its bytes: for example the head of an answer.
const BESIDE: usize = 1024;
/// Interval at which a waiting charge checks whether other users have released bytes.
const LOOK: Duration = Duration::from_millis(250);

/// How much a user may hold at most when no bytes are free: two pieces of an answer.
const LITTLE: usize = 128 * 1024;

/// The limits for the bytes that are held for one purpose, and the sum of the bytes that all accounts hold.
#[derive(Debug)]
pub(crate) struct ByteLedger {
    /// The limit of one user.
    user: usize,
    /// The limit of all users together.
    total: usize,
    /// The bytes that a user may hold even if no bytes are free.
    little: usize,
    /// The parts of the user limit and of the total that are reserved for the first in line (see [`Growing`]).
    kept: (usize, usize),
    first: Arc<Semaphore>,
    held: AtomicUsize,
    /// Bytes of accounts without a limit.
    exempt: AtomicUsize,
}

impl ByteLedger {
    pub(crate) fn new(user: usize, total: usize) -> Arc<Self> {
        Self::for_growing(user, total, 0)
    }

    /// Returns a ledger for charges that grow after they were made, up to `largest`.
    pub(crate) fn for_growing(user: usize, total: usize, largest: usize) -> Arc<Self> {
        Arc::new(Self {
            user,
            total,
            little: LITTLE.min(user / 8),
            kept: (largest.min(user / 2), largest.min(total / 8)),
            first: Arc::new(Semaphore::new(1)),
            held: AtomicUsize::new(0),
            exempt: AtomicUsize::new(0),
        })
    }

    /// Opens an account of a user.
    pub(crate) fn open(self: &Arc<Self>) -> Arc<Account> {
        self.account(true, None, self.user)
    }

    /// Opens an account within another one. Its limit is this part of the user limit.
    pub(crate) fn open_within(self: &Arc<Self>, parent: &Arc<Account>, part: impl Fn(usize) -> usize) -> Arc<Account> {
        self.account(true, Some(parent.clone()), part(self.user))
    }

    /// Opens an account that is counted and has no limit.
    pub(crate) fn open_exempt(self: &Arc<Self>) -> Arc<Account> {
        self.account(false, None, self.user)
    }

    fn account(self: &Arc<Self>, bounded: bool, parent: Option<Arc<Account>>, limit: usize) -> Arc<Account> {
        Arc::new(Account {
            ledger: self.clone(),
            bounded,
            parent,
            limit,
            held: AtomicUsize::new(0),
            room: Notify::new(),
            first: Arc::new(Semaphore::new(1)),
        })
    }

    /// Checks whether free bytes are so few that the server waits a shorter time for a client that doesn't read.
    pub(crate) fn is_short(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.total / 8 * 7
    }

    /// Returns the bytes held in accounts with a limit, and in the others.
    pub(crate) fn held_bytes(&self) -> (usize, usize) {
        (self.held.load(Ordering::Relaxed), self.exempt.load(Ordering::Relaxed))
    }
}

/// The bytes that one user holds, or one group of users: a tenant, or a namespace.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<ByteLedger>,
    bounded: bool,
    /// The account that contains this one.
    parent: Option<Arc<Account>>,
    /// The limit in bytes.
    limit: usize,
    /// The bytes that this account holds, including all accounts within it.
    held: AtomicUsize,
    room: Notify,
    first: Arc<Semaphore>,
}

impl Account {
    /// Returns this account and the accounts that contain it, from the innermost.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    /// Returns the account that is within no other. Waiting charges wait on this account.
    fn outermost(&self) -> &Self {
        self.levels().last().unwrap_or(self)
    }

    /// Charges this many bytes if they fit. An account that holds nothing may always charge one item of any size.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut charge = self.charge_nothing();
        charge.try_add(bytes + BESIDE, [false; 2]).then_some(charge)
    }

    /// Checks whether a charge of this size fits. A user may hold at most as much as is free for all, so that the
    /// next user always finds some. One item alone fits as long as anything is free. So all users together hold at
    /// most one item more than the total.
    fn has_room(&self, charge: usize, growth: Growth, [is_first, is_first_of_all]: [bool; 2]) -> bool {
        if !self.bounded {
            return true;
        }
        let ledger = &self.ledger;
        let before = ledger.held.load(Ordering::Relaxed).saturating_sub(growth.counted);
        let left = (ledger.total - ledger.kept.1).saturating_sub(before);
        let (mut is_alone, mut within_own, mut own) = (true, true, 0);
        for account in self.levels() {
            own = account.held.load(Ordering::Relaxed) + growth.uncounted;
            let is_only = own == charge;
            // A part of the outermost limit is reserved for the first in its line.
            let kept = account.parent.as_ref().map_or(ledger.kept.0, |_| 0);
            within_own &= is_first || is_only || own <= account.limit - kept;
            is_alone &= is_only;
        }
        let within_all = is_first_of_all || own <= left || is_alone && left > 0;
        own <= ledger.little || within_own && within_all
    }

    /// Charges this many bytes, even beyond the limit.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let bytes = bytes + BESIDE;
        self.add_bytes(bytes);
        Charge {
            account: self.clone(),
            bytes,
        }
    }

    /// Returns a charge of zero bytes.
    fn charge_nothing(self: &Arc<Self>) -> Charge {
        Charge {
            account: self.clone(),
            bytes: 0,
        }
    }

    /// Charges this many bytes as soon as they fit; `None` if that takes longer than `patience`.
    pub(crate) async fn charge_within(self: &Arc<Self>, bytes: usize, patience: Duration) -> Option<Charge> {
        if let Some(charge) = self.try_charge(bytes) {
            return Some(charge);
        }
        let waiting = async {
            loop {
                self.wait().await;
                if let Some(charge) = self.try_charge(bytes) {
                    return charge;
                }
            }
        };
        tokio::time::timeout(patience, waiting).await.ok()
    }

    /// Extends a charge to this size as soon as that fits; `false` if that takes longer than `patience`.
    pub(crate) async fn extend_within(&self, charge: &mut Charge, bytes: usize, patience: Duration) -> bool {
        let more = (bytes + BESIDE).saturating_sub(charge.bytes);
        let extending = async {
            loop {
                let left = self
                    .ledger
                    .total
                    .saturating_sub(self.ledger.held.load(Ordering::Relaxed));
                let fits = |account: &Self| {
                    let own = account.held.load(Ordering::Relaxed);
                    own == charge.bytes || own + more <= account.limit.min(left)
                };
                if !self.bounded || self.levels().all(fits) {
                    return;
                }
                self.wait().await;
            }
        };
        let extended = tokio::time::timeout(patience, extending).await.is_ok();
        if extended {
            charge.set(bytes);
        }
        extended
    }

    /// Waits until an account of the same user has released bytes, or for a quarter of a second.
    pub(crate) async fn wait(&self) {
        tokio::select! {
            () = self.outermost().room.notified() => {}
            // Other users' releases also free bytes for this user, and send no notification to it.
            () = tokio::time::sleep(LOOK) => {}
        }
    }

    /// Checks whether free bytes are so few that the server waits a shorter time for an idle client that holds bytes.
    pub(crate) fn is_short(&self) -> bool {
        self.bounded && self.ledger.is_short()
    }

    /// Checks whether this many bytes would not fit even if no account held anything.
    pub(crate) fn is_too_small(&self, bytes: usize) -> bool {
        self.bounded && bytes > self.ledger.total
    }

    /// Checks whether this many bytes could never be charged beside any other charge of the user.
    pub(crate) fn is_beyond(&self, bytes: usize) -> bool {
        self.bounded && bytes > self.ledger.user
    }

    /// Returns the sum of all accounts of this sort, limited or exempt.
    fn total_bytes(&self) -> &AtomicUsize {
        if self.bounded {
            &self.ledger.held
        } else {
            &self.ledger.exempt
        }
    }

    fn add_bytes(&self, bytes: usize) {
        for account in self.levels() {
            account.held.fetch_add(bytes, Ordering::Relaxed);
        }
        self.total_bytes().fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        for account in self.levels() {
            account.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.total_bytes().fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Releases used bytes and wakes a waiting charge.
    fn release_bytes(&self, bytes: usize) {
        self.remove(bytes);
        self.outermost().room.notify_one();
    }
}

/// The bytes by which a charge grows, split by whether the account has counted them.
#[derive(Debug, Clone, Copy)]
struct Growth {
    /// The bytes that the account's sum contains already.
    counted: usize,
    /// The bytes that the account's sum does not contain yet.
    uncounted: usize,
}

/// Bytes that are charged to an account until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// Sets the charge to its actual size.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = bytes + BESIDE;
        if bytes > self.bytes {
            self.account.add_bytes(bytes - self.bytes);
        } else {
            self.account.release_bytes(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Adds this many bytes if they fit.
    fn try_add(&mut self, more: usize, first: [bool; 2]) -> bool {
        let account = &self.account;
        let charge = self.bytes + more;
        let uncounted = Growth {
            counted: 0,
            uncounted: more,
        };
        let counted = Growth {
            counted: more,
            uncounted: 0,
        };
        // The room is checked before and after the addition. A charge without room adds nothing. If several charges add
        // to the same room at once, the late ones are removed again.
        if !account.has_room(charge, uncounted, first) {
            return false;
        }
        account.add_bytes(more);
        if account.has_room(charge, counted, first) {
            self.bytes = charge;
            return true;
        }
        account.remove(more);
        false
    }

    /// Releases bytes that were never used. No waiting charge needs to check for them.
    pub(crate) fn cancel(mut self) {
        self.account.remove(self.bytes);
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.release_bytes(self.bytes);
        }
    }
}

/// A charge that grows step by step, for example with a body that arrives.
///
/// If every charge held a part and waited for the rest, all would wait forever. So a part of a user's bytes is reserved
/// for the first in that user's line, and a part of all bytes for one of those firsts. The first always grows to its
/// end, and then the next one follows.
#[derive(Debug)]
pub(crate) struct Growing {
    account: Arc<Account>,
    charge: Option<Charge>,
    /// First place in the user's line, and in the line of all users.
    first: [Option<OwnedSemaphorePermit>; 2],
}

impl Growing {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self {
            account,
            charge: None,
            first: [None, None],
        }
    }

    /// Checks whether nothing is charged yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.charge.is_none()
    }

    /// Checks whether free bytes are so few that the server waits a shorter time for a charge that doesn't grow.
    pub(crate) fn is_short(&self) -> bool {
        self.account.is_short()
    }

    /// Extends the charge to this many bytes in total as soon as they fit; `false` if that takes longer than
    /// `patience`.
    pub(crate) async fn grow_within(&mut self, bytes: usize, patience: Duration) -> bool {
        if self.try_grow(bytes) {
            return true;
        }
        let account = self.account.clone();
        let growing = async {
            loop {
                let [own, all] = &self.first;
                let line = match (own, all) {
                    (None, _) => Some(&account.outermost().first),
                    (_, None) => Some(&account.ledger.first),
                    _ => None,
                };
                let line = async {
                    match line {
                        Some(line) => line.clone().acquire_owned().await.ok(),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    place = line => {
                        let [own, all] = &mut self.first;
                        *(if own.is_none() { own } else { all }) = place;
                    }
                    () = account.wait() => {}
                }
                if self.try_grow(bytes) {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, growing).await.is_ok()
    }

    fn try_grow(&mut self, bytes: usize) -> bool {
        let first = self.first.each_ref().map(Option::is_some);
        let mut charge = self.charge.take().unwrap_or_else(|| self.account.charge_nothing());
        let more = (bytes + BESIDE).saturating_sub(charge.bytes);
        let has_grown = charge.try_add(more, first);
        self.charge = Some(charge).filter(|charge| charge.bytes > 0);
        has_grown
    }

    /// Ends the growth at this many bytes and gives up the first place in line.
    pub(crate) fn end_growth(self, bytes: usize) -> Option<Charge> {
        let mut charge = self.charge?;
        charge.set(bytes);
        Some(charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn a_user_holds_no_more_than_its_bound() {
        let ledger = ByteLedger::new(100 * KIB, 1000 * KIB);
        let account = ledger.open();
        let first = account.try_charge(60 * KIB).unwrap();
        assert!(account.try_charge(60 * KIB).is_none());
        let second = account.try_charge(30 * KIB).unwrap();
        drop(first);
        assert!(account.try_charge(60 * KIB).is_some());
        drop(second);
        assert_eq!(ledger.held_bytes(), (0, 0), "everything is given back");
    }

    #[test]
    fn full_ledger_still_grants_a_little_to_next_account() {
        let ledger = ByteLedger::new(100 * KIB, 400 * KIB);
        let mut charges = Vec::new();
        for _ in 0..20 {
            let account = ledger.open();
            while let Some(charge) = account.try_charge(KIB) {
                charges.push(charge);
            }
        }
        let little = 20 * ledger.little;
        assert!(ledger.held_bytes().0 <= 400 * KIB + little, "{:?}", ledger.held_bytes());
        assert!(ledger.is_short());
        let next = ledger.open();
        let first = next.try_charge(KIB);
        assert!(first.is_some() && next.try_charge(KIB).is_some());
        drop((charges, first));
        assert!(!ledger.is_short());
    }

    /// One answer of any size is admitted. No other account gets bytes until its charge is released.
    #[test]
    fn first_answer_may_exceed_bound_and_blocks_later_ones() {
        let ledger = ByteLedger::new(10 * KIB, 100 * KIB);
        let account = ledger.open();
        let large = account.try_charge(3000 * KIB).unwrap();
        assert!(account.try_charge(1).is_none());
        assert!(ledger.open().try_charge(20 * KIB).is_none(), "there is nothing left");
        assert!(
            ledger.open_exempt().try_charge(1).is_some(),
            "but for who is not bounded"
        );
        drop(large);
        assert!(account.try_charge(1).is_some());
    }

    #[test]
    fn accounts_within_another_one_share_its_bound() {
        let ledger = ByteLedger::new(100 * KIB, 1000 * KIB);
        let tenant = ledger.open();
        let [one, other] = [(); 2].map(|()| ledger.open_within(&tenant, |whole| whole / 2));
        let first = one.try_charge(40 * KIB).unwrap();
        assert!(one.try_charge(40 * KIB).is_none(), "its own bound");
        let second = other.try_charge(40 * KIB).unwrap();
        let third = ledger.open_within(&tenant, |whole| whole / 2);
        assert!(third.try_charge(40 * KIB).is_none(), "the tenant's bound");
        assert!(ledger.open().try_charge(40 * KIB).is_some(), "another tenant's");
        drop(first);
        assert!(third.try_charge(40 * KIB).is_some());
        drop(second);
        assert_eq!(tenant.held.load(Ordering::Relaxed), 0);
        assert_eq!(ledger.held_bytes(), (0, 0));
        // All accounts within a tenant share one small amount, however many there are.
        let full = tenant.try_charge(90 * KIB).unwrap();
        let little: Vec<_> = (0..20)
            .filter_map(|_| ledger.open_within(&tenant, |whole| whole / 2).try_charge(4 * KIB))
            .collect();
        assert!(little.len() <= 2, "{}", little.len());
        drop(full);
    }

    #[tokio::test]
    async fn bodies_within_one_account_grow_to_their_full_size() {
        let ledger = ByteLedger::for_growing(80 * KIB, 1000 * KIB, 40 * KIB);
        let tenant = ledger.open();
        let patience = Duration::from_secs(3600);
        let mut bodies = Vec::new();
        for _ in 0..4 {
            let account = ledger.open_within(&tenant, |whole| whole / 2);
            let mut growing = Growing::new(account);
            if growing.grow_within(10 * KIB, Duration::from_millis(1)).await {
                bodies.push(growing);
            }
        }
        assert!(bodies.len() > 1);
        let grown = bodies.into_iter().map(|mut growing| async move {
            assert!(growing.grow_within(30 * KIB, patience).await);
            drop(growing.end_growth(30 * KIB));
        });
        futures::future::join_all(grown).await;
        assert_eq!(ledger.held_bytes(), (0, 0));
    }

    #[test]
    fn a_charge_follows_what_it_is_for() {
        let ledger = ByteLedger::new(100 * KIB, 100 * KIB);
        let account = ledger.open();
        let mut charge = account.try_charge(64 * KIB).unwrap();
        charge.set(2 * KIB);
        assert_eq!(ledger.held_bytes().0, 2 * KIB + BESIDE);
        charge.set(80 * KIB);
        assert_eq!(ledger.held_bytes().0, 80 * KIB + BESIDE);
        drop(charge);
        assert_eq!(ledger.held_bytes(), (0, 0));
    }

    #[tokio::test]
    async fn a_waiting_charge_gets_released_capacity() {
        let ledger = ByteLedger::new(10 * KIB, 100 * KIB);
        let account = ledger.open();
        let held = account.try_charge(8 * KIB).unwrap();
        let patience = Duration::from_secs(3600);
        let mut waits = Box::pin(account.charge_within(8 * KIB, patience));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(held);
        assert!(waits.await.is_some());
        let _held = account.try_charge(8 * KIB).unwrap();
        assert!(account.charge_within(8 * KIB, Duration::from_millis(1)).await.is_none());
    }
}
