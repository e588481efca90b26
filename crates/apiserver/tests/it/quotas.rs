//! Quotas hold however many requests arrive at the same time, and the charge of a refused write is refunded.

use serde_json::{Value, json};
use tenure_apiserver::{Config, Operation, Registry, Server};
use tenure_auth::identity::UserInfo;

const NAMESPACE: &str = "crowded";
/// Objects that every new namespace has: the CA's certificate.
const FURNITURE: usize = 1;

fn operation(registry: &Registry, plural: &str) -> Operation {
    let catalog = registry.catalog();
    let resource = catalog.find("", "v1", plural).unwrap().clone();
    let namespace = resource.namespaced.then(|| NAMESPACE.to_owned());
    Operation::new(resource, namespace, UserInfo::loopback(), "test")
}

/// Waits until the quota's status reports this use.
async fn wait_for_used(registry: &Registry, wanted: usize) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let quotas = registry.view().list("", "resourcequotas", Some(NAMESPACE));
        let used = quotas[0]
            .pointer("/status/used/configmaps")
            .cloned()
            .unwrap_or_default();
        if used == json!(wanted.to_string()) {
            return quotas[0].clone();
        }
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(180),
            "{wanted} wanted: {quotas:#?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_clients_together_get_no_more_than_the_quota() {
    const CLIENTS: usize = 24;
    const EACH: usize = 5;
    const HARD: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let registry = server.registry();
    let create = |plural: &'static str, object: Value| {
        let registry = registry.clone();
        async move { registry.create(&operation(&registry, plural), object).await }
    };
    create("namespaces", json!({"metadata": {"name": NAMESPACE}}))
        .await
        .unwrap();
    while registry.view().list("", "configmaps", Some(NAMESPACE)).len() < FURNITURE {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": HARD.to_string()}}});
    create("resourcequotas", quota).await.unwrap();
    wait_for_used(registry, FURNITURE).await;
    let clients = (0..CLIENTS).map(|client| {
        let registry = registry.clone();
        tokio::spawn(async move {
            let op = operation(&registry, "configmaps");
            let (mut let_in, mut refused) = (0, 0);
            for number in 0..EACH {
                let object = json!({"metadata": {"name": format!("c{client}-{number}")}});
                match registry.create(&op, object).await {
                    Ok(_) => let_in += 1,
                    Err(error) => {
                        assert_eq!(error.code, 403, "{error}");
                        assert!(error.message.contains("exceeded quota: q"), "{error}");
                        refused += 1;
                    }
                }
            }
            (let_in, refused)
        })
    });
    let (mut let_in, mut refused) = (0, 0);
    for client in futures::future::join_all(clients).await {
        let (own, not) = client.unwrap();
        let_in += own;
        refused += not;
    }
    assert_eq!(let_in, HARD - FURNITURE);
    assert_eq!(refused, CLIENTS * EACH - let_in);
    assert_eq!(registry.view().list("", "configmaps", Some(NAMESPACE)).len(), HARD);
    wait_for_used(registry, HARD).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let registry = server.registry();
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    registry
        .create(&operation(registry, "namespaces"), namespace)
        .await
        .unwrap();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "3"}}});
    registry
        .create(&operation(registry, "resourcequotas"), quota)
        .await
        .unwrap();
    wait_for_used(registry, FURNITURE).await;
    let op = operation(registry, "configmaps");
    registry.create(&op, json!({"metadata": {"name": "a"}})).await.unwrap();
    for _ in 0..5 {
        let error = registry
            .create(&op, json!({"metadata": {"name": "a"}}))
            .await
            .unwrap_err();
        assert_eq!(error.code, 409, "{error}");
    }
    wait_for_used(registry, FURNITURE + 1).await;
    registry.create(&op, json!({"metadata": {"name": "b"}})).await.unwrap();
    server.close().await;
}
