//! Bodies that arrive in parts, that never end, and that arrive while no bytes are free.

use futures::future::join_all;
use http_body::Frame;
use http_body_util::StreamBody;

use super::*;
use crate::byte_ledger::ByteLedger;
use crate::http::BoxError;

const MIB: usize = 1 << 20;
/// A patience that never ends in these tests.
const EVER: Duration = Duration::from_secs(3600);
/// A patience of almost no time: a request that must wait fails.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Returns a body of this many bytes in frames like those of HTTP/2, with a yield after each frame. Without `ends` it
/// is endless.
fn make_body(bytes: usize, ends: bool) -> impl http_body::Body<Data = Bytes, Error = BoxError> {
    use futures::StreamExt as _;
    const FRAME: usize = 16 * 1024;
    let frames = futures::stream::iter(0..bytes.div_ceil(FRAME)).then(move |number| async move {
        tokio::task::yield_now().await;
        let length = FRAME.min(bytes - number * FRAME);
        Ok(Frame::data(Bytes::from(vec![b'x'; length])))
    });
    let end = futures::stream::once(async move {
        if !ends {
            std::future::pending::<()>().await;
        }
        Ok(Frame::data(Bytes::new()))
    });
    StreamBody::new(frames.chain(end))
}

fn incoming_body(account: &Arc<Account>, patience: Duration) -> IncomingBody {
    IncomingBody::new(account.clone(), patience)
}

fn ledger() -> Arc<ByteLedger> {
    ByteLedger::for_growing(8 * MIB, 32 * MIB, MAX_BODY)
}

#[tokio::test]
async fn endless_bodies_hold_at_most_their_users_bound() {
    let ledger = ledger();
    let greedy = ledger.open();
    let mut endless: Vec<_> = (0..20)
        .map(|_| Box::pin(incoming_body(&greedy, EVER).read_body(make_body(2 * MIB, false))))
        .collect();
    for _ in 0..200 {
        for one in &mut endless {
            assert!(futures::poll!(one.as_mut()).is_pending());
        }
        assert!(ledger.held_bytes().0 <= 8 * MIB, "{:?}", ledger.held_bytes());
        tokio::task::yield_now().await;
    }
    assert!(
        ledger.held_bytes().0 > 4 * MIB,
        "what has arrived is charged: {:?}",
        ledger.held_bytes()
    );
    let next = incoming_body(&greedy, AT_ONCE)
        .read_body(make_body(2 * MIB, true))
        .await;
    assert!(matches!(next, Err(BodyRejection::NoRoom)));
    let before = ledger.held_bytes();
    let small = incoming_body(&greedy, AT_ONCE)
        .read_body(make_body(UNCHARGED, true))
        .await;
    assert!(
        small.is_ok() && ledger.held_bytes() == before,
        "a small one is not charged"
    );
    // Another user has free bytes.
    let other = ledger.open();
    for bytes in [10, 100_000, MIB, MAX_BODY] {
        let taken = incoming_body(&other, AT_ONCE)
            .read_body(make_body(bytes, true))
            .await
            .expect("room");
        assert_eq!(taken.bytes.len(), bytes);
        let charged = ledger.held_bytes().0;
        drop(taken);
        assert_eq!(charged > ledger.held_bytes().0, bytes > UNCHARGED);
    }
    drop(endless);
    assert_eq!(ledger.held_bytes(), (0, 0), "who hangs up gives all of it back");
}

#[tokio::test]
async fn many_concurrent_bodies_are_all_read() {
    let ledger = ByteLedger::for_growing(8 * MIB, 12 * MIB, MAX_BODY);
    let accounts = [ledger.open(), ledger.open(), ledger.open()];
    // Together they exceed the limit by far, and each has begun before one is done.
    let all = accounts.iter().cycle().take(30).map(|account| {
        let ledger = ledger.clone();
        async move {
            let taken = incoming_body(account, EVER)
                .read_body(make_body(2 * MIB + 5, true))
                .await
                .expect("room in the end");
            assert!(
                ledger.held_bytes().0 <= 12 * MIB + MAX_BODY,
                "{:?}",
                ledger.held_bytes()
            );
            taken.bytes.len()
        }
    });
    assert_eq!(join_all(all).await, [2 * MIB + 5; 30]);
    assert_eq!(ledger.held_bytes(), (0, 0));
}

#[tokio::test]
async fn silent_body_times_out_when_memory_is_short() {
    let ledger = ledger();
    let silent = ledger.open();
    let quiet = |account: &Arc<Account>| IncomingBody {
        quiet: AT_ONCE,
        ..incoming_body(account, EVER)
    };
    let mut waited_for = Box::pin(quiet(&silent).read_body(make_body(MIB, false)));
    while ledger.held_bytes().0 < MIB {
        assert!(futures::poll!(waited_for.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..28).filter_map(|_| ledger.open().try_charge(MIB)).collect();
    assert!(silent.is_short(), "{:?}", ledger.held_bytes());
    let Err(BodyRejection::Wrong(error)) = waited_for.await else {
        panic!("it never ends");
    };
    assert_eq!((error.code, error.reason.as_ref()), (408, "Timeout"));
    drop(others);
    assert_eq!(ledger.held_bytes(), (0, 0));
}

#[tokio::test]
async fn a_body_is_read_up_to_the_limit() {
    let ledger = ledger();
    let account = ledger.open();
    let exact = incoming_body(&account, AT_ONCE)
        .read_body(make_body(MAX_BODY, true))
        .await
        .expect("the largest");
    assert_eq!(exact.bytes.len(), MAX_BODY);
    drop(exact);
    let Err(BodyRejection::Wrong(error)) = incoming_body(&account, AT_ONCE)
        .read_body(make_body(MAX_BODY + 1, true))
        .await
    else {
        panic!("it is too large");
    };
    assert_eq!(error.code, 413);
    let whole = http_body_util::Full::new(Bytes::from(vec![b'x'; MIB]));
    let taken = incoming_body(&account, AT_ONCE)
        .read_body(whole)
        .await
        .expect("in one part");
    assert!(ledger.held_bytes().0 < MIB + 2048, "{:?}", ledger.held_bytes());
    drop(taken);
    assert_eq!(ledger.held_bytes(), (0, 0));
}

fn burden(bytes: Bytes, form: &str) -> WorkingMemory {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, form.parse().expect("a header"));
    let taken = ReceivedBody { bytes, _charge: None };
    WorkingMemory::new(taken, LargeParts::default(), &headers, "create")
}

#[tokio::test]
async fn decoding_a_body_waits_for_memory() {
    let ledger = ByteLedger::new(64 * MIB, 192 * MIB);
    let account = ledger.open();
    let dense = Bytes::from(format!("[{}]", vec!["{\"a\":1}"; 50_000].join(",")));
    let burden = |form: &str| burden(dense.clone(), form);
    let (_, first) = burden("application/json")
        .charge_decoded(&account, AT_ONCE)
        .await
        .expect("room");
    assert!(ledger.held_bytes().0 > 32 * MIB, "{:?}", ledger.held_bytes());
    assert!(burden("").charge_decoded(&account, AT_ONCE).await.is_err());
    assert!(
        burden("application/yaml")
            .charge_decoded(&account, AT_ONCE)
            .await
            .is_err()
    );
    let mut waits = Box::pin(burden("a/b; x=application/vnd.kubernetes.protobuf").charge_decoded(&account, EVER));
    assert!(futures::poll!(waits.as_mut()).is_pending());
    let other = ledger.open();
    let held = burden("")
        .charge_decoded(&other, AT_ONCE)
        .await
        .expect("room of another user's");
    drop(first);
    let second = waits.await.expect("room that was given back");
    drop((second, held));
    assert_eq!(ledger.held_bytes(), (0, 0));
    let light = self::burden(Bytes::from_static(b"{}"), "")
        .charge_decoded(&account, AT_ONCE)
        .await;
    assert!(
        light.is_ok_and(|(_, charge)| charge.is_none()),
        "a small one is not charged"
    );
}

#[tokio::test]
async fn body_too_large_to_decode_is_refused() {
    let ledger = ByteLedger::new(MIB, 4 * MIB);
    let account = ledger.open();
    let dense = Bytes::from(format!("[{}]", vec!["{\"a\":1}"; 10_000].join(",")));
    let refused = burden(dense.clone(), "application/json")
        .charge_decoded(&account, EVER)
        .await;
    let Err(BodyRejection::Wrong(error)) = refused else {
        panic!("it comes to more than there is");
    };
    assert_eq!(error.code, 413);
    assert!(error.message.contains(" MiB of memory"), "{}", error.message);
    // The weight of YAML may be too high, so the body is admitted alone. An administrator has no limit.
    let alone = burden(dense.clone(), "application/yaml")
        .charge_decoded(&account, EVER)
        .await;
    drop(alone.expect("let in alone"));
    let exempt = ledger.open_exempt();
    drop(burden(dense, "").charge_decoded(&exempt, EVER).await.expect("let in"));
    assert_eq!(ledger.held_bytes(), (0, 0));
}
