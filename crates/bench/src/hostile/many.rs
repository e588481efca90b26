//! Loads of many ordinary objects, each of which is cheap.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::pressure::{NUMBER, Prepared, Repeated};
use super::repositories;
use crate::stage::{HOSTILE, Stage, source_path};

/// Sources that are fetched each second.
const SOURCES: usize = 100;

/// Alerts for the same events.
const ALERTS: usize = 500;

/// Kustomizations with events that the Alerts send.
const ALERTED: usize = 20;

/// Kustomizations that depend on the same one.
const DEPENDENTS: usize = 400;

/// The beginning of the names of created namespaces.
const CREATED: &str = "hostile-new-";

/// Prepares sources of one repository, each with an interval of a second.
pub(super) async fn prepare_sources(stage: &Stage) -> anyhow::Result<Prepared> {
    let repository = stage.git.create("often").await?;
    repository.commit(repositories::make_small(), "small").await?;
    let mut prepared = Prepared {
        unasked: true,
        ..Prepared::default()
    };
    for number in 0..SOURCES {
        let name = format!("often-{number}");
        let spec = json!({"interval": "1s", "timeout": "60s", "url": stage.git.http_url("often"), "ref": {"branch": "main"}, "suspend": true});
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": name, "namespace": HOSTILE}, "spec": spec});
        stage.apply(&source_path(HOSTILE, &name), &object).await?;
        prepared.sources.push(name);
    }
    Ok(prepared)
}

/// Prepares Alerts that match each event of Kustomizations which fail again and again. The Git server refuses their messages.
pub(super) async fn prepare_alerts(stage: &Stage) -> anyhow::Result<Prepared> {
    let notifications = format!("/apis/notification.toolkit.fluxcd.io/v1beta3/namespaces/{HOSTILE}");
    let provider = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": {"name": "refusing", "namespace": HOSTILE},
        "spec": {"type": "generic", "address": format!("http://{}/hook", stage.git.http_address())}});
    stage
        .apply(&format!("{notifications}/providers/refusing"), &provider)
        .await?;
    for number in 0..ALERTS {
        let name = format!("all-{number}");
        let alert = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
            "metadata": {"name": name, "namespace": HOSTILE},
            "spec": {"providerRef": {"name": "refusing"}, "eventSources": [{"kind": "Kustomization", "name": "*"}]}});
        stage.apply(&format!("{notifications}/alerts/{name}"), &alert).await?;
    }
    // An owner requests these again and again, so each attempt is an event.
    prepare_many(stage, "alerted", ALERTED, repositories::make_refused, &json!({})).await
}

/// Prepares Kustomizations that depend on one, which is requested again and again.
pub(super) async fn prepare_dependents(stage: &Stage) -> anyhow::Result<Prepared> {
    let repository = stage.git.create("depended").await?;
    repository.commit(repositories::make_small(), "small").await?;
    stage.apply_source(HOSTILE, "depended").await?;
    let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "depended"}});
    stage.apply_kustomization(HOSTILE, "depended", &spec).await?;
    for number in 0..DEPENDENTS {
        let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "depended"}, "dependsOn": [{"name": "depended"}],
            "namePrefix": format!("d{number}-")});
        stage
            .apply_kustomization(HOSTILE, &format!("dependent-{number}"), &spec)
            .await?;
    }
    Ok(Prepared {
        sources: vec!["depended".to_owned()],
        kustomizations: vec!["depended".to_owned()],
        ..Prepared::default()
    })
}

/// Prepares an owner that creates namespaces for its Tenant, which has no quota of them.
pub(super) async fn prepare_namespaces(stage: &Stage) -> anyhow::Result<Prepared> {
    let owner = stage.add_account(HOSTILE, "hostile-owner").await?;
    let owners = json!([
        {"kind": "User", "name": format!("owner-of-{HOSTILE}"), "clusterRoles": ["admin"]},
        {"kind": "ServiceAccount", "name": "system:serviceaccount:hostile-owner:worker", "clusterRoles": ["admin"]},
    ]);
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": HOSTILE},
        "spec": {"owners": owners, "namespaceOptions": {"quota": 1_000_000}}});
    let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{HOSTILE}");
    stage.apply(&path, &tenant).await?;
    let namespace: Value = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": format!("{CREATED}{NUMBER}"), "labels": {"capsule.clastix.io/tenant": HOSTILE}}});
    Ok(Prepared {
        repeated: vec![Repeated {
            method: "POST",
            path: format!("/api/v1/namespaces?fieldManager=m{NUMBER}"),
            form: "application/json",
            body: Bytes::from(namespace.to_string()),
            at_once: 24,
            sender: Some(owner),
        }],
        namespaces: Some(CREATED),
        ..Prepared::default()
    })
}

/// Prepares one repository with a folder for each of `count` Kustomizations.
pub(super) async fn prepare_many(
    stage: &Stage,
    name: &str,
    count: usize,
    files: fn(usize) -> BTreeMap<String, Vec<u8>>,
    more: &Value,
) -> anyhow::Result<Prepared> {
    let repository = stage.git.create(name).await?;
    repository.commit((0..count).flat_map(files), "many").await?;
    stage.apply_source(HOSTILE, name).await?;
    let mut prepared = Prepared::default();
    for number in 0..count {
        let own = format!("{name}-{number}");
        let mut spec = json!({"sourceRef": {"kind": "GitRepository", "name": name}, "path": format!("./{number}"), "suspend": true});
        for (key, value) in more.as_object().into_iter().flatten() {
            if let Some(spec) = spec.as_object_mut() {
                spec.insert(key.clone(), value.clone());
            }
        }
        stage.apply_kustomization(HOSTILE, &own, &spec).await?;
        prepared.kustomizations.push(own);
    }
    Ok(prepared)
}
