//! Two clusters whose agents have the same name, at one host: each has its own credentials, and ends none of the other's.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_testkit::{Cluster, SOON, eventually};

use super::bed::{Bed, GRANT, PLATFORM, PROVIDER_KIND, Setup, ledger};
use crate::stage::GIT_REPOSITORY;

fn setup(namespaces: &'static [&'static str]) -> Setup<'static> {
    Setup {
        namespaces,
        entries: "namespaces: [acc-k]",
        ..Setup::default()
    }
}

impl Bed {
    /// Requests access, approves it, and waits until a source has cloned. Returns the request.
    async fn have_access(&self) -> Value {
        self.source("acc-k").await;
        let request = self.pending().await;
        self.answer(&request, "Approved").await;
        let request = self.wait_for_delivery().await;
        self.stage
            .ready(GIT_REPOSITORY, ("acc-k", "app"), "True", "Succeeded")
            .await;
        request
    }

    fn list_living(&self) -> Vec<String> {
        self.live().into_iter().map(|live| live.name).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_with_same_agent_name_have_separate_credentials() {
    if Cluster::is_shared() {
        println!("skipped: there is one API server for all stories, and two clusters are asked for");
        return;
    }
    let one = Bed::set(setup(&["acc-k"])).await;
    let first = one.have_access().await;
    let other = Bed::set_at(Arc::clone(&one.host), setup(&["acc-k"])).await;
    let second = other.have_access().await;
    assert_ne!(first["spec"]["clusterUid"], second["spec"]["clusterUid"]);
    let mut names = [&first, &second].map(|request| ledger(request)["current"]["name"].as_str().unwrap().to_owned());
    let mut live = one.list_living();
    live.sort();
    names.sort();
    assert_eq!(live, names, "each has one, of a name of its own");

    // Both list the host's credentials. A credential with another cluster's name does not count as a leftover.
    for bed in [&one, &other] {
        let at = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": at } } });
        bed.admin()
            .patch(PROVIDER_KIND, (PLATFORM, "work"), patch)
            .await
            .unwrap();
    }
    // The first revokes its own credential, and the other's lives on.
    one.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
    let left = eventually(SOON, || async {
        let names = one.list_living();
        if names.len() == 1 {
            Ok(names)
        } else {
            Err(format!("{names:?}"))
        }
    });
    let left = left.await.unwrap();
    assert_eq!(left, [ledger(&second)["current"]["name"].as_str().unwrap()]);
    assert!(other.secret("acc-k").await.is_some() && one.secret("acc-k").await.is_none());
    one.stage.shut_down().await;
    other.stage.shut_down().await;
}
