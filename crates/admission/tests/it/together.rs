//! Webhooks and policies on one server, as in an installation with both. An object with a webhook's default passes the policy. A write that the webhook
//! refuses stays refused when the webhook is dead or hangs.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_testkit::{Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};
use tokio::net::TcpListener;

use crate::accesses;
use crate::door::Door;
use crate::stage::{Answer, Stage};
use crate::table::{ByPolicy, Case};

const KUSTOMIZATIONS: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/blue/kustomizations?dryRun=All";
/// The server's message when no webhook answered.
const NOT_CALLED: &str = "failed calling webhook";
/// The longest time of one request with a hanging webhook: an API server gives a webhook 30 seconds at most, and a request
/// meets several.
const BOUND: Duration = Duration::from_secs(180);

fn kustomization(account: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "together", "namespace": "blue" },
        "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "s" } }
    });
    if let Some(account) = account {
        object["spec"]["serviceAccountName"] = json!(account);
    }
    object
}

async fn ask(stage: &Stage, by: &str, account: Option<&str>) -> Answer {
    stage
        .send(stage.actor(by), Method::POST, KUSTOMIZATIONS, &kustomization(account))
        .await
}

fn is_by_policy(message: &str) -> bool {
    message.contains("ValidatingAdmissionPolicy 'tenure-")
}

async fn stand_together(cluster: Cluster) {
    let stage = Stage::set_on(cluster).await;
    let mut door = Door::open(&stage.cluster, stage.settings(), None).await;
    door.hang(&stage.cluster).await;
    stage.hand_over_to_policies().await;

    // The user names no account. The webhook sets it, and the policy, which would refuse a Kustomization
    // without it, accepts the object.
    match ask(&stage, "dev", None).await {
        Answer::Allowed(made, _) => assert_eq!(made["spec"]["serviceAccountName"], "blue-gitops", "{made}"),
        refused => panic!("{refused:?}"),
    }
    let refused = ask(&stage, "dev", Some("admin")).await;
    assert!(
        matches!(&refused, Answer::Refused(403, _, message) if message.ends_with("(flux-account)")),
        "{refused:?}"
    );
    let wrong = compare_all(&stage, |_| true, |_| true).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // The webhook is closed: a refused write stays refused, by the missing webhook or by a policy, and repairs are still allowed.
    door.close();
    let unanswered = eventually(SOON, || async {
        match ask(&stage, "dev", None).await {
            Answer::Refused(_, _, message) if message.contains(NOT_CALLED) || is_by_policy(&message) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    unanswered.await.unwrap();
    let mut by_policy = 0;
    let is_explained = |message: &str| {
        by_policy += usize::from(is_by_policy(message));
        message.contains(NOT_CALLED) || !message.contains("admission.tenure.dev")
    };
    // A user can't write an object in their own name while no webhook answers.
    let wrong = compare_all(&stage, is_explained, |case| !is_there_before(case)).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(by_policy >= 20, "only {by_policy} were refused by policies");
    let repaired = ask(&stage, "admin", Some("blue-gitops")).await;
    assert!(matches!(repaired, Answer::Allowed(..)), "{repaired:?}");

    // This listener accepts connections and never answers.
    let _silence = hang_up_nobody(&stage, &door).await;
    let refused = await_answer(ask(&stage, "dev", Some("admin"))).await;
    assert!(
        matches!(&refused, Answer::Refused(_, _, message) if message.contains(NOT_CALLED) || is_by_policy(message)),
        "{refused:?}"
    );
    let repaired = await_answer(ask(&stage, "admin", Some("blue-gitops"))).await;
    assert!(matches!(repaired, Answer::Allowed(..)), "{repaired:?}");
}

async fn await_answer(asked: impl Future<Output = Answer>) -> Answer {
    tokio::time::timeout(BOUND, asked)
        .await
        .expect("it is answered in the end")
}

/// Checks whether a case changes an access object that must exist before.
fn is_there_before(case: &Case) -> bool {
    let (operation, object) = case.action();
    let (_, resource, _) = object.what();
    operation != "CREATE" && accesses::KINDS.iter().any(|kind| accesses::plural_of(kind) == resource)
}

/// Sends every case of the table that admission points and policies decide alike, and that is meant. A denied case must be refused, with words that `is_explained`
/// accepts. An allowed case must be allowed while a webhook answers.
async fn compare_all(
    stage: &Stage,
    mut is_explained: impl FnMut(&str) -> bool,
    is_meant: impl Fn(&Case) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, case) in stage.cases() {
        let is_policys = matches!(case.policy, None | Some(ByPolicy::Says(_)));
        if !case.pure_only.is_empty() || !is_policys || !is_meant(case) {
            continue;
        }
        let answer = stage.ask(case).await;
        let is_right = match (&answer, &case.deny) {
            (Answer::Refused(_, _, message), Some(_)) => is_explained(message),
            (Answer::Allowed(..), None) => true,
            (Answer::Refused(_, _, message), None) => message.contains(NOT_CALLED),
            (Answer::Allowed(..), Some(_)) => false,
        };
        if !is_right {
            wrong.push(format!("case {}: {} gives {answer:?}", index + 1, case.name(0)));
        }
    }
    wrong
}

/// Points the server to a listener that accepts connections and never answers. Waits until the
/// server calls it.
async fn hang_up_nobody(stage: &Stage, door: &Door) -> tokio::task::JoinSet<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let (sender, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
            if sender.send(()).is_err() {
                std::future::pending::<()>().await;
            }
        }
    });
    for configuration in configurations(
        &WebhookPlace::Address(address),
        &door.authority,
        Surroundings::default(),
    ) {
        let webhooks = configuration["webhooks"].as_array().unwrap().iter();
        for webhook in webhooks {
            let patience = webhook["timeoutSeconds"].as_u64().unwrap();
            assert!((1..=10).contains(&patience), "{webhook}");
        }
        stage.cluster.admin.apply(configuration).await.unwrap();
    }
    let met = eventually(BOUND, || async {
        let asked = await_answer(ask(stage, "dev", Some("blue-gitops"))).await;
        match &asked {
            Answer::Refused(_, _, message)
                if message.contains("deadline") || message.contains("timeout") || message.contains("timed out") =>
            {
                Ok(())
            }
            _ => Err(format!("{asked:?}")),
        }
    });
    met.await.unwrap();
    assert!(connections.try_recv().is_ok(), "it was asked there");
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_webhook_admits_no_refused_write_when_embedded() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    stand_together(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_webhook_admits_no_refused_write_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    let cluster = Cluster::connect_to(&kubernetes).await.unwrap();
    stand_together(cluster).await;
}
