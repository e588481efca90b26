//! Attacks of a tenant with Alerts and Providers: to get another tenant's events or Secret, to reach internal addresses, or to use another's
//! capacity.

use serde_json::{Value, json};
use tenure_testkit::{NoticeServer, SOON, eventually};

use super::{Scene, attack};
use crate::alerts::{alert, complains, list_complaints, provider, secret};
use crate::stage::{ALERT, CONFIG_MAP, GIT_REPOSITORY, PROVIDER, commit, config_map};

const BLOCKED: &str = "cross-namespace references have been blocked";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alert_gets_no_event_of_another_tenant() {
    let server = NoticeServer::start().await.unwrap();
    let inside = NoticeServer::start().await.unwrap();
    let scene = Scene::set_allowing("attacks-a", &[server.url()]).await;
    let (evil, alpha) = (scene.evil.as_str(), scene.alpha.as_str());
    let (stage, admin) = (&scene.stage, &scene.stage.admin);
    admin
        .apply(secret(alpha, "of-alpha", json!({ "token": "of-alpha" })))
        .await
        .unwrap();
    let make_spec = |name: &str| json!({ "type": "generic", "address": format!("{}/{name}", server.url()) });
    let mallory = &scene.mallory;
    mallory.apply(provider(evil, "hook", make_spec("evil"))).await.unwrap();

    let source = |source: Value| json!({ "providerRef": { "name": "hook" }, "eventSources": [source] });
    let own = || source(json!({ "kind": "GitRepository", "name": "*" }));
    let of =
        |namespace: &str, name: &str| source(json!({ "kind": "GitRepository", "name": name, "namespace": namespace }));
    let with = |field: &str, value: Value| {
        let mut spec = own();
        spec[field] = value;
        spec
    };
    let attacks = [
        attack("all-of-alpha", of("ALPHA", "*"), BLOCKED, of("EVIL", "*")),
        attack(
            "app-of-alpha",
            of("ALPHA", "app"),
            "alert can't process events from 'GitRepository/ALPHA/app', cross-namespace",
            own(),
        ),
        attack(
            "nowhere",
            of("nowhere-at-all", "app"),
            "alert can't process events from 'GitRepository/nowhere-at-all/app', cross-namespace",
            own(),
        ),
        attack("platform", of("tenure-system", "*"), BLOCKED, own()),
        attack(
            "releases-of-alpha",
            source(json!({ "kind": "HelmRelease", "name": "*", "namespace": "ALPHA" })),
            BLOCKED,
            source(json!({ "kind": "HelmRelease", "name": "*" })),
        ),
        attack(
            "name-dots",
            of("EVIL", "../../ALPHA/gitrepositories/app"),
            "spec.eventSources[0].name",
            own(),
        ),
        attack("kind", source(json!({ "kind": "Secret", "name": "*" })), "kind", own()),
        attack(
            "provider-dots",
            with("providerRef", json!({ "name": "../../ALPHA/providers/x" })),
            "spec.providerRef.name",
            own(),
        ),
        attack(
            "bomb",
            with("inclusionList", json!(["((a{100}){100}){100}"])),
            "spec.inclusionList[0]",
            with("inclusionList", json!(["^a{3}"])),
        ),
    ];
    scene
        .check(&attacks, |_, name, spec| {
            scene.value(&alert("EVIL", name, &scene.value(spec)))
        })
        .await;

    // Both tenants have events. Mallory gets her own, and none of alpha's.
    for tenant in [evil, alpha] {
        admin
            .apply(provider(tenant, "canary", make_spec(&format!("canary-{tenant}"))))
            .await
            .unwrap();
        admin.apply(alert(tenant, "canary", &json!({}))).await.unwrap();
        stage.ready(ALERT, (tenant, "canary"), "True", "Succeeded").await;
    }
    for tenant in [alpha, evil] {
        let missing = json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "app", "namespace": tenant },
            "spec": { "url": stage.git.http_url("none"), "interval": "1h" }
        });
        admin.apply(missing).await.unwrap();
    }
    let is_failure = |notice: &tenure_testkit::Notice| notice.json()["severity"] == "error";
    server.wait_for(&format!("/canary-{alpha}"), is_failure).await.unwrap();
    server.wait_for("/evil", is_failure).await.unwrap();
    for path in ["/evil".to_owned(), format!("/canary-{evil}")] {
        for notice in server.list(&path) {
            assert_eq!(notice.json()["involvedObject"]["namespace"], json!(evil), "{notice:?}");
        }
    }

    // Internal addresses, a Secret of alpha's, and forged headers: nothing is sent, and the reason is reported.
    admin
        .apply(secret(
            evil,
            "headers",
            json!({ "headers": "x: \"a\\r\\nhost: inside\"" }),
        ))
        .await
        .unwrap();
    let hidden = json!({ "address": format!("{}/T0/sesame", inside.url()) });
    admin.apply(secret(evil, "inside", hidden)).await.unwrap();
    let redirect = tenure_testkit::Manner::Full(302, vec![("location".to_owned(), inside.url())], String::new());
    server.behave("/redirect", [redirect]);
    let tries = [
        (
            "loopback",
            json!({ "type": "generic", "address": format!("{}/x", inside.url()) }),
            "may not be reached",
        ),
        (
            "by-secret",
            json!({ "type": "generic", "secretRef": { "name": "inside" } }),
            "the address in Secret",
        ),
        (
            "metadata",
            json!({ "type": "generic", "address": "http://169.254.169.254/latest/meta-data" }),
            "may not be reached",
        ),
        (
            "number",
            json!({ "type": "generic", "address": "http://2130706433/x" }),
            "may not be reached",
        ),
        (
            "mapped",
            json!({ "type": "generic", "address": "http://[::ffff:127.0.0.1]/x" }),
            "may not be reached",
        ),
        (
            "cluster",
            json!({ "type": "generic", "address": "https://10.96.0.1/x" }),
            "may not be reached",
        ),
        (
            "git-host",
            json!({ "type": "gitea", "address": format!("{}/a/b", inside.url()), "secretRef": { "name": "token" } }),
            "",
        ),
        ("redirect", make_spec("redirect"), "a redirect is not followed"),
        (
            "secret",
            json!({ "type": "slack", "address": server.url(), "secretRef": { "name": "of-alpha" } }),
            "Secret EVIL/of-alpha can't be read as system:serviceaccount:EVIL:EVIL-gitops",
        ),
        (
            "headers",
            json!({ "type": "generic", "address": server.url(), "secretRef": { "name": "headers" } }),
            "the value of x holds what no header can",
        ),
    ];
    let alert_spec = json!({ "eventSources": [{ "kind": "GitRepository", "name": "other" }] });
    for (name, spec, _) in &tries {
        mallory.apply(provider(evil, name, spec.clone())).await.unwrap();
        mallory.apply(alert(evil, name, &alert_spec)).await.unwrap();
    }
    for (name, _, expected) in &tries {
        // Both conditions report a denied address, or a Secret that can't be read, before the first event. Of Mallory's there is no Secret `token`.
        let reason = match *expected {
            "may not be reached" | "the address in Secret" => "AddressDenied",
            _ if ["secret", "git-host"].contains(name) => "AuthenticationFailed",
            _ => "",
        };
        if !reason.is_empty() {
            stage.ready(PROVIDER, (evil, name), "False", reason).await;
            stage.ready(ALERT, (evil, name), "False", "ProviderNotReady").await;
        } else {
            stage.ready(ALERT, (evil, name), "True", "Succeeded").await;
        }
    }
    let missing = json!({
        "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "other", "namespace": evil },
        "spec": { "url": stage.git.http_url("none-either"), "interval": "1h" }
    });
    admin.apply(missing).await.unwrap();
    for (name, _, expected) in &tries {
        if expected.is_empty() {
            // A source that can't be fetched has no commit to report.
            continue;
        }
        let complaints = complains(stage, (evil, name), &scene.fill(expected)).await;
        assert!(!complaints.join("\n").contains("sesame"), "{complaints:?}");
    }
    assert_eq!(inside.list_all().len(), 0, "{:?}", inside.list_all());
    let complaints = list_complaints(stage, evil, "git-host").await;
    let is_of_secret = |line: &String| line.starts_with("ProviderNotReady") && line.contains("/token can't be read");
    assert!(complaints.iter().all(is_of_secret), "{complaints:?}");
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_alerts_and_silent_receivers_keep_no_neighbour_waiting() {
    let server = NoticeServer::start().await.unwrap();
    let scene = Scene::set_allowing("attacks-s", &[server.url()]).await;
    let (evil, alpha) = (scene.evil.as_str(), scene.alpha.as_str());
    let (stage, admin) = (&scene.stage, &scene.stage.admin);
    server.behave("/silent", [tenure_testkit::Manner::Silent]);
    for number in 0..20 {
        let name = format!("silent-{number}");
        let spec = json!({ "type": "generic", "address": format!("{}/silent", server.url()), "timeout": "60s" });
        scene.mallory.apply(provider(evil, &name, spec)).await.unwrap();
        scene.mallory.apply(alert(evil, &name, &json!({}))).await.unwrap();
    }
    for number in 0..300 {
        let of_one =
            json!({ "providerRef": { "name": "silent-0" }, "inclusionList": vec!["(a?){20}(a|aa){20}b$"; 20] });
        scene
            .mallory
            .apply(alert(evil, &format!("zz-{number}"), &of_one))
            .await
            .unwrap();
    }
    let own = json!({ "type": "generic", "address": format!("{}/alpha", server.url()) });
    admin.apply(provider(alpha, "hook", own)).await.unwrap();
    admin.apply(alert(alpha, "hook", &json!({}))).await.unwrap();
    stage.ready(ALERT, (alpha, "hook"), "True", "Succeeded").await;
    stage.ready(ALERT, (evil, "zz-299"), "True", "Succeeded").await;

    // Mallory's own work continues, and her silent receivers are called.
    let source = |tenant: &str, name: &str| {
        json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": name, "namespace": tenant },
            "spec": { "url": stage.git.http_url("none"), "interval": "1h" }
        })
    };
    for number in 0..10 {
        scene
            .mallory
            .apply(source(evil, &format!("broken-{number}")))
            .await
            .unwrap();
    }
    let files = scene.serve(&[("a.yaml".to_owned(), config_map("a", "1"))]).await;
    scene
        .mallory
        .apply(scene.kustomization("app", &json!({})))
        .await
        .unwrap();
    stage.wait_for(CONFIG_MAP, (evil, "a"), |found| found.is_some()).await;
    server.wait_for("/silent", |_| true).await.unwrap();
    commit(&files, &[("a.yaml", &config_map("b", "1"))]).await;
    stage.wait_for(CONFIG_MAP, (evil, "b"), |found| found.is_some()).await;

    // The neighbour's alert is sent while the silent receivers still block: each call waits for a minute.
    admin.apply(source(alpha, "app")).await.unwrap();
    let notice = server.wait_for("/alpha", |_| true).await.unwrap();
    assert_eq!(notice.json()["involvedObject"]["namespace"], json!(alpha));
    // No more concurrent calls than a tenant's limit. A call that has ended may be counted for a moment longer.
    let count = || {
        let waiting = server.count_waiting("/silent");
        std::future::ready(if waiting <= 8 { Ok(()) } else { Err(waiting) })
    };
    assert_eq!(eventually(SOON, count).await, Ok(()));
    scene.shut_down().await;
}
