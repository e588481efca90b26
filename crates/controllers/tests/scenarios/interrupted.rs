//! Reconciliations whose own bookkeeping fails: nothing is created that no stored inventory names.

use http::Method;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, config_map};

const STATUS: &str = "/kustomizations/app/status";

fn names(object: Option<&Value>) -> bool {
    object.is_some_and(|object| object["status"]["inventory"].to_string().contains("_a__ConfigMap"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_created_before_the_inventory_is_stored() {
    let stage = Stage::set("interrupted-a").await;
    if !stage.is_embedded() {
        return stage.shut_down().await;
    }
    let repository = stage
        .repository("interrupted-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    // A conflict without a change of the object, and errors without a cause.
    for (code, failures) in [(409, 5), (500, 2)] {
        stage.faults.refuse(Method::PATCH, STATUS, code);
        stage.kustomization("interrupted-a", "app", "app", json!({})).await;
        let failed = eventually(SOON, || async {
            (stage.faults.times() >= failures).then_some(()).ok_or(())
        });
        failed.await.unwrap();
        assert!(stage.get(CONFIG_MAP, ("interrupted-a", "a")).await.is_none());
        stage.faults.clear();
    }
    // A lost answer, although the status was stored: the apply follows once that is known.
    stage.faults.lose_answers(Method::PATCH, STATUS, 500);
    stage
        .wait_for(CONFIG_MAP, ("interrupted-a", "a"), |object| object.is_some())
        .await;
    assert!(names(stage.get(KUSTOMIZATION, ("interrupted-a", "app")).await.as_ref()));
    stage.faults.clear();
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("interrupted-a", "app"), &first).await;
    stage.shut_down().await;
}
