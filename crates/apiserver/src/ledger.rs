//! How many bytes are held for something, by user and in sum: for answers, for one.
//!
//! Owns the bounds and the counts. A user may hold no more than its own bound, and no more than what is left for everybody; but a little
//! in any case, however much others hold. Refuses to know what the bytes are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What a charge is beside its bytes: for what is remembered of a request, such as the head of its answer.
const BESIDE: usize = 1024;
/// How often somebody who waits looks whether others have given something back.
const LOOK: Duration = Duration::from_millis(250);

/// What a user may hold though there is nothing left, at most: two pieces of an answer.
const LITTLE: usize = 128 * 1024;

/// The bytes of all users.
#[derive(Debug)]
pub(crate) struct Ledger {
    user: usize,
    total: usize,
    little: usize,
    /// Of both, what is kept for who is first in line (see [`Growing`]).
    kept: (usize, usize),
    first: Arc<Semaphore>,
    held: AtomicUsize,
    /// Bytes of those who are not bounded.
    exempt: AtomicUsize,
}

impl Ledger {
    pub(crate) fn new(user: usize, total: usize) -> Arc<Self> {
        Self::for_growing(user, total, 0)
    }

    /// The same for what grows while it is charged, up to `largest`.
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

    /// An account of a user's.
    pub(crate) fn open(self: &Arc<Self>) -> Arc<Account> {
        self.account(true)
    }

    /// An account that is counted and not bounded.
    pub(crate) fn open_exempt(self: &Arc<Self>) -> Arc<Account> {
        self.account(false)
    }

    fn account(self: &Arc<Self>, bounded: bool) -> Arc<Account> {
        Arc::new(Account {
            ledger: self.clone(),
            bounded,
            held: AtomicUsize::new(0),
            room: Notify::new(),
            first: Arc::new(Semaphore::new(1)),
        })
    }

    /// Whether there is so little left that who doesn't read is waited for less long.
    pub(crate) fn is_short(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.total / 8 * 7
    }

    /// Bytes that are held for users who are bounded, and for others.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.held.load(Ordering::Relaxed), self.exempt.load(Ordering::Relaxed))
    }
}

/// The bytes of one user.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    bounded: bool,
    held: AtomicUsize,
    room: Notify,
    first: Arc<Semaphore>,
}

impl Account {
    /// Charges so many bytes, if there is room for them. Who holds nothing is let in with one thing of whatever size.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut charge = self.charge_nothing();
        charge.try_add(bytes + BESIDE, [false; 2]).then_some(charge)
    }

    /// Whether there is room for a user to hold so many bytes, besides those that all held before. It may hold no more than what
    /// is left for everybody, so that there is always something for the next one; but one thing alone, as long as anything is left,
    /// so that all together hold at most one thing more than the total.
    fn has_room(&self, own: usize, is_alone: bool, before: usize, [is_first, is_first_of_all]: [bool; 2]) -> bool {
        let ledger = &self.ledger;
        let left = (ledger.total - ledger.kept.1).saturating_sub(before);
        let within_own = is_first || is_alone || own <= ledger.user - ledger.kept.0;
        let within_all = is_first_of_all || own <= left || is_alone && left > 0;
        !self.bounded || own <= ledger.little || within_own && within_all
    }

    /// Charges so many bytes, room or not.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let bytes = bytes + BESIDE;
        self.add(bytes);
        Charge {
            account: self.clone(),
            bytes,
        }
    }

    /// A charge that is still of nothing.
    fn charge_nothing(self: &Arc<Self>) -> Charge {
        Charge {
            account: self.clone(),
            bytes: 0,
        }
    }

    /// Charges so many bytes as soon as there is room for them; nothing if that takes longer than `patience`.
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

    /// Makes a charge that large as soon as there is room for it; `false` if that takes longer than `patience`.
    pub(crate) async fn extend_within(&self, charge: &mut Charge, bytes: usize, patience: Duration) -> bool {
        let more = (bytes + BESIDE).saturating_sub(charge.bytes);
        let extending = async {
            loop {
                let own = self.held.load(Ordering::Relaxed);
                let total = self.ledger.held.load(Ordering::Relaxed);
                if !self.bounded
                    || own == charge.bytes
                    || own + more <= self.ledger.user.min(self.ledger.total.saturating_sub(total))
                {
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

    /// Waits until it is worth while to try again.
    pub(crate) async fn wait(&self) {
        tokio::select! {
            () = self.room.notified() => {}
            // What others give back is room for this user, too.
            () = tokio::time::sleep(LOOK) => {}
        }
    }

    /// Whether there is so little left for everybody that who holds something and does nothing is waited for less long.
    pub(crate) fn is_short(&self) -> bool {
        self.bounded && self.ledger.is_short()
    }

    /// Whether there would be no room for so many bytes if nobody held anything.
    pub(crate) fn is_too_small(&self, bytes: usize) -> bool {
        self.bounded && bytes > self.ledger.total
    }

    /// Whether this many bytes could never be charged while anything else is.
    pub(crate) fn is_beyond(&self, bytes: usize) -> bool {
        self.bounded && bytes > self.ledger.user
    }

    /// What all hold together who are bounded as this one is.
    fn sum(&self) -> &AtomicUsize {
        if self.bounded {
            &self.ledger.held
        } else {
            &self.ledger.exempt
        }
    }

    fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.sum().fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.sum().fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// It turned out to be so many bytes.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = bytes + BESIDE;
        if bytes > self.bytes {
            self.account.add(bytes - self.bytes);
        } else {
            self.account.remove(self.bytes - bytes);
            self.account.room.notify_one();
        }
        self.bytes = bytes;
    }

    /// Adds so many bytes, if there is room for them.
    fn try_add(&mut self, more: usize, first: [bool; 2]) -> bool {
        let account = &self.account;
        let read = || {
            let all = account.ledger.held.load(Ordering::Relaxed);
            (account.held.load(Ordering::Relaxed), all)
        };
        // Looked at twice: what finds no room takes none, and of several that find the same room at once not all keep it.
        let (own, all) = read();
        if !account.has_room(own + more, own == self.bytes, all, first) {
            return false;
        }
        account.add(more);
        let (own, all) = read();
        if account.has_room(own, own == self.bytes + more, all.saturating_sub(more), first) {
            self.bytes += more;
            return true;
        }
        account.remove(more);
        false
    }

    /// Gives back what was never used: nobody need look for it.
    pub(crate) fn cancel(mut self) {
        self.account.remove(self.bytes);
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.remove(self.bytes);
            self.account.room.notify_one();
        }
    }
}

/// Bytes that become more while others of their kind do, as those of a body that arrives.
///
/// If everybody held a part and waited for room for the rest, nobody would ever get it. So a part of a user's bytes is kept for whichever
/// of its things is first in line, and a part of all bytes for one of those: what is first always grows to its end, and then the next is.
#[derive(Debug)]
pub(crate) struct Growing {
    account: Arc<Account>,
    charge: Option<Charge>,
    /// Being first among the user's, and among all.
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

    /// Whether nothing is charged yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.charge.is_none()
    }

    /// Whether there is so little left for everybody that what doesn't grow is waited for less long.
    pub(crate) fn is_short(&self) -> bool {
        self.account.is_short()
    }

    /// Charges this many bytes in all as soon as there is room for them; `false` if that takes longer than `patience`.
    pub(crate) async fn grow_within(&mut self, bytes: usize, patience: Duration) -> bool {
        if self.try_grow(bytes) {
            return true;
        }
        let account = self.account.clone();
        let growing = async {
            loop {
                let [own, all] = &self.first;
                let line = match (own, all) {
                    (None, _) => Some(&account.first),
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

    /// It has grown to its end, and takes so many bytes: others are first now.
    pub(crate) fn end(self, bytes: usize) -> Option<Charge> {
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
        let ledger = Ledger::new(100 * KIB, 1000 * KIB);
        let account = ledger.open();
        let first = account.try_charge(60 * KIB).unwrap();
        assert!(account.try_charge(60 * KIB).is_none());
        let second = account.try_charge(30 * KIB).unwrap();
        drop(first);
        assert!(account.try_charge(60 * KIB).is_some());
        drop(second);
        assert_eq!(ledger.held(), (0, 0), "everything is given back");
    }

    #[test]
    fn however_much_others_hold_there_is_a_little_for_the_next() {
        let ledger = Ledger::new(100 * KIB, 400 * KIB);
        let mut charges = Vec::new();
        for _ in 0..20 {
            let account = ledger.open();
            while let Some(charge) = account.try_charge(KIB) {
                charges.push(charge);
            }
        }
        let little = 20 * ledger.little;
        assert!(ledger.held().0 <= 400 * KIB + little, "{:?}", ledger.held());
        assert!(ledger.is_short());
        let next = ledger.open();
        let first = next.try_charge(KIB);
        assert!(first.is_some() && next.try_charge(KIB).is_some());
        drop((charges, first));
        assert!(!ledger.is_short());
    }

    #[test]
    fn one_answer_of_whatever_size_goes_out_and_then_no_other() {
        let ledger = Ledger::new(10 * KIB, 100 * KIB);
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
    fn a_charge_follows_what_it_is_for() {
        let ledger = Ledger::new(100 * KIB, 100 * KIB);
        let account = ledger.open();
        let mut charge = account.try_charge(64 * KIB).unwrap();
        charge.set(2 * KIB);
        assert_eq!(ledger.held().0, 2 * KIB + BESIDE);
        charge.set(80 * KIB);
        assert_eq!(ledger.held().0, 80 * KIB + BESIDE);
        drop(charge);
        assert_eq!(ledger.held(), (0, 0));
    }

    #[tokio::test]
    async fn who_waits_is_told_of_room() {
        let ledger = Ledger::new(10 * KIB, 100 * KIB);
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
