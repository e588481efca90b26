//! A request is extended after its approval: the old credential lives until the new one is in use, and no clone fails meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use super::bed::{Bed, GRANT, PLATFORM, PROJECT, REQUEST, decode, grant};
use super::rotations::clone_on;
use crate::deploy_keys::{ROLE_BINDING, SECRET};
use crate::stage::condition;

const NAME: &str = "gitlab-flux-token";
/// The second grant.
const MORE: &str = "alice-approved-more";

impl Bed {
    /// Ends everything of a request that retires, as if two intervals had passed.
    async fn end_all_retirements(&self, name: &str) {
        let end = |ledgers: &mut Vec<Value>| {
            for ledger in ledgers {
                for held in ledger["retiring"].as_array_mut().into_iter().flatten() {
                    held["retireAt"] = json!(Timestamp::now().to_string());
                }
            }
        };
        let find = async || self.stage.get(REQUEST, (PLATFORM, name)).await.unwrap();
        let request = self.edit_ledgers(find, end).await;
        self.look_again(&request).await;
    }

    /// Approves a request that asks for more than an earlier approved one.
    async fn let_more(&self, request: &Value) {
        let alice = self.admin().impersonating("alice").unwrap();
        let mut answer = grant(request, &self.target(), "alice", "Approved");
        answer["metadata"]["name"] = json!(MORE);
        eventually(SOON, || alice.create(answer.clone())).await.unwrap();
    }
}

fn name_of(request: &Value) -> &str {
    request["metadata"]["name"].as_str().unwrap()
}

fn find<'a>(requests: &'a [Value], name: &str) -> Option<&'a Value> {
    requests.iter().find(|request| name_of(request) == name)
}

fn is_in_use(request: &Value, namespaces: usize) -> bool {
    let ledgers = request["status"]["credentials"].as_array();
    let in_use = ledgers.into_iter().flatten();
    in_use
        .filter(|ledger| ledger["current"]["verifiedAt"].is_string())
        .count()
        == namespaces
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_clone_fails_while_request_is_extended() {
    let bed = Bed::new(&["acc-w", "acc-v"], "namespaces: [acc-w], service_accounts: [flux]").await;
    bed.source("acc-w").await;
    let first = bed.pending().await;
    bed.answer(&first, "Approved").await;
    let first = bed.wait_for_delivery().await;
    let first = name_of(&first).to_owned();
    let secret = bed.secret("acc-w").await.unwrap();
    let before = (secret["metadata"]["uid"].clone(), decode(&secret, "password"));
    let end = Arc::new(AtomicBool::new(false));
    let url = bed.forge.git().http_url(PROJECT);
    let cloning = tokio::spawn(clone_on(bed.admin().clone(), (url, "acc-w"), Arc::clone(&end)));

    // More is requested: the new request waits, and the old one continues.
    bed.ask(
        "read_repository",
        "namespaces: [acc-w, acc-v], service_accounts: [flux, ci]",
    )
    .await;
    let all = bed
        .requests("waits beside the first", |all| {
            all.len() == 2 && all.iter().any(|request| request["status"]["state"] == "Pending")
        })
        .await;
    let wider = all.iter().find(|request| name_of(request) != first).unwrap();
    let second = name_of(wider).to_owned();
    assert_eq!(find(&all, &first).unwrap()["status"]["state"], "Approved");
    assert!(bed.secret("acc-v").await.is_none() && bed.live().len() == 1);

    // It is approved: its credential is in both namespaces, in the same Secret. The old credential lives until no client can be using it.
    bed.let_more(wider).await;
    let all = bed
        .requests("takes over", |all| {
            let is_taken_over = find(all, &second).is_some_and(|request| is_in_use(request, 2));
            let is_handing_over = find(all, &first).is_some_and(|request| {
                request["status"]["credentials"][0]["retiring"][0]["retireAt"].is_string()
                    && condition(request, "Ready").is_some_and(|ready| ready["reason"] == "HandingOver")
            });
            is_taken_over && is_handing_over
        })
        .await;
    let message = condition(find(&all, &first).unwrap(), "Ready").unwrap()["message"]
        .as_str()
        .unwrap();
    assert!(message.contains(&second), "{message}");
    let secret = bed.secret("acc-w").await.unwrap();
    assert_eq!(secret["metadata"]["labels"]["tenure.dev/access-request"], second);
    assert_eq!(secret["metadata"]["uid"], before.0, "it was never away");
    assert_ne!(decode(&secret, "password"), before.1);
    assert!(bed.secret("acc-v").await.is_some());
    let binding = bed.stage.get(ROLE_BINDING, ("acc-w", NAME)).await.unwrap();
    assert_eq!(binding["subjects"].as_array().unwrap().len(), 3, "{binding:#?}");
    assert_eq!(bed.live().len(), 3, "{:#?}", bed.live());

    // Then the old request ends, without effect on the new one.
    bed.end_all_retirements(&first).await;
    bed.requests("is the wider one, alone", |all| {
        all.len() == 1 && name_of(&all[0]) == second
    })
    .await;
    assert_eq!(bed.live().len(), 2, "{:#?}", bed.live());
    let after = bed.secret("acc-w").await.unwrap();
    assert_eq!(decode(&after, "password"), decode(&secret, "password"));
    assert!(bed.stage.get(ROLE_BINDING, ("acc-w", NAME)).await.is_some());
    end.store(true, Ordering::Relaxed);
    let (clones, failures) = cloning.await.unwrap();
    assert!(clones > 0 && failures.is_empty(), "of {clones} clones: {failures:#?}");
    bed.admin().delete(GRANT, (PLATFORM, MORE)).await.unwrap();
    bed.until_none_lives().await;
    for namespace in ["acc-w", "acc-v"] {
        bed.stage
            .wait_for(SECRET, (namespace, NAME), |secret| secret.is_none())
            .await;
    }
    bed.stage.shut_down().await;
}

/// The host refuses the authoriser when the extended request is approved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_extension_keeps_first_credential() {
    let bed = Bed::new(&["acc-u", "acc-t"], "namespaces: [acc-u]").await;
    let first = bed.pending().await;
    bed.answer(&first, "Approved").await;
    let first = bed.wait_for_delivery().await;
    let before = bed.secret("acc-u").await.unwrap();
    bed.ask("read_repository", "namespaces: [acc-u, acc-t]").await;
    let all = bed.requests("asks for more", |all| all.len() == 2).await;
    let wider = all.iter().find(|request| name_of(request) != name_of(&first)).unwrap();
    bed.forge.revoke_authoriser(&bed.authoriser);
    bed.let_more(wider).await;
    let all = bed
        .requests("asks for more and is in trouble", |all| {
            let wider = find(all, name_of(wider));
            let ready = wider.and_then(|request| condition(request, "Ready"));
            ready.is_some_and(|ready| ready["status"] == "False")
        })
        .await;
    // The old request and its Secret exist.
    let old = find(&all, name_of(&first)).unwrap();
    assert!(
        old["metadata"]["deletionTimestamp"].is_null() && is_in_use(old, 1),
        "{old:#?}"
    );
    let after = bed.secret("acc-u").await.unwrap();
    assert_eq!(decode(&after, "password"), decode(&before, "password"));
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    // Deleting the first grant removes what it gave, although another grant was given since.
    bed.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
    bed.stage
        .wait_for(SECRET, ("acc-u", NAME), |secret| secret.is_none())
        .await;
    bed.stage.shut_down().await;
}
