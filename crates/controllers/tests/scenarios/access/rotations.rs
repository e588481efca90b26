//! A client clones all the time with the Secret's content, by a real git, while the credential is replaced repeatedly. No clone may fail.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_testkit::Admin;

use super::bed::{Bed, PROJECT, Setup, decode, ledger};
use crate::deploy_keys::SECRET;
use crate::stage::condition;

/// The default number of replacements.
const ROTATIONS: usize = 5;
/// The variable with another number.
const VARIABLE: &str = "TENURE_TEST_ROTATIONS";
const NAMESPACE: &str = "acc-x";
/// The limit of living credentials: the one in use, the previous one, and the next.
const MOST_LIVE: usize = 3;

/// Clones until the end signal. Returns the number of clones, and the failures.
pub(super) async fn clone_on(
    admin: Admin,
    (url, namespace): (String, &str),
    end: Arc<AtomicBool>,
) -> (usize, Vec<String>) {
    let (mut clones, mut failures) = (0, Vec::new());
    while !end.load(Ordering::Relaxed) {
        let secret = admin.get(SECRET, (namespace, "gitlab-flux-token")).await;
        let Ok(Some(secret)) = secret else {
            failures.push(format!("the Secret is not there: {secret:?}"));
            continue;
        };
        let pair = format!("{}:{}", decode(&secret, "username"), decode(&secret, "password"));
        let url = url.replace("http://", &format!("http://{pair}@"));
        let cloned = tokio::task::spawn_blocking(move || {
            let folder = tempfile::tempdir().unwrap();
            let mut git = Command::new("git");
            git.args(["clone", "--quiet", &url])
                .arg(folder.path().join("clone"))
                .env("GIT_TERMINAL_PROMPT", "0");
            git.output().unwrap()
        });
        let output = cloned.await.unwrap();
        clones += 1;
        if !output.status.success() {
            failures.push(format!("clone {clones}: {}", output.status));
        }
    }
    (clones, failures)
}

impl Bed {
    /// Ends all retiring credentials except the last one, as if two intervals had passed since then.
    async fn end_retirements(&self) {
        let end = |ledgers: &mut Vec<Value>| {
            let retiring = ledgers.first_mut().and_then(|ledger| ledger["retiring"].as_array_mut());
            let mut retiring: Vec<&mut Value> = retiring.into_iter().flatten().collect();
            retiring.sort_by_key(|held| held["generation"].as_u64());
            retiring.pop();
            for held in retiring {
                held["retireAt"] = json!(Timestamp::now().to_string());
            }
        };
        self.edit_ledgers(async || self.request("is there", |_| true).await, end)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_clone_fails_while_credential_is_replaced() {
    let rotations = std::env::var(VARIABLE).map_or(ROTATIONS, |count| count.parse().expect(VARIABLE));
    let setup = Setup {
        namespaces: &[NAMESPACE],
        entries: "namespaces: [acc-x]",
        ..Setup::default()
    };
    let mut bed = Bed::set(setup).await;
    bed.source(NAMESPACE).await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let end = Arc::new(AtomicBool::new(false));
    let url = bed.forge.git().http_url(PROJECT);
    let cloning = tokio::spawn(clone_on(bed.admin().clone(), (url, NAMESPACE), Arc::clone(&end)));
    for number in 0..rotations {
        bed.prepare(&format!("replacement {number}")).await;
        bed.end_retirements().await;
        let order = bed.order(false).await;
        let is_done = |request: &Value| {
            let is_open = order.is_open(&serde_json::from_value(request.clone()).unwrap());
            let is_verified = condition(request, "Verified").is_some_and(|verified| verified["status"] == "True");
            !is_open && is_verified && ledger(request)["next"].is_null()
        };
        bed.request("was replaced", is_done).await;
        let live = bed.live();
        assert!(live.len() <= MOST_LIVE, "replacement {number}: {live:#?}");
    }
    end.store(true, Ordering::Relaxed);
    let (clones, failures) = cloning.await.unwrap();
    assert!(
        failures.is_empty(),
        "of {clones} clones in {rotations} replacements: {failures:#?}"
    );
    assert!(clones >= rotations, "only {clones} clones in {rotations} replacements");
    println!("{clones} clones in {rotations} replacements, none of which failed");
    bed.revoke(NAMESPACE, "gitlab-flux-token").await;
    bed.stage.shut_down().await;
}
