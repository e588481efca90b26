//! Tests the relay in a Pod: how long it goes on without the hub, and that nothing of the lane is left after that.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use super::*;
use crate::lane_protocol::pod_connection::read_hello;

fn line() -> (PodStream, PodStream) {
    let (one, other) = tokio::io::duplex(1 << 20);
    (Box::pin(one), Box::pin(other))
}

/// Sends a message as the hub.
async fn send_message(hub: &mut PodStream, word: &ToPod) {
    let word = serde_json::to_vec(word).unwrap();
    let head = u32::try_from(word.len()).unwrap().to_be_bytes();
    hub.write_all(&[&head[..], &[0], &word].concat()).await.unwrap();
}

#[tokio::test]
async fn lane_lease_ends_without_answers_of_hub() {
    let length = Duration::from_secs(8);
    let lease = Lease::new(length);
    let at = |seconds| lease.began + Duration::from_secs(seconds);
    assert_eq!(lease.end_time(), at(8));
    for number in 1..=3 {
        lease.note_sent(number, at(number));
    }
    assert_eq!(lease.end_time(), at(8), "saying it is not enough");
    // The lease counts from the time of the answered message, not from the arrival of the answer.
    lease.confirm_message(2);
    assert_eq!(lease.end_time(), at(10));
    // An answer to an unsent message, or a repeated answer, does not count.
    for number in [77, 1, 2] {
        lease.confirm_message(number);
        assert_eq!(lease.end_time(), at(10), "{number}");
    }
    lease.note_sent(78, at(20));
    lease.confirm_message(78);
    assert_eq!(lease.end_time(), at(28));
    // Without answers the relay ends by itself, and not before.
    let (pod, _hub) = line();
    let (_, write) = tokio::io::split(pod);
    let short = Lease::new(Duration::from_millis(40));
    short.send_alive(&PodWriter::new(write)).await;
    assert!(short.began.elapsed() >= short.length);
}

#[tokio::test]
async fn lane_ends_with_its_connection_and_reports_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = |script: &str| LaneProgram {
        program: "/bin/sh".into(),
        name: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
    };
    let begin = || {
        ToPod::Begin(Box::new(PodAssignment {
            lane: "tenant/green".to_owned(),
            policy: tenure_sources::Policy::default(),
            server: "https://127.0.0.1:1".to_owned(),
            lease: Duration::from_secs(600),
        }))
    };
    let end = CancellationToken::new();
    for (script, expected) in [
        ("exit 7", Some(PodEnd::Exited(7))),
        ("kill -9 $$", Some(PodEnd::Signalled(9))),
        // This lane never ends by itself.
        ("exec sleep 100000", None),
    ] {
        let relay = LaneRelay::new(&program(script), folder.path().to_owned(), || Ok("sesame".to_owned()));
        let (pod, mut hub) = line();
        let (begin, is_endless) = (begin(), expected.is_none());
        let (works, working) = (relay.works(), relay.works());
        let serving = relay.serve(pod, "proof".to_owned(), &end);
        let at_hub = async move {
            let hello = read_hello(&mut hub).await.unwrap();
            assert_eq!(hello.token, "proof");
            assert!(hello.folder.ends_with("lane"));
            send_message(&mut hub, &begin).await;
            loop {
                match read_part::<FromPod>(&mut hub).await.unwrap() {
                    // Nothing begins before this is answered.
                    Some(Part::Own(FromPod::Alive(FIRST))) => {
                        assert!(!working.load(Ordering::Acquire));
                        send_message(&mut hub, &ToPod::Received(FIRST)).await;
                    }
                    Some(Part::Own(FromPod::Ended(ended))) => return Some(ended),
                    // The lane runs, and the hub goes away.
                    Some(Part::Own(FromPod::Alive(_))) if is_endless => return None,
                    Some(_) => {}
                    None => panic!("the Pod reported no end"),
                }
            }
        };
        let (served, ended) = tokio::join!(serving, at_hub);
        assert_eq!((served, ended), (RelayEnd::LaneEnded, expected));
        assert!(!works.load(Ordering::Acquire));
    }
}

#[tokio::test]
async fn relay_answers_only_questions_for_the_token() {
    let frame = |frame: &FromLane| encode(frame).unwrap();
    let question = |question| FromLane::Question { number: 5, question };
    assert_eq!(
        find_token_question(&frame(&question(Question::Token { refused: true }))),
        Some(5)
    );
    for other in [
        question(Question::Endings(std::collections::BTreeSet::new())),
        FromLane::Pong(5),
        FromLane::Works,
    ] {
        assert_eq!(find_token_question(&frame(&other)), None);
    }
    assert_eq!(find_token_question(b""), None);
    assert_eq!(find_token_question(b"\0\0\0\x01{"), None);
}
