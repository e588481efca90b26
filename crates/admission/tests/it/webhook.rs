//! The admission point of clusters with an API server of their own.

use tenure_admission::webhook::ClientVerifier;
use tenure_testkit::{Cluster, Kubernetes, KubernetesBinaries};

use crate::client_certificate::{gate_of, write_plugins};
use crate::door::{Door, certify};
use crate::embedded::{ask_and_compare, compare};
use crate::stage::{Answer, Stage};
use crate::table::{ByPolicy, Unanswered};

/// The server's text before the rule's message.
const PREFIX: &str = " denied the request: ";

/// Returns the rule's message without the server's text before it.
fn own_words(message: &str) -> &str {
    let rest = message.split_once(" denied the request: ");
    let rest = rest.or_else(|| message.split_once(" is forbidden: "));
    rest.map_or(message, |(_, rest)| rest)
}

/// Sends all cases to one server with the webhook and to another with a guard inside it, and compares the
/// answers.
async fn compare_doors(cluster: Cluster, gate: Option<ClientVerifier>) -> (usize, Stage) {
    let guarded = Stage::set().await;
    let stage = Stage::set_on(cluster).await;
    let mut door = Door::open(&stage.cluster, stage.settings(), gate).await;
    door.hang(&stage.cluster).await;
    let (mut asked, mut wrong) = (0, Vec::new());
    for (index, case) in stage.cases() {
        if !case.pure_only.is_empty() {
            continue;
        }
        asked += 1;
        if case.claimed {
            // Waits until both have learned of all objects.
            let _known = ask_and_compare(&guarded, case, " is forbidden: ").await;
            let _known = ask_and_compare(&stage, case, PREFIX).await;
        }
        let (answer, other) = (stage.ask(case).await, guarded.ask(case).await);
        // The schema refuses an object before a validating webhook sees it.
        if let (Some(ByPolicy::Server(_)), Answer::Refused(422, ..)) = (&case.policy, &answer) {
            continue;
        }
        let why = compare(case, &answer, PREFIX).err();
        let difference = match (&answer, &other) {
            (Answer::Refused(_, _, one), Answer::Refused(_, _, other)) if own_words(one) != own_words(other) => {
                Some(format!("the guard says {other}, the webhook {one}"))
            }
            _ => None,
        };
        wrong.extend(why.or(difference).map(|why| format!("case {}: {why}", index + 1)));
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
    door.close();
    see_unanswered(&stage).await;
    (asked, stage)
}

/// Checks the fate of a case while no webhook answers.
async fn see_unanswered(stage: &Stage) {
    let (mut seen, mut wrong) = ([0, 0], Vec::new());
    for (index, case) in stage.cases() {
        let Some(wanted) = case.unanswered else {
            continue;
        };
        let answer = stage.ask(case).await;
        let is_right = match (&answer, wanted) {
            (Answer::Allowed(..), Unanswered::GoesOn) => true,
            (Answer::Refused(_, _, message), Unanswered::Refused) => message.contains("failed calling webhook"),
            _ => false,
        };
        seen[usize::from(wanted == Unanswered::GoesOn)] += 1;
        if !is_right {
            wrong.push(format!("{}: {wanted:?}, but {answer:?}", case.name(index)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.iter().all(|many| *many >= 4), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_answers_match_table_on_embedded_control_plane() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let (asked, _) = compare_doors(cluster, None).await;
    assert!(asked >= 500, "{asked}");
}

/// The server shows a certificate, and the webhook answers only clients with a certificate of that authority. The
/// servers of the other tests show none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_answers_match_table_on_real_api_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let (shown, stranger) = (certify(Some("kube-apiserver")), certify(Some("kube-apiserver")));
    let folder = tempfile::tempdir().unwrap();
    let plugins = write_plugins(folder.path(), &shown);
    let argument = format!("--admission-control-config-file={}", plugins.display());
    let kubernetes = Kubernetes::start_with(&binaries, true, &[&argument]).await.unwrap();
    let cluster = Cluster::connect_to(&kubernetes).await.unwrap();
    let (asked, stage) = compare_doors(cluster, Some(gate_of(&shown.authority))).await;
    assert!(asked >= 500, "{asked}");

    // The control: if the webhook demands another authority's certificate, it doesn't answer this
    // server, either.
    let door = Door::open(&stage.cluster, stage.settings(), Some(gate_of(&stranger.authority))).await;
    door.hang(&stage.cluster).await;
    let mut cases = stage.cases();
    let (index, case) = cases
        .find(|(_, case)| case.unanswered == Some(Unanswered::Refused))
        .unwrap();
    let answer = stage.ask(case).await;
    let Answer::Refused(_, _, message) = &answer else {
        panic!("{}: {answer:?}", case.name(index));
    };
    assert!(
        message.contains("the server has asked for the client to provide credentials"),
        "{message}"
    );
}
