//! Tests requests before they come to a lane: paths, rates and memory.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use tenure_api::Receiver;

use super::*;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Answers by the name of the Receiver, or never.
#[derive(Debug, Default)]
struct Answering {
    is_ready: AtomicBool,
}

impl RequestForwarder for Answering {
    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    fn name_share(&self, namespace: &str) -> String {
        format!("tenant/{}", namespace.split('-').next().unwrap_or_default())
    }

    fn deliver<'a>(&'a self, receiver: &'a Key, _delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        let verdict = match receiver.name.as_str() {
            "done" => Verdict::Done,
            "failed" => Verdict::Failed,
            _ => Verdict::Unknown,
        };
        std::future::ready(verdict).boxed()
    }

    fn announce<'a>(&'a self, _url: &'a str) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key::new(Receiver::KIND, namespace, name)
}

fn path(number: usize) -> HookPath {
    name_path(&format!("/hook/{number:064x}")).unwrap()
}

fn ready() -> (ReceiverEndpoint, Arc<Answering>) {
    let forwarder = Arc::new(Answering::default());
    let receiver_endpoint = ReceiverEndpoint::default();
    receiver_endpoint.set_forwarder(Arc::downgrade(&forwarder) as Weak<dyn RequestForwarder>);
    forwarder.is_ready.store(true, Ordering::Relaxed);
    (receiver_endpoint, forwarder)
}

async fn ask(receiver_endpoint: &ReceiverEndpoint, path: &HookPath) -> Verdict {
    match receiver_endpoint.admit(path.as_str()) {
        Ok(admission) => admission.deliver(BTreeMap::new(), Vec::new()).await,
        Err(verdict) => verdict,
    }
}

#[tokio::test]
async fn path_reaches_its_receiver_while_receiver_exists() {
    let (receiver_endpoint, forwarder) = ready();
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Unknown);
    receiver_endpoint.set(&key("blue", "done"), Some(&path(1)));
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Done);
    // The Receiver gets another path.
    receiver_endpoint.set(&key("blue", "done"), Some(&path(2)));
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Unknown);
    assert_eq!(ask(&receiver_endpoint, &path(2)).await, Verdict::Done);
    receiver_endpoint.set(&key("blue", "done"), None);
    assert_eq!(ask(&receiver_endpoint, &path(2)).await, Verdict::Unknown);
    // Paths stay secret before all existing objects have been seen, and while no process leads.
    receiver_endpoint.set(&key("blue", "done"), Some(&path(1)));
    forwarder.is_ready.store(false, Ordering::Relaxed);
    for number in [1, 3] {
        assert_eq!(ask(&receiver_endpoint, &path(number)).await, Verdict::Unavailable);
    }
    drop(forwarder);
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Unavailable);
    let (again, _courier) = ready();
    assert_eq!(ask(&again, &path(1)).await, Verdict::Unknown);
}

/// An owner that learns another Receiver's token can't block that Receiver's requests.
#[tokio::test]
async fn duplicate_path_claim_blocks_no_other_receiver() {
    let (receiver_endpoint, _courier) = ready();
    for name in ["liar", "done"] {
        receiver_endpoint.set(&key("evil", name), Some(&path(1)));
    }
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Done);
    receiver_endpoint.set(&key("evil", "done"), None);
    receiver_endpoint.set(&key("blue", "failed"), Some(&path(1)));
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Failed);
    for number in 0..100 {
        receiver_endpoint.set(&key("evil", &format!("liar-{number}")), Some(&path(1)));
    }
    let admission = receiver_endpoint.admit(path(1).as_str()).unwrap();
    assert_eq!(admission.receivers.len(), NAMESAKES);
    assert_eq!(admission.receivers[1], key("blue", "failed"));
}

#[tokio::test]
async fn a_flood_at_one_hook_keeps_no_others_waiting() {
    let (receiver_endpoint, _courier) = ready();
    let names = [("evil", "done"), ("evil-dev", "failed"), ("blue", "done")];
    for (number, (namespace, name)) in names.into_iter().enumerate() {
        receiver_endpoint.set(&key(namespace, name), Some(&path(number)));
    }
    let mut verdicts = Vec::new();
    for _ in 0..1000 {
        verdicts.push(ask(&receiver_endpoint, &path(0)).await);
    }
    assert_eq!(verdicts[0], Verdict::Done);
    assert_eq!(verdicts[999], Verdict::TooMany);
    // The tenant's other hook still works, and another tenant's hook is not affected at all.
    assert_eq!(ask(&receiver_endpoint, &path(1)).await, Verdict::Failed);
    assert_eq!(ask(&receiver_endpoint, &path(2)).await, Verdict::Done);
    // Many hooks of one tenant together reach the tenant's limit.
    for number in 10..40 {
        receiver_endpoint.set(&key("evil", &format!("more-{number}")), Some(&path(number)));
    }
    let mut all = Vec::new();
    for _ in 0..20 {
        for number in 10..40 {
            all.push(ask(&receiver_endpoint, &path(number)).await);
        }
    }
    let admitted = all.iter().filter(|verdict| **verdict != Verdict::TooMany).count();
    assert!(admitted < 300, "{admitted}");
    assert_eq!(ask(&receiver_endpoint, &path(2)).await, Verdict::Done);
}

#[tokio::test]
async fn bodies_take_their_own_tenants_room() {
    let (receiver_endpoint, _courier) = ready();
    for (number, namespace) in ["evil", "evil-dev", "blue"].into_iter().enumerate() {
        receiver_endpoint.set(&key(namespace, "done"), Some(&path(number)));
    }
    let admit = |number| receiver_endpoint.admit(path(number).as_str()).unwrap();
    let mut held = Vec::new();
    for number in [0, 1] {
        let mut admission = admit(number);
        admission.hold(WHOLE_BODY / 2).unwrap();
        admission.hold(WHOLE_BODY).unwrap();
        assert_eq!(admission.hold(WHOLE_BODY + 1), Err(Verdict::Refused));
        held.push(admission);
    }
    assert_eq!(admit(0).hold(WHOLE_BODY), Err(Verdict::TooMany));
    assert_eq!(admit(2).hold(WHOLE_BODY), Ok(()));
    for admission in held {
        assert_eq!(admission.deliver(BTreeMap::new(), Vec::new()).await, Verdict::Done);
    }
    assert_eq!(admit(0).hold(WHOLE_BODY), Ok(()));
    assert_eq!(receiver_endpoint.shared.bodies.held(), 0);
}

#[test]
fn full_rate_buckets_are_dropped() {
    let mut buckets: HashMap<usize, TokenBucket> = (0..FEW).map(|number| (number, TokenBucket::default())).collect();
    buckets.shrink_to_fit();
    for number in 0..10 * FEW {
        drop_full(&mut buckets, Duration::ZERO);
        buckets.entry(number).or_default();
    }
    assert!(buckets.len() <= 4 * FEW, "{}", buckets.len());
}
