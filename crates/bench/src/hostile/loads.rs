//! The loads of a hostile tenant, each prepared with the rights of any tenant. Each load has one idea.

use bytes::Bytes;
use serde_json::{Value, json};

use super::pressure::{NUMBER, Prepared, Repeated, SLOT};
use super::{many, repositories};
use crate::stage::{HOSTILE, Stage};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Accounts of one tenant that send at the same time.
const ACCOUNTS: usize = 24;

/// A load of a hostile tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// JSON patches whose copies double a value.
    DoublingPatches,
    /// Renderings that copy a large value into many fields.
    LargeRenderings,
    /// Requests whose bodies are long to work on: owners, environment variables, inserts at the front.
    LongRequests,
    /// Kustomizations with thousands of dependencies.
    LongLists,
    /// Lists of 100 MB whose client never reads the answer.
    UnreadLists,
    /// Watches whose client never reads, and changes for them.
    UnreadWatches,
    /// Repositories of 180 MB, which are refused, and of 60 MB, which are not.
    LargeRepositories,
    /// A repository whose files are one long chain of deltas.
    DeltaChains,
    /// Kustomizations that wait for objects that never become healthy.
    EndlessWaiting,
    /// Kustomizations whose object the API server refuses.
    RefusedObjects,
    /// Kustomizations of small objects, which another writer makes large.
    FilledObjects,
    /// Bodies of 3 MB whose decoded form takes eighty times as much, sixty at once.
    DenseBodies,
    /// Large Pods that 24 ServiceAccounts apply, each in a namespace of its own.
    ManyAccounts,
    /// Lists and watches with a label selector of 5,000 terms.
    ManyTerms,
    /// Applies of one field of 64 ConfigMaps, each with a new field manager.
    ManyManagers,
    /// 100 GitRepositories that are fetched each second.
    ManySources,
    /// 500 Alerts for each event of twenty Kustomizations, whose receiver refuses them.
    ManyAlerts,
    /// 400 Kustomizations that depend on one that is applied again and again.
    ManyDependents,
    /// Namespaces that an owner creates without end, of a Tenant that may have any number.
    ManyNamespaces,
}

impl Load {
    /// Every load.
    pub(crate) const ALL: [Self; 19] = [
        Self::DoublingPatches,
        Self::LargeRenderings,
        Self::LongRequests,
        Self::LongLists,
        Self::UnreadLists,
        Self::UnreadWatches,
        Self::LargeRepositories,
        Self::DeltaChains,
        Self::EndlessWaiting,
        Self::RefusedObjects,
        Self::FilledObjects,
        Self::DenseBodies,
        Self::ManyAccounts,
        Self::ManyTerms,
        Self::ManyManagers,
        Self::ManySources,
        Self::ManyAlerts,
        Self::ManyDependents,
        Self::ManyNamespaces,
    ];

    /// Returns the name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DoublingPatches => "doubling patches",
            Self::LargeRenderings => "large renderings",
            Self::LongRequests => "long requests",
            Self::LongLists => "8,000 dependencies",
            Self::UnreadLists => "unread lists",
            Self::UnreadWatches => "unread watches",
            Self::LargeRepositories => "large repositories",
            Self::DeltaChains => "delta chains",
            Self::EndlessWaiting => "endless waiting",
            Self::RefusedObjects => "refused objects",
            Self::FilledObjects => "filled objects",
            Self::DenseBodies => "dense bodies",
            Self::ManyAccounts => "many accounts",
            Self::ManyTerms => "selectors of 5,000 terms",
            Self::ManyManagers => "ever new field managers",
            Self::ManySources => "100 sources at 1 s",
            Self::ManyAlerts => "500 Alerts",
            Self::ManyDependents => "400 dependents",
            Self::ManyNamespaces => "namespaces without end",
        }
    }

    /// Creates the objects and repositories that the load needs.
    pub(crate) async fn prepare(self, stage: &Stage) -> anyhow::Result<Prepared> {
        match self {
            Self::DoublingPatches => prepare_patches(stage).await,
            Self::LargeRenderings => prepare_renderings(stage).await,
            Self::LongRequests => prepare_requests(stage).await,
            Self::LongLists => prepare_dependencies(stage).await,
            Self::UnreadLists => prepare_lists(stage).await,
            Self::UnreadWatches => prepare_watches(stage).await,
            Self::LargeRepositories => prepare_repositories(stage).await,
            Self::DeltaChains => prepare_chains(stage).await,
            Self::EndlessWaiting => prepare_waiting(stage).await,
            Self::RefusedObjects => prepare_refused(stage).await,
            Self::FilledObjects => prepare_filled(stage).await,
            Self::DenseBodies => Ok(prepare_dense()),
            Self::ManyAccounts => prepare_accounts(stage).await,
            Self::ManyTerms => prepare_terms(stage).await,
            Self::ManyManagers => Ok(prepare_managers()),
            Self::ManySources => many::prepare_sources(stage).await,
            Self::ManyAlerts => many::prepare_alerts(stage).await,
            Self::ManyDependents => many::prepare_dependents(stage).await,
            Self::ManyNamespaces => many::prepare_namespaces(stage).await,
        }
    }
}

fn config_maps() -> String {
    format!("/api/v1/namespaces/{HOSTILE}/configmaps")
}

async fn apply_config_map(stage: &Stage, name: &str, data: Value) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": HOSTILE}, "data": data});
    stage.apply(&format!("{}/{name}", config_maps()), &object).await
}

async fn prepare_patches(stage: &Stage) -> anyhow::Result<Prepared> {
    apply_config_map(stage, "doubled", json!({"a": "x".repeat(1024)})).await?;
    let copies: Vec<Value> = (0..28)
        .map(|number| json!({"op": "copy", "from": "/data", "path": format!("/data/copy{number}")}))
        .collect();
    Ok(Prepared {
        repeated: vec![Repeated {
            method: "PATCH",
            path: format!("{}/doubled", config_maps()),
            form: JSON_PATCH,
            body: Bytes::from(Value::Array(copies).to_string()),
            at_once: 2,
            sender: None,
        }],
        ..Prepared::default()
    })
}

async fn prepare_requests(stage: &Stage) -> anyhow::Result<Prepared> {
    apply_config_map(stage, "listed", json!({"a": "b"})).await?;
    let owners: Vec<Value> = (0..20_000)
        .map(|number| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": format!("u{number}")}))
        .collect();
    let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "owned-", "ownerReferences": owners}});
    let pod = write_pod(60_000);
    let mut inserts = vec![json!({"op": "add", "path": "/metadata/finalizers", "value": []})];
    inserts.extend((0..9_900).map(
        |number| json!({"op": "add", "path": "/metadata/finalizers/0", "value": format!("example.com/f{number}")}),
    ));
    let repeated = |method, path: String, form, body: Value, at_once| Repeated {
        method,
        path,
        form,
        body: Bytes::from(body.to_string()),
        at_once,
        sender: None,
    };
    Ok(Prepared {
        repeated: vec![
            // A stored object would affect the next request.
            repeated("POST", format!("{}?dryRun=All", config_maps()), JSON, owned, 2),
            repeated(
                "PATCH",
                format!("/api/v1/namespaces/{HOSTILE}/pods/long?fieldManager=hostile&force=true&dryRun=All"),
                APPLY,
                pod,
                2,
            ),
            repeated(
                "PATCH",
                format!("{}/listed?dryRun=All", config_maps()),
                JSON_PATCH,
                Value::Array(inserts),
                4,
            ),
        ],
        ..Prepared::default()
    })
}

/// Makes a Pod with this many variables.
fn write_pod(variables: usize) -> Value {
    let variables = (0..variables).map(|number| json!({"name": format!("V{number}"), "value": "1"}));
    let variables: Vec<Value> = variables.collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long"},
        "spec": {"containers": [{"name": "a", "image": "registry.example/a:1", "env": variables}]}})
}

async fn prepare_accounts(stage: &Stage) -> anyhow::Result<Prepared> {
    let body = Bytes::from(write_pod(10_000).to_string());
    let mut prepared = Prepared::default();
    for number in 0..ACCOUNTS {
        let namespace = format!("{HOSTILE}-{number}");
        let sender = stage.add_account(HOSTILE, &namespace).await?;
        prepared.repeated.push(Repeated {
            method: "PATCH",
            path: format!("/api/v1/namespaces/{namespace}/pods/long?fieldManager=hostile&force=true&dryRun=All"),
            form: APPLY,
            body: body.clone(),
            at_once: 4,
            sender: Some(sender),
        });
    }
    Ok(prepared)
}

/// Prepares 200 ConfigMaps, lists of them with 5,000 terms, and watches with as many that no change matches.
async fn prepare_terms(stage: &Stage) -> anyhow::Result<Prepared> {
    for number in 0..200 {
        apply_config_map(stage, &format!("listed-{number}"), json!({"a": "b"})).await?;
    }
    let terms: String = (0..5_000).map(|number| format!("k{number}!=v,")).collect();
    let path = |more: &str| format!("{}?labelSelector={terms}{more}", config_maps());
    let list = Repeated {
        method: "GET",
        path: path("last!=v"),
        form: "",
        body: Bytes::new(),
        at_once: 24,
        sender: None,
    };
    let change = |letter: &str| Repeated {
        method: "PATCH",
        path: format!("{}/listed-0", config_maps()),
        form: "application/merge-patch+json",
        body: Bytes::from(json!({"data": {"b": letter}}).to_string()),
        at_once: 1,
        sender: None,
    };
    Ok(Prepared {
        repeated: vec![list, change("a"), change("b")],
        unread: vec![path("last=v&watch=true"); 60],
        ..Prepared::default()
    })
}

fn prepare_managers() -> Prepared {
    let metadata = json!({"name": format!("managed-{SLOT}")});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}});
    Prepared {
        repeated: vec![Repeated {
            method: "PATCH",
            path: format!("{}/managed-{SLOT}?fieldManager=m{NUMBER}&force=true", config_maps()),
            form: APPLY,
            body: Bytes::from(object.to_string()),
            at_once: 24,
            sender: None,
        }],
        ..Prepared::default()
    }
}

/// Stores 100 ConfigMaps of 1 MB.
async fn fill_stage(stage: &Stage) -> anyhow::Result<()> {
    for number in 0..100 {
        apply_config_map(stage, &format!("large-{number}"), json!({"a": "x".repeat(1 << 20)})).await?;
    }
    Ok(())
}

async fn prepare_lists(stage: &Stage) -> anyhow::Result<Prepared> {
    fill_stage(stage).await?;
    Ok(Prepared {
        unread: vec![config_maps(); 30],
        ..Prepared::default()
    })
}

async fn prepare_watches(stage: &Stage) -> anyhow::Result<Prepared> {
    apply_config_map(stage, "large", json!({"a": "x".repeat(1_000_000)})).await?;
    let change = |letter: &str| Repeated {
        method: "PATCH",
        path: format!("{}/large", config_maps()),
        form: "application/merge-patch+json",
        body: Bytes::from(json!({"data": {"b": letter}}).to_string()),
        at_once: 1,
        sender: None,
    };
    Ok(Prepared {
        repeated: vec![change("a"), change("b")],
        unread: vec![format!("{}?watch=true", config_maps()); 60],
        ..Prepared::default()
    })
}

async fn prepare_renderings(stage: &Stage) -> anyhow::Result<Prepared> {
    let repository = stage.git.create("renderings").await?;
    repository
        .commit(repositories::copy_into_every_field(), "large")
        .await?;
    stage.apply_source(HOSTILE, "renderings").await?;
    let names: Vec<String> = (0..4).map(|number| format!("rendering-{number}")).collect();
    for name in &names {
        // Each has a prefix of its own, so that no two renderings are equal.
        let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "renderings"}, "namePrefix": format!("{name}-"), "suspend": true});
        stage.apply_kustomization(HOSTILE, name, &spec).await?;
    }
    Ok(Prepared {
        kustomizations: names,
        ..Prepared::default()
    })
}

async fn prepare_dependencies(stage: &Stage) -> anyhow::Result<Prepared> {
    let repository = stage.git.create("dependencies").await?;
    repository.commit(repositories::make_refused(0), "small").await?;
    stage.apply_source(HOSTILE, "dependencies").await?;
    let names: Vec<String> = (0..8).map(|number| format!("dependent-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let depends_on: Vec<Value> = (0..8_000)
            .map(|other| json!({"name": format!("d{number}-{other}")}))
            .collect();
        let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "dependencies"}, "dependsOn": depends_on, "suspend": true});
        stage.apply_kustomization(HOSTILE, name, &spec).await?;
    }
    Ok(Prepared {
        kustomizations: names,
        ..Prepared::default()
    })
}

async fn prepare_repositories(stage: &Stage) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared::default();
    for number in 0..8 {
        let name = format!("zeros-{number}");
        let repository = stage.git.create(&name).await?;
        repository.commit(repositories::make_zeros(number), "large").await?;
        repositories::pack_repository(&repository).await?;
        stage.apply_source(HOSTILE, &name).await?;
        let spec = json!({"sourceRef": {"kind": "GitRepository", "name": name}, "suspend": true});
        stage.apply_kustomization(HOSTILE, &name, &spec).await?;
        prepared.sources.push(name.clone());
        prepared.kustomizations.push(name);
    }
    Ok(prepared)
}

async fn prepare_chains(stage: &Stage) -> anyhow::Result<Prepared> {
    let repository = stage.git.create("chained").await?;
    for batch in 0..10 {
        repository.commit(repositories::make_chain(batch), "chained").await?;
    }
    repositories::pack_repository(&repository).await?;
    let mut prepared = Prepared::default();
    // Several sources of one repository, each with a fetch of its own.
    for number in 0..8 {
        let name = format!("chained-{number}");
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": name, "namespace": HOSTILE},
            "spec": {"interval": "1h", "timeout": "60s", "url": stage.git.http_url("chained"), "ref": {"branch": "main"}, "suspend": true}});
        stage.apply(&crate::stage::source_path(HOSTILE, &name), &object).await?;
        prepared.sources.push(name);
    }
    Ok(prepared)
}

async fn prepare_waiting(stage: &Stage) -> anyhow::Result<Prepared> {
    many::prepare_many(stage, "waiting", 100, repositories::never_ready, &json!({"wait": true})).await
}

async fn prepare_refused(stage: &Stage) -> anyhow::Result<Prepared> {
    many::prepare_many(stage, "refused", 20, repositories::make_refused, &json!({})).await
}

/// Prepares four Kustomizations of ten ConfigMaps, each with 20,000 entries that Git doesn't have.
async fn prepare_filled(stage: &Stage) -> anyhow::Result<Prepared> {
    const KUSTOMIZATIONS: usize = 4;
    let entries: serde_json::Map<String, Value> =
        (0..20_000).map(|number| (format!("k{number}"), json!("v"))).collect();
    for number in 0..KUSTOMIZATIONS {
        for map in 0..repositories::FILLED_MAPS {
            let data = Value::Object(entries.clone());
            apply_config_map(stage, &format!("filled-{number}-{map}"), data).await?;
        }
    }
    many::prepare_many(stage, "filled", KUSTOMIZATIONS, repositories::small_maps, &json!({})).await
}

fn prepare_dense() -> Prepared {
    let item = r#"{"a":1},"#;
    let items = item.repeat((3 << 20) / item.len() - 100);
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"generateName":"dense-"}},"data":{{"a":[{items}0]}}}}"#
    );
    Prepared {
        repeated: vec![Repeated {
            method: "POST",
            path: format!("{}?dryRun=All", config_maps()),
            form: JSON,
            body: Bytes::from(body),
            at_once: 60,
            sender: None,
        }],
        ..Prepared::default()
    }
}
