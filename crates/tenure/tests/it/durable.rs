//! Acknowledged writes survive `kill -9`, and a copy of the store can be restored.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};

use crate::process::{Up, client, fails, run};

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

async fn list_names(data: &std::path::Path) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(client(data).await, "default");
    let mut names: Vec<String> = api
        .list(&ListParams::default().labels("copied=yes"))
        .await
        .unwrap()
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .collect();
    names.sort();
    names
}

async fn create(data: &std::path::Path, name: &str) -> u64 {
    let api: Api<ConfigMap> = Api::namespaced(client(data).await, "default");
    let object: ConfigMap =
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "labels": {"copied": "yes"}}})).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    created.metadata.resource_version.unwrap().parse().unwrap()
}

#[tokio::test]
async fn backup_of_running_control_plane_restores_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let up = Up::start(&data, &[]);
    create(&data, "before").await;
    let copied = run(&["backup", &path("online"), "--data", data.to_str().unwrap()]);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let lost = create(&data, "after").await;
    fails(
        &["backup", &path("online"), "--data", data.to_str().unwrap()],
        3,
        &["exists"],
    );
    up.kill();
    let copied = run(&["backup", &path("offline"), "--data", data.to_str().unwrap()]);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    // Other users can't read the copy, which holds every Secret.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path("online")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");

    fails(
        &["restore", &path("online"), "--data", data.to_str().unwrap()],
        2,
        &["not empty", "overwritten"],
    );
    let mut broken = std::fs::read(path("online")).unwrap();
    let middle = broken.len() / 2;
    broken[middle] ^= 4;
    std::fs::write(path("broken"), broken).unwrap();
    fails(
        &["restore", &path("broken"), "--data", &path("new")],
        3,
        &["no usable backup"],
    );
    assert!(!folder.path().join("new").exists());

    for (copy, there) in [("online", &["before"][..]), ("offline", &["after", "before"])] {
        let target = folder.path().join(format!("{copy}-restored"));
        let restored = run(&["restore", &path(copy), "--data", target.to_str().unwrap()]);
        assert!(
            restored.status.success(),
            "{}",
            String::from_utf8_lossy(&restored.stderr)
        );
        // The previous administrator's kubeconfig works, since the keys are in the copy.
        let _up = Up::start(&target, &[]);
        assert_eq!(
            std::fs::read(target.join("pki/admin.crt")).unwrap(),
            std::fs::read(data.join("pki/admin.crt")).unwrap()
        );
        assert_eq!(list_names(&target).await, there);
        // The server asks earlier watches to list again, and gives no revision out twice.
        let api: Api<ConfigMap> = Api::namespaced(client(&target).await, "default");
        let mut watch = api
            .watch(&WatchParams::default(), &lost.to_string())
            .await
            .unwrap()
            .boxed();
        match watch.next().await {
            Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410, "{status:?}"),
            other => panic!("a watch from before the restore got {other:?}"),
        }
        assert!(create(&target, "again").await > lost);
    }
}

/// Returns a counter of `/metrics`.
async fn read_counter(client: &kube::Client, name: &str) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn blocked_log_does_not_stop_control_plane() {
    // A reader that is gone, a full disk, and a reader that reads nothing.
    for kind in ["closed", "full", "unread"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let arguments = ["--log", "trace", "up", "--data", data.to_str().unwrap(), "--port", "0"];
        let mut command = crate::process::tenure(&arguments);
        let mut unread = None;
        match kind {
            "full" => {
                command.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
            }
            _ => {
                let (reader, writer) = std::io::pipe().unwrap();
                command.stderr(writer);
                if kind == "unread" {
                    unread = Some(reader);
                }
            }
        }
        let _up = Up::spawn_as_it_is(command);
        let client = client(data).await;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        for number in 0..20 {
            let object: ConfigMap =
                serde_json::from_value(serde_json::json!({"metadata": {"name": format!("written-{number}")}})).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
        // An unread pipe needs some time to fill.
        while read_counter(&client, "tenure_log_lines_lost_total").await == 0 {
            api.list(&ListParams::default()).await.unwrap();
        }
        let request = http::Request::get("/readyz?verbose").body(Vec::new()).unwrap();
        let ready = client.request_text(request).await.unwrap();
        for check in ["[+]store ok", "[+]controllers ok"] {
            assert!(ready.contains(check), "{kind}: {ready}");
        }
        drop(unread);
    }
}
