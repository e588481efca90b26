//! The base of this crate's tests: a hub whose cluster does not answer, with functions in place of watch events.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tenure_api::Tenant;
use tenure_api::metadata::TENANT_LABEL;
use tenure_cluster::{Connection, Token};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::ControllerContext;
use crate::context::config::Config;
use crate::context::lane_settings::{ApartSettings, LaneServer};
use crate::hub::Hub;
use crate::hub::lane_fleet::{HubOverview, LaneFleet};
use crate::kind_table;

/// A hub, and its configuration.
pub(crate) struct TestHub {
    pub(crate) hub: Arc<Hub>,
    config: Config,
    pub(crate) folder: tempfile::TempDir,
}

impl TestHub {
    /// Creates a hub that has seen nothing, with a changed configuration.
    pub(crate) fn set(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let connection = Connection::in_process(service, Token::new("t", None));
        let mut config = Config::new(connection, folder.path().join("artifacts"));
        change(&mut config);
        let table = kind_table::list_kinds();
        let context = ControllerContext::new(config.clone()).unwrap();
        let hub = Hub::new(context, table.hub.into(), table.lane.into());
        Self { hub, config, folder }
    }

    /// Feeds a Tenant that has recorded these namespaces.
    pub(crate) fn show_tenant(&self, tenant: &str, namespaces: &[&str], revision: &str) {
        let spaces: Vec<_> = namespaces
            .iter()
            .map(|name| json!({ "name": name, "uid": name }))
            .collect();
        let object = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": tenant, "uid": format!("uid-{tenant}"), "resourceVersion": revision }, "spec": { "owners": [] },
            "status": { "spaces": spaces, "size": namespaces.len(), "state": "Active" } });
        let object: Tenant = serde_json::from_value(object).unwrap();
        self.hub.caches.get::<Tenant>().observe(object);
        self.hub.take_tenant(tenant);
    }

    /// Feeds a namespace of this tenant, or without one. Returns whether its owner changed.
    pub(crate) fn show_namespace(&self, name: &str, tenant: Option<&str>, revision: &str) -> bool {
        let labels = tenant.map(|tenant| json!({ TENANT_LABEL: tenant }));
        let owners = tenant.map(|tenant| {
            json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant, "uid": format!("uid-{tenant}") }])
        });
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": revision, "labels": labels, "ownerReferences": owners });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        self.hub.namespaces.observe(serde_json::from_value(namespace).unwrap());
        self.hub.take_namespace(name)
    }

    /// Feeds two tenants, each with a namespace of its name.
    pub(crate) fn show_two_tenants(&self) {
        for tenant in ["green", "mauve"] {
            self.show_tenant(tenant, &[tenant], "1");
            self.show_namespace(tenant, Some(tenant), "1");
        }
    }

    /// Creates a fleet of lanes that are not tasks.
    pub(crate) fn make_fleet(&self) -> Arc<LaneFleet> {
        let overview = Arc::downgrade(&self.hub) as Weak<dyn HubOverview>;
        let (end, farewell) = (CancellationToken::new(), CancellationToken::new());
        let fleet = LaneFleet::from_config(
            &self.config,
            (overview, &self.hub.context, &self.hub.lane_kinds),
            &TaskTracker::new(),
            (&end, &farewell),
        );
        fleet.unwrap()
    }
}

/// Returns settings with an API server that does not exist.
pub(crate) fn make_apart_settings(patience: Duration) -> ApartSettings {
    ApartSettings {
        server: LaneServer {
            url: "https://127.0.0.1:1".to_owned(),
            authorities: None,
            tls_name: None,
            unchecked: false,
        },
        patience,
        own_memory: 0,
    }
}
