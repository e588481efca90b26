//! The issue that shows a request to the owner of a project: open while the request waits, closed after the answer, bounded for each requester, and
//! without effect on the decision.

use serde_json::{Value, json};
use tenure_forge_server::Issue;
use tenure_testkit::{SOON, eventually};

use super::ACCESS;
use super::bed::{Bed, PLATFORM, PROJECT, PROVIDER_KIND, REQUEST, VERSION};
use crate::stage::condition;
use crate::tenants::tenant;

/// The limit of open issues of one tenant.
const MOST: usize = 5;

impl Bed {
    /// Waits until exactly this many issues are open.
    async fn until_open(&self, count: usize) -> Vec<Issue> {
        let looked = eventually(SOON, || async {
            let open: Vec<Issue> = self.forge.issues().into_iter().filter(|issue| issue.is_open).collect();
            if open.len() == count {
                Ok(open)
            } else {
                Err(format!("{open:#?}"))
            }
        });
        match looked.await {
            Ok(open) => open,
            Err(last) => {
                let requests = self.admin().list(REQUEST, PLATFORM).await.unwrap();
                panic!("these are open: {last}; {requests:#?}")
            }
        }
    }

    /// Waits for the pending request of a FluxAccess.
    async fn until_asked(&self, name: &str) -> Value {
        let is_it =
            |request: &Value| request["spec"]["askedIn"]["name"] == name && request["status"]["state"] == "Pending";
        let looked = eventually(SOON, || async {
            let all = self.list_requests().await?;
            all.into_iter()
                .find(is_it)
                .ok_or_else(|| "it does not wait yet".to_owned())
        });
        looked.await.unwrap()
    }

    /// Waits for this many requests whose condition has this reason, and returns them.
    async fn until_announced_with(&self, reason: &str, count: usize) -> Vec<Value> {
        let is_announced =
            |request: &Value| condition(request, "Announced").is_some_and(|announced| announced["reason"] == reason);
        let looked = eventually(SOON, || async {
            let all = self.list_requests().await?;
            let found: Vec<Value> = all.iter().filter(|request| is_announced(request)).cloned().collect();
            if found.len() == count {
                Ok(found)
            } else {
                let conditions: Vec<_> = all.iter().map(|request| &request["status"]["conditions"]).collect();
                Err(format!("{conditions:#?}"))
            }
        });
        looked.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issue_in_project_shows_request_until_its_answer() {
    let mut bed = Bed::new(&["acc-t"], "namespaces: [acc-t], service_accounts: [flux]").await;
    let request = bed.pending().await;
    let name = request["metadata"]["name"].as_str().unwrap();
    let [issue] = &bed.until_open(1).await[..] else {
        panic!()
    };
    assert!(issue.is_confidential && issue.project == bed.project && issue.title.contains(name));
    for text in [
        "`acc-t`",
        "`flux`",
        "`agent:work/prod`",
        "`read_repository`",
        request["spec"]["specHash"].as_str().unwrap(),
    ] {
        assert!(issue.description.contains(text), "{text}: {}", issue.description);
    }
    assert!(issue.description.contains(&format!("tenure access approve {name}\n")));
    assert!(!issue.description.contains(&bed.authoriser));
    let announced = bed
        .request("is announced", |request| {
            condition(request, "Announced").is_some_and(|announced| announced["status"] == "True")
        })
        .await;
    let message = condition(&announced, "Announced").unwrap()["message"].to_string();
    assert!(message.contains(&format!("/-/issues/{}", issue.number)), "{message}");

    // Restarted controllers open no second issue, and close none.
    bed.stage.restart().await;
    bed.look_again(&announced).await;
    bed.answer(&announced, "Approved").await;
    bed.wait_for_delivery().await;
    bed.until_open(0).await;
    assert_eq!(bed.forge.issues().len(), 1);
    let closed = bed
        .request("is shown no more", |request| {
            request["status"]["notice"].is_null() && condition(request, "Announced").is_none()
        })
        .await;
    let history = closed["status"]["history"].to_string();
    assert!(
        history.contains("\"Announced\"") && history.contains("\"Unannounced\""),
        "{history}"
    );
    bed.revoke("acc-t", "gitlab-flux-token").await;
    // A revoked request opens no new issue.
    bed.request("is revoked", |request| request["status"]["state"] == "Revoked")
        .await;
    assert_eq!(bed.forge.issues().len(), 1);
    bed.stage.shut_down().await;
}

/// A tenant can open only as many issues as its limit, blocks no other request, and its issues go with their requests. An owner can disable them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_opens_no_more_issues_than_its_limit() {
    let bed = Bed::new(&["acc-u"], "namespaces: [acc-u]").await;
    let agents = bed.pending().await;
    bed.until_open(1).await;
    tenant(&bed.stage, "acc-tenant").await;
    let tina = bed.asker("acc-tenant", "tina").await;
    let marks = json!({ "tenure.dev/requested-by": "tina" });
    let ask = |name: &str, projects: Value| {
        json!({
            "apiVersion": VERSION, "kind": "FluxAccess", "metadata": { "name": name, "namespace": "acc-tenant", "annotations": marks },
            "spec": { "provider": "work", "role": "read_repository", "projects": projects }
        })
    };
    // A requester without reach opens no issue.
    let stranger = ask(
        "stranger",
        json!([{ "id": PROJECT, "namespaces": ["acc-tenant"], "secretName": "stranger" }]),
    );
    eventually(SOON, || tina.create(stranger.clone())).await.unwrap();
    let request = bed.until_asked("stranger").await;
    assert!(condition(&request, "Announced").is_none() && bed.forge.issues().len() == 1);
    bed.admin().delete(ACCESS, ("acc-tenant", "stranger")).await.unwrap();

    let mut projects = Vec::new();
    for nth in 0..MOST + 2 {
        let path = format!("group-1/many-{nth}");
        bed.forge.add_project(&path).await.unwrap();
        projects.push(json!({ "id": path, "namespaces": ["acc-tenant"], "secretName": format!("many-{nth}") }));
    }
    let provider = json!({ "spec": { "tenants": ["acc-tenant"] } });
    bed.admin()
        .patch(PROVIDER_KIND, (PLATFORM, "work"), provider)
        .await
        .unwrap();
    let many = ask("many", json!(projects));
    eventually(SOON, || tina.create(many.clone())).await.unwrap();
    let open = bed.until_announced_with("Opened", 1 + MOST).await;
    let waits = bed.until_announced_with("TooMany", 2).await;
    assert_eq!(bed.until_open(1 + MOST).await.len(), open.len());
    for request in &waits {
        let message = condition(request, "Announced").unwrap()["message"].to_string();
        assert!(message.contains("tenant acc-tenant"), "{message}");
    }
    // The other request is not blocked: it is answered meanwhile.
    bed.answer(&agents, "Denied").await;
    bed.until_open(MOST).await;

    bed.admin().delete(ACCESS, ("acc-tenant", "many")).await.unwrap();
    bed.until_open(0).await;
    assert_eq!(bed.forge.issues().len(), 1 + MOST);

    let none = json!({ "spec": { "notice": "None" } });
    bed.admin()
        .patch(PROVIDER_KIND, (PLATFORM, "work"), none)
        .await
        .unwrap();
    let quiet = ask(
        "quiet",
        json!([{ "id": "group-1/many-0", "namespaces": ["acc-tenant"] }]),
    );
    tina.create(quiet).await.unwrap();
    let request = bed.until_asked("quiet").await;
    assert!(condition(&request, "Announced").is_none() && request["status"]["notice"].is_null());
    assert_eq!(bed.forge.issues().len(), 1 + MOST);
    bed.admin().delete(ACCESS, ("acc-tenant", "quiet")).await.unwrap();
    bed.stage.shut_down().await;
}
