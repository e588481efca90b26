//! How many bytes are held for something, by user and in sum: for answers, for one.
//!
//! Owns the bounds and the counts. A user may hold no more than its own bound, and no more than what is left for everybody; but a little
//! in any case, however much others hold. Refuses to know what the bytes are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

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
    held: AtomicUsize,
    /// Bytes of those who are not bounded.
    exempt: AtomicUsize,
}

impl Ledger {
    pub(crate) fn new(user: usize, total: usize) -> Arc<Self> {
        Arc::new(Self {
            user,
            total,
            little: LITTLE.min(user / 8),
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
}

impl Account {
    /// Charges so many bytes, if there is room for them. Who holds nothing is let in with one thing of whatever size.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let charge = self.charge(bytes);
        let own = self.held.load(Ordering::Relaxed);
        let total = self.ledger.held.load(Ordering::Relaxed);
        let before = total.saturating_sub(charge.bytes);
        let left = self.ledger.total.saturating_sub(before);
        let fits = match own.saturating_sub(charge.bytes) {
            0 => own <= self.ledger.little || left > 0,
            _ => own <= self.ledger.user.min(left).max(self.ledger.little),
        };
        if fits || !self.bounded {
            return Some(charge);
        }
        charge.cancel();
        None
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

    /// Whether this many bytes could never be charged while anything else is.
    pub(crate) fn is_beyond(&self, bytes: usize) -> bool {
        self.bounded && bytes > self.ledger.user
    }

    fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let sum = if self.bounded {
            &self.ledger.held
        } else {
            &self.ledger.exempt
        };
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        let sum = if self.bounded {
            &self.ledger.held
        } else {
            &self.ledger.exempt
        };
        sum.fetch_sub(bytes, Ordering::Relaxed);
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
