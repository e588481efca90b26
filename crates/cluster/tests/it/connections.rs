//! The number of connections that an API server gets over the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use futures::future::join_all;
use serde_json::json;
use tenure_cluster::{Client, ClientPool, Connection, Resource, WatchEvent, watch};
use tenure_testkit::ServedCluster;
use tokio::net::{TcpListener, TcpStream};

/// Forwards bytes to a server, and counts connections.
async fn count_connections(server: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let server = server.clone();
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(server).await {
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                }
            });
        }
    });
    (port, count)
}

fn config_maps() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        namespaced: true,
        watchable: true,
    }
}

/// Opens a watch that sends its events to the receiver.
fn open_watch(client: Client) -> Receiver<WatchEvent> {
    let (sender, receiver) = channel();
    tokio::spawn(async move {
        let sink = move |event| drop(sender.send(event));
        watch(&client, &config_maps(), Some("default"), None, sink).await;
    });
    receiver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_and_requests_take_two_connections() {
    let cluster = ServedCluster::start().await.unwrap();
    let address = cluster.endpoint().trim_start_matches("https://").to_owned();
    let (port, count) = count_connections(address.clone()).await;
    let kubeconfig = cluster.kubeconfig().replace(&address, &format!("127.0.0.1:{port}"));
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let clients = ClientPool::new(Connection::over_network(config).unwrap());
    let client = clients.controller();
    let receivers: Vec<_> = (0..40).map(|_| open_watch(client.clone())).collect();
    let resource = config_maps();
    let asked = (0..40).map(|_| client.find(&resource, "default", "new"));
    assert!(join_all(asked).await.into_iter().all(|found| found.unwrap().is_none()));
    let new = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "new", "namespace": "default" } });
    cluster.admin.apply(new).await.unwrap();
    for receiver in receivers {
        let is_new = |event: &WatchEvent| matches!(event, WatchEvent::Changed(seen) if seen.name == "new");
        assert!(receiver.iter().any(|event| is_new(&event)));
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
}
