//! A group's credential: for the namespaces intended for it, and tried in a project of the group before its delivery.

use serde_json::json;

use super::bed::{Bed, PLATFORM, PROVIDER_KIND, Setup, ledger};
use crate::stage::{GIT_REPOSITORY, condition};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_credential_is_tried_and_reaches_intended_namespaces() {
    let setup = Setup {
        namespaces: &["acc-g", "acc-h"],
        is_group: true,
        entries: "namespaces: [acc-g, acc-h]",
        provider: |_| json!({ "groupNamespaces": ["acc-g"] }),
        ..Setup::default()
    };
    let bed = Bed::set(setup).await;
    bed.source("acc-g").await;
    let request = bed.pending().await;
    assert_eq!(request["spec"]["target"]["scope"], "group");
    bed.answer(&request, "Approved").await;
    let request = bed.wait_for_delivery().await;
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-g", "app"), "True", "Succeeded")
        .await;
    // Once before it is delivered, and once after.
    let requests = bed.forge.requests();
    let searches = requests.iter().filter(|request| request.target.contains("/projects?"));
    let searches = searches.count();
    assert!(searches >= 2, "a project for the trial was searched {searches} times");
    let credentials = request["status"]["credentials"].as_array().unwrap();
    assert_eq!((credentials.len(), bed.live().len()), (1, 1), "{credentials:#?}");
    // A namespace that is not intended for it gets none, and the reason is reported.
    assert!(bed.secret("acc-h").await.is_none());
    let provider = bed.stage.get(PROVIDER_KIND, (PLATFORM, "work")).await.unwrap();
    let conditions = provider["status"]["conditions"].to_string();
    assert!(
        conditions.contains("acc-h") && conditions.contains("groupNamespaces"),
        "{conditions}"
    );
    assert!(condition(&request, "Verified").is_some_and(|verified| verified["status"] == "True"));
    assert!(ledger(&request)["current"]["verifiedAt"].is_string());
    bed.revoke("acc-g", "gitlab-flux-token").await;
    bed.stage.shut_down().await;
}
