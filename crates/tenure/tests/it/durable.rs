//! What was acknowledged is there after `kill -9`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};

use crate::process::{Up, client};

#[tokio::test]
async fn a_killed_control_plane_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut written = Vec::new();
    let mut highest = 0_u64;
    for round in 0..3 {
        let up = Up::start(data, &[]);
        let api: Api<ConfigMap> = Api::namespaced(client(data).await, "default");
        for number in 0..20 {
            let name = format!("written-{round}-{number}");
            let object: ConfigMap = serde_json::from_value(
                serde_json::json!({"metadata": {"name": name}, "data": {"round": round.to_string()}}),
            )
            .unwrap();
            let created = api.create(&PostParams::default(), &object).await.unwrap();
            let revision: u64 = created.metadata.resource_version.unwrap().parse().unwrap();
            assert!(revision > highest, "revision {revision} after {highest}");
            highest = revision;
            written.push(name);
        }
        up.kill();
    }
    let _up = Up::start(data, &[]);
    let api: Api<ConfigMap> = Api::namespaced(client(data).await, "default");
    let there: Vec<String> = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .collect();
    for name in written {
        assert!(there.contains(&name), "{name} was acknowledged and is gone");
    }
}
