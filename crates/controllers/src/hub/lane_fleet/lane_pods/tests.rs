//! Pods of lanes, as the hub sees them: which Pod has orders and when, and what happens to a Pod that violates the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use futures::FutureExt as _;
use tenure_tenancy::identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::context::lane_settings::LaneMode;
use crate::hub::lane_fleet::{HubOverview as _, Mirror};
use crate::lane_protocol::messages::{NamespaceFacts, write_frame};
use crate::lane_protocol::pod_connection::{VERSION, write_hello};
use crate::test_hub::{TestHub, make_apart_settings};

/// Long enough for fast events, and short enough to wait for.
const PATIENCE: Duration = Duration::from_millis(1200);

/// A hub with a tenant whose lane is in a Pod.
struct Scene {
    fleet: Arc<LaneFleet>,
    lane: Arc<LaneHandle>,
    stage: TestHub,
}

impl Scene {
    fn set() -> Self {
        let stage = TestHub::set(|config| {
            config.lanes = LaneMode::Pods(Box::new(PodSettings {
                pods: LanePods::default(),
                door: LaneEndpoint::default(),
                apart: make_apart_settings(PATIENCE),
            }));
        });
        stage.show_two_tenants();
        let fleet = stage.make_fleet();
        let placement = stage.hub.place_known("green");
        let account = identity::decide_for_lane(&placement, "green");
        let lane = Arc::new(LaneHandle::new("tenant/green", account));
        let facts = NamespaceFacts {
            placement,
            ending: None,
            is_admitted: true,
        };
        lane.assign("green", facts);
        lock(&fleet.lanes).insert(lane.name.clone(), Arc::clone(&lane));
        Self { fleet, lane, stage }
    }

    /// Connects a Pod with this uid. Returns its end of the line.
    async fn connect(&self, account: &str, uid: &str) -> Result<PodStream, PodRefusal> {
        let (hub, mut pod) = tokio::io::duplex(1 << 20);
        let hello = crate::lane_protocol::pod_connection::PodHello {
            version: VERSION.to_owned(),
            token: "sesame".to_owned(),
            folder: "/data/lane".into(),
        };
        write_hello(&mut pod, &hello).await.unwrap();
        let call = LaneConnection::read_greeting(hub).await.unwrap();
        let pod_of = ProvenPod {
            account: account.to_owned(),
            uid: uid.to_owned(),
        };
        self.fleet.accept_pod(pod_of, call)?;
        Ok(Box::pin(pod))
    }

    /// Serves the next Pod. Returns the reported facts, and a token to end the Pod.
    fn attend(&self) -> (mpsc::Receiver<ProcessEvent>, CancellationToken) {
        let (sender, events) = mpsc::channel(16);
        let kill = CancellationToken::new();
        let (fleet, lane, ended) = (Arc::clone(&self.fleet), Arc::clone(&self.lane), kill.clone());
        tokio::spawn(async move {
            let cause = serve_pod(&fleet, &lane, &ended, &sender).await;
            sender.send(ProcessEvent::Ended(cause)).await.unwrap();
        });
        (events, kill)
    }
}

/// Returns the next message of the hub to the Pod.
async fn receive_message(pod: &mut PodStream) -> ToPod {
    loop {
        match read_part::<ToPod>(pod).await.unwrap() {
            Some(Part::Own(word)) => return word,
            Some(_) => {}
            None => panic!("the line ended"),
        }
    }
}

/// Sends one part as a Pod.
async fn send_part(pod: &mut PodStream, kind: u8, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    pod.write_all(&[&length[..], &[kind], body].concat()).await.unwrap();
}

async fn send_own(pod: &mut PodStream, word: &FromPod) {
    send_part(pod, 0, &serde_json::to_vec(word).unwrap()).await;
}

async fn send_as_lane(pod: &mut PodStream, frame: &FromLane) {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, frame).await.unwrap();
    send_part(pod, 1, &bytes[4..]).await;
}

/// Lets a Pod begin and report that it is alive. Returns a time before its last acknowledgement.
async fn begin_in(pod: &mut PodStream, events: &mut mpsc::Receiver<ProcessEvent>) -> Instant {
    assert!(matches!(receive_message(pod).await, ToPod::Begin(_)));
    let before = Instant::now();
    send_own(pod, &FromPod::Alive(1)).await;
    assert!(matches!(receive_message(pod).await, ToPod::Received(1)));
    assert_eq!(events.recv().await, Some(ProcessEvent::Started));
    before
}

/// Messages of a Pod about another lane's namespace have no effect.
#[tokio::test]
async fn pod_with_unreadable_message_is_ended() {
    let scene = Scene::set();
    let refused = scene.connect("tenure-lane-tenant-mauve", "m").await.err();
    assert_eq!(
        refused,
        Some(PodRefusal::NoSuchLane),
        "nothing of that lane is reconciled"
    );
    let mut pod = scene.connect("tenure-lane-tenant-green", "g").await.unwrap();
    let (mut events, _kill) = scene.attend();
    begin_in(&mut pod, &mut events).await;
    // A report about another lane's namespace is no violation, and has no effect. The same holds for a piece that was not requested.
    let turnover = FromLane::Turnover {
        namespace: "mauve".to_owned(),
        name: "infra".to_owned(),
        turnover: Default::default(),
    };
    send_as_lane(&mut pod, &turnover).await;
    send_as_lane(
        &mut pod,
        &FromLane::Left {
            namespace: "mauve".to_owned(),
        },
    )
    .await;
    send_part(&mut pod, 2, &[0; 100]).await;
    let wants = FromPod::Wants {
        number: 3,
        reference: Reference {
            from: "mauve".to_owned(),
            kind: "GitRepository".to_owned(),
            namespace: "mauve".to_owned(),
            name: "app".to_owned(),
        },
        digest: "sha256:0".to_owned(),
    };
    send_own(&mut pod, &wants).await;
    assert!(
        matches!(receive_message(&mut pod).await, ToPod::Refused { number: 3, refusal } if refusal.failure == ConnectFailure::Denied)
    );
    // A lane in a Pod gets its token from the relay, and none here.
    let question = FromLane::Question {
        number: 9,
        question: crate::lane_protocol::messages::Question::Token { refused: false },
    };
    send_as_lane(&mut pod, &question).await;
    loop {
        let Some(Part::Lane(frame)) = read_part::<ToPod>(&mut pod).await.unwrap() else {
            continue;
        };
        if let ToLane::Answer { number: 9, answer } = decode(&frame).unwrap() {
            assert!(
                matches!(answer, crate::lane_protocol::messages::Answer::Token(Err(_))),
                "{answer:?}"
            );
            break;
        }
    }
    assert!(scene.lane.outgoing.has_namespace("green"));
    // An unreadable message is a violation.
    send_part(&mut pod, 1, b"{\"Obey\":\"pass\"}").await;
    let killed = events.recv().await;
    assert!(
        matches!(killed, Some(ProcessEvent::Killed(ExitCause::Misspoke(_)))),
        "{killed:?}"
    );
    // The hub waits until the Pod's lane has ended.
    send_own(&mut pod, &FromPod::Ended(PodEnd::Exited(1))).await;
    assert!(matches!(events.recv().await, Some(ProcessEvent::Ended(_))));
    assert!(lock(&scene.lane.pod.unconfirmed).is_none());
}

#[tokio::test]
async fn second_pod_waits_while_first_pod_can_work() {
    let scene = Scene::set();
    let account = "tenure-lane-tenant-green";
    let mut first = scene.connect(account, "one").await.unwrap();
    let (mut events, _kill) = scene.attend();
    begin_in(&mut first, &mut events).await;
    // A Pod that ends in good order leaves nothing to wait for.
    send_own(&mut first, &FromPod::Ended(PodEnd::Signalled(9))).await;
    assert_eq!(events.recv().await, Some(ProcessEvent::Ended(ExitCause::Signalled(9))));
    let mut second = scene.connect(account, "two").await.unwrap();
    let (mut events, _kill) = scene.attend();
    let before = begin_in(&mut second, &mut events).await;
    // A broken line says nothing about the lane at its other end.
    second.write_all(&[0, 0]).await.unwrap();
    drop(second);
    assert_eq!(events.recv().await, Some(ProcessEvent::Ended(ExitCause::HungUp)));
    let mut third = scene.connect(account, "three").await.unwrap();
    let (mut events, kill) = scene.attend();
    begin_in(&mut third, &mut events).await;
    assert!(
        before.elapsed() >= count_as_gone(PATIENCE),
        "another one could still work: {:?}",
        before.elapsed()
    );
    // The hub waits for a Pod that has the order to end, until the Pod reports its end or the lease is over.
    kill.cancel();
    let mut rest = Vec::new();
    third.read_to_end(&mut rest).await.unwrap();
    send_own(&mut third, &FromPod::Ended(PodEnd::Alone)).await;
    assert_eq!(events.recv().await, Some(ProcessEvent::Ended(ExitCause::HungUp)));
    // The same Pod again: its previous lane has ended.
    third = scene.connect(account, "three").await.unwrap();
    let (mut events, _kill) = scene.attend();
    begin_in(&mut third, &mut events).await;
    third.write_all(&[0, 0]).await.unwrap();
    drop(third);
    assert_eq!(events.recv().await, Some(ProcessEvent::Ended(ExitCause::HungUp)));
    assert_eq!(scene.lane.pod.find_turn("three"), None);
    assert!(scene.lane.pod.find_turn("four").is_some());
}

#[tokio::test]
async fn leftovers_stay_until_all_lanes_are_known() {
    let scene = Scene::set();
    let home = Mirror {
        shard: scene.stage.hub.open_shard("mauve"),
        lane: None,
        is_moving: false,
    };
    lock(&scene.fleet.homes).insert("mauve".to_owned(), home);
    let looked = scene.fleet.look_for_left_over().now_or_never();
    assert!(matches!(looked, Some(Ok(()))), "nobody is asked: {looked:?}");
    lock(&scene.fleet.homes).get_mut("mauve").unwrap().lane = Some(Arc::clone(&scene.lane));
    let asked = scene.fleet.look_for_left_over().now_or_never();
    assert!(
        asked.is_none(),
        "the cluster, which doesn't answer, is asked: {asked:?}"
    );
}
