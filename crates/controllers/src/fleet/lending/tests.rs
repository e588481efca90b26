//! What a lane that was taken over is lent, and what not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::convert::Infallible;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenure_api::{GitRepository, Tenant};
use tenure_cluster::{Connection, Token};
use tenure_tenancy::identity;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::config::Config;
use crate::fleet::Overview;
use crate::frames::NamespaceFacts;
use crate::hub::Hub;
use crate::kinds;
use crate::lane_mode::{ApartSettings, LaneMode, LaneProgram, LaneServer, ProcessSettings};
use crate::means::Means;

/// A hub that knows two tenants and what is nobody's, each with a namespace; `shared` has a source and a Kustomization.
struct Scene {
    hub: Arc<Hub>,
    fleet: Arc<Fleet>,
    folder: tempfile::TempDir,
}

const CONTENT: &[u8] = b"an archive";

fn digest() -> String {
    format!("sha256:{}", hex(&Sha256::digest(CONTENT)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Scene {
    fn set(grants: &[&str]) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let connection = Connection::in_process(service, Token::new("t", None));
        let mut config = Config::new(connection, folder.path().join("artifacts"));
        config.settings.reference_grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        config.lanes = LaneMode::Processes(Box::new(ProcessSettings {
            program: LaneProgram {
                program: "/bin/false".into(),
                name: "false".into(),
                arguments: Vec::new(),
                environment: Vec::new(),
            },
            apart: ApartSettings {
                server: LaneServer {
                    url: "https://127.0.0.1:1".to_owned(),
                    authorities: None,
                    tls_name: None,
                    unchecked: false,
                },
                patience: Duration::from_secs(20),
                own_memory: 0,
            },
        }));
        let given = config.clone();
        let table = kinds::list_kinds();
        let hub = Hub::new(Means::new(config).unwrap(), table.hub.into(), table.lane.into());
        for tenant in ["green", "mauve"] {
            let object = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
                "metadata": { "name": tenant, "uid": format!("uid-{tenant}"), "resourceVersion": "1" }, "spec": { "owners": [] },
                "status": { "spaces": [{ "name": tenant, "uid": format!("namespace-{tenant}") }], "size": 1, "state": "Active" } });
            hub.caches
                .of::<Tenant>()
                .observe(serde_json::from_value(object).unwrap());
            hub.take_tenant(tenant);
            hub.namespaces.observe(namespace(tenant, Some(tenant), "1"));
            hub.take_namespace(tenant);
        }
        hub.namespaces.observe(namespace("shared", None, "1"));
        hub.take_namespace("shared");
        let overview = Arc::downgrade(&hub) as Weak<dyn Overview>;
        let end = CancellationToken::new();
        let fleet = Fleet::of(
            &given,
            (overview, &hub.means, &hub.lane_kinds),
            &TaskTracker::new(),
            (&end, &end),
        );
        let scene = Self {
            hub,
            fleet: fleet.unwrap(),
            folder,
        };
        scene.show(
            json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "namespace": "shared", "name": "app", "uid": "1", "resourceVersion": "1" },
            "spec": { "url": "https://git.example/app", "interval": "1m" },
            "status": { "conditions": [] } }),
        );
        scene.show(
            json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "namespace": "shared", "name": "infra", "uid": "2", "resourceVersion": "1" },
            "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "app" } } }),
        );
        scene.fetch(CONTENT);
        scene
    }

    /// A watch tells of an object of `shared`, which is the pool's.
    fn show(&self, object: Value) {
        let shard = self.hub.open_shard("shared");
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if kind == GitRepository::KIND.name {
            shard
                .caches
                .of::<GitRepository>()
                .observe(serde_json::from_value(object).unwrap());
        } else {
            shard
                .caches
                .of::<Kustomization>()
                .observe(serde_json::from_value(object).unwrap());
        }
        let entry = self
            .hub
            .lane_kinds
            .iter()
            .find(|entry| entry.kind.name == kind)
            .unwrap();
        self.fleet.note(&shard, &Key::new(entry.kind, "shared", &name), None);
        let pool = Arc::new(self.lane("pool", "shared"));
        lock(&self.fleet.homes).get_mut("shared").unwrap().lane = Some(pool);
    }

    /// What the pool's lane has fetched, as it wrote it.
    fn fetch(&self, content: &[u8]) {
        let lane = self.folder.path().join("artifacts/lanes/pool");
        let source = SourceKey::new("GitRepository", "shared", "app", "1").unwrap();
        let record = json!({ "revision": "main@sha1:1", "digest": digest(), "size": 3, "path": "p", "storedAt": null, "ignore": null });
        for (path, bytes) in [
            (locate_record(&source), record.to_string().into_bytes()),
            (locate_archive(&source, &digest()).unwrap(), content.to_vec()),
        ] {
            let path = lane.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    /// A lane that has a namespace.
    fn lane(&self, name: &str, namespace: &str) -> LaneHandle {
        let placement = self.hub.place_known(namespace);
        let lane = LaneHandle::new(name, identity::decide_for_lane(&placement, namespace));
        lane.give(
            namespace,
            NamespaceFacts {
                placement,
                ending: None,
                is_admitted: true,
            },
        );
        lane
    }
}

fn namespace(name: &str, tenant: Option<&str>, version: &str) -> Namespace {
    let mut metadata = json!({ "name": name, "uid": format!("namespace-{name}"), "resourceVersion": version });
    if let Some(tenant) = tenant {
        metadata["labels"] = json!({ "capsule.clastix.io/tenant": tenant });
        metadata["ownerReferences"] = json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "name": tenant, "uid": format!("uid-{tenant}") }]);
    }
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn reference(from: &str, kind: &str, namespace: &str, name: &str) -> Reference {
    Reference {
        from: from.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test]
async fn a_lane_is_lent_what_is_granted_to_its_own_namespaces_and_nothing_else() {
    let scene = Scene::set(&[
        "tenant:green=shared/GitRepository/app",
        "tenant:green=shared/Kustomization/infra",
    ]);
    let (fleet, digest) = (&scene.fleet, digest());
    let (green, mauve) = (scene.lane("tenant/green", "green"), scene.lane("tenant/mauve", "mauve"));
    let asked = reference("green", "GitRepository", "shared", "app");
    // The controls: what is granted is there, with what was fetched.
    let Loan::Source { uid, artifact, .. } = fleet.lend(&green, &asked).await else {
        panic!("nothing is lent");
    };
    assert_eq!((uid.as_str(), artifact.unwrap().digest), ("1", digest.clone()));
    let mut archive = Vec::new();
    let opened = fleet.open_lent(&green, &asked, &digest).await;
    opened.unwrap().read_to_end(&mut archive).unwrap();
    assert_eq!(archive, CONTENT);
    let infra = reference("green", "Kustomization", "shared", "infra");
    assert!(matches!(fleet.lend(&green, &infra).await, Loan::Kustomization(_)));

    // Whoever it is not granted to, whatever he says of himself; and what is not granted, whether it is there or not.
    for (lane, asked) in [
        (&mauve, reference("mauve", "GitRepository", "shared", "app")),
        (&mauve, reference("green", "GitRepository", "shared", "app")),
        (&mauve, reference("shared", "GitRepository", "shared", "app")),
        (&mauve, reference("tenure-system", "GitRepository", "shared", "app")),
        (&green, reference("green", "GitRepository", "shared", "other")),
        (&green, reference("green", "GitRepository", "mauve", "app")),
        (&green, reference("green", "Kustomization", "shared", "app")),
        (&green, reference("green", "OCIRepository", "shared", "app")),
        (&green, reference("green", "Receiver", "shared", "app")),
        (&green, reference("green", "Secret", "shared", "app")),
        (&green, reference("nowhere", "GitRepository", "shared", "app")),
    ] {
        let lent = fleet.lend(lane, &asked).await;
        assert!(matches!(lent, Loan::Nothing), "{asked:?}: {lent:?}");
        assert!(fleet.open_lent(lane, &asked, &digest).await.is_err(), "{asked:?}");
    }
    // A digest is no path.
    for odd in ["sha256:../../../token", "/etc/passwd", ""] {
        assert!(fleet.open_lent(&green, &asked, odd).await.is_err(), "{odd}");
    }
    // What another instance works on is seen here, and what that one fetched is not.
    let mirror = lock(&fleet.homes).remove("shared");
    let lent = fleet.lend(&green, &asked).await;
    assert!(
        matches!(&lent, Loan::Unknown(why) if why.contains("another shard")),
        "{lent:?}"
    );
    assert!(matches!(fleet.lend(&green, &infra).await, Loan::Kustomization(_)));
    assert!(matches!(
        fleet
            .lend(&mauve, &reference("mauve", "Kustomization", "shared", "infra"))
            .await,
        Loan::Nothing
    ));
    assert!(fleet.open_lent(&green, &asked, &digest).await.is_err());
    lock(&fleet.homes).extend(mirror.map(|mirror| ("shared".to_owned(), mirror)));
    // A lane that has just lost the namespace, although it holds on to it.
    let held_on = scene.lane("tenant/green", "green");
    scene.hub.namespaces.observe(namespace("green", Some("mauve"), "2"));
    assert!(scene.hub.take_namespace("green"));
    assert!(matches!(fleet.lend(&held_on, &asked).await, Loan::Nothing));
}

#[tokio::test]
async fn what_a_lane_has_put_in_the_place_of_an_archive_is_not_opened() {
    let scene = Scene::set(&["tenant:green=shared/GitRepository/app"]);
    let (fleet, digest) = (&scene.fleet, digest());
    let green = scene.lane("tenant/green", "green");
    let asked = reference("green", "GitRepository", "shared", "app");
    let source = SourceKey::new("GitRepository", "shared", "app", "1").unwrap();
    let lane = scene.folder.path().join("artifacts/lanes/pool");
    let archive = lane.join(locate_archive(&source, &digest).unwrap());
    let record = lane.join(locate_record(&source));
    let secret = scene.folder.path().join("token");
    std::fs::write(&secret, "sesame").unwrap();
    std::fs::remove_file(&archive).unwrap();
    symlink(&secret, &archive).unwrap();
    assert!(fleet.open_lent(&green, &asked, &digest).await.is_err());
    std::fs::write(&record, vec![b' '; 1 << 20]).unwrap();
    let Loan::Source { artifact: None, .. } = fleet.lend(&green, &asked).await else {
        panic!("a record without end was read");
    };
}
