//! A kind that nothing else here knows is reconciled as any other.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::{Condition, GitRepository, ObjectId, ObjectMeta};
use tenure_cluster::{ClusterError, Connection, Token};
use tenure_planner::{Next, Status};
use tenure_testkit::{Cluster, SOON, eventually};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::cluster_view::key::{Key, Kind};
use crate::context::config::Config;
use crate::lane::Shard;
use crate::manager;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;
use crate::reconcile_loop::reconciled::Reconciled;

const WIDGET: (&str, &str) = ("example.com/v1", "Widget");

/// Reports in its status whether the GitRepository of its own name exists.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Widget {
    metadata: ObjectMeta,
    status: Option<WidgetStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct WidgetStatus {
    conditions: Vec<Condition>,
    has_source: bool,
}

impl Status for WidgetStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Resource for Widget {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        WIDGET.1.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "example.com".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "widgets".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl HasStatus for Widget {
    type Status = WidgetStatus;

    fn status(&self) -> Option<&WidgetStatus> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut Option<WidgetStatus> {
        &mut self.status
    }
}

impl Reconciled for Widget {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: WIDGET.0,
        name: WIDGET.1,
        manager: "widget-controller",
        reporter: "widget-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        WidgetReconciler { shard, key }
    }

    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        let widgets = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let same = widgets.iter().filter(|widget| widget.name_any() == changed.name);
        same.map(|widget| Key::from_metadata(Self::KIND, &widget.metadata))
            .collect()
    }
}

struct WidgetReconciler {
    shard: Arc<Shard>,
    key: Key,
}

impl Reconciler for WidgetReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shard.lane().await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let (namespace, name) = (&self.key.namespace, &self.key.name);
        let Some(widget) = self.shard.caches.get::<Widget>().get(namespace, name) else {
            return Ok(None);
        };
        let source = self.shard.caches.get::<GitRepository>().get(namespace, name);
        let writer = ObjectWriter::new(widget.as_ref());
        let status = WidgetStatus {
            has_source: source.is_some(),
            ..WidgetStatus::default()
        };
        writer.write_status(&self.shard, &status).await?;
        Ok(Some(Next::Done(None)))
    }

    fn restart(&mut self) {}

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        true
    }

    fn forget(&mut self) {}

    fn exists(&self) -> bool {
        let widgets = self.shard.caches.get::<Widget>();
        widgets.get(&self.key.namespace, &self.key.name).is_some()
    }
}

/// Returns the installation of the kind: its CRD, and the controller's rights on it.
fn installation() -> Vec<Value> {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let rules = json!([{ "apiGroups": ["example.com"], "resources": ["widgets", "widgets/status"], "verbs": ["*"] }]);
    // The controller watches the kind. The lane of namespace `default`, which is protected, writes its status.
    let subjects = [
        tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT,
        "tenure-lane-protected-default",
    ]
    .map(
        |name| json!({ "kind": "ServiceAccount", "name": name, "namespace": tenure_api::metadata::PLATFORM_NAMESPACE }),
    );
    vec![
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema }
                }]
            }
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "widgets" }, "rules": rules
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "widgets" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "widgets" },
            "subjects": subjects
        }),
    ]
}

#[tokio::test]
async fn kind_added_to_table_is_reconciled() {
    if Cluster::is_shared() {
        // Other tests would find the kind on a shared server.
        return;
    }
    let cluster = Cluster::start().await.unwrap();
    for object in installation() {
        cluster.admin.apply(object).await.unwrap();
    }
    // The policy that bounds lanes lists only the kinds of an installation.
    let bounds = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding");
    cluster.admin.delete(bounds, ("", "tenure-lane-rights")).await.unwrap();
    let token = Token::new(&cluster.controller_token, None);
    let connection = Connection::in_process(cluster.service().unwrap(), token);
    let config = Config::new(connection, cluster.folder().join("artifacts"));
    let mut kinds = super::list_kinds();
    kinds.lane.push(KindEntry::new::<Widget>());
    let end = CancellationToken::new();
    let running = tokio::spawn(manager::run_kinds(kinds, config, end.clone()));

    let widget = json!({
        "apiVersion": WIDGET.0, "kind": WIDGET.1, "metadata": { "name": "one", "namespace": "default" }
    });
    eventually(SOON, || cluster.admin.apply(widget.clone())).await.unwrap();
    let has_source = async |expected: bool| {
        let look = || async {
            let found = cluster.admin.get(WIDGET, ("default", "one")).await;
            let found = found.map_err(|error| error.to_string())?.unwrap_or_default();
            match found.pointer("/status/hasSource") == Some(&json!(expected)) {
                true => Ok(()),
                false => Err(found.to_string()),
            }
        };
        eventually(SOON, look).await.unwrap();
    };
    has_source(false).await;
    // The object is woken by a change of its dependency.
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "one", "namespace": "default" },
        "spec": { "url": "http://git.invalid/one", "interval": "10m" }
    });
    cluster.admin.apply(source).await.unwrap();
    has_source(true).await;
    end.cancel();
    running.await.unwrap().unwrap();
}
