//! Tests what a compromised lane can borrow, and what not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenure_api::GitRepository;
use tenure_tenancy::identity;

use super::*;
use crate::context::lane_settings::{LaneMode, LaneProgram, ProcessSettings};
use crate::hub::lane_fleet::HubOverview as _;
use crate::lane_protocol::messages::NamespaceFacts;
use crate::test_hub::{TestHub, make_apart_settings};

/// A hub with two tenants and the pool, each with a namespace. `shared` has a source and a Kustomization.
struct Scene {
    stage: TestHub,
    fleet: Arc<LaneFleet>,
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
        let stage = TestHub::set(|config| {
            config.settings.reference_grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
            config.lanes = LaneMode::Processes(Box::new(ProcessSettings {
                program: LaneProgram {
                    program: "/bin/false".into(),
                    name: "false".into(),
                    arguments: Vec::new(),
                    environment: Vec::new(),
                },
                apart: make_apart_settings(Duration::from_secs(20)),
            }));
        });
        stage.show_two_tenants();
        stage.show_namespace("shared", None, "1");
        let fleet = stage.make_fleet();
        let scene = Self { stage, fleet };
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

    /// Feeds a watch event about an object of `shared`, which belongs to the pool.
    fn show(&self, object: Value) {
        let shard = self.stage.hub.open_shard("shared");
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if kind == GitRepository::KIND.name {
            shard
                .caches
                .get::<GitRepository>()
                .observe(serde_json::from_value(object).unwrap());
        } else {
            shard
                .caches
                .get::<Kustomization>()
                .observe(serde_json::from_value(object).unwrap());
        }
        let entry = self
            .stage
            .hub
            .lane_kinds
            .iter()
            .find(|entry| entry.kind.name == kind)
            .unwrap();
        self.fleet
            .note_change(&shard, &Key::new(entry.kind, "shared", &name), None);
        let pool = Arc::new(self.lane("pool", "shared"));
        lock(&self.fleet.homes).get_mut("shared").unwrap().lane = Some(pool);
    }

    /// Writes an artifact as the pool's lane.
    fn fetch(&self, content: &[u8]) {
        let lane = self.stage.folder.path().join("artifacts/lanes/pool");
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

    /// Returns a lane with a namespace.
    fn lane(&self, name: &str, namespace: &str) -> LaneHandle {
        let placement = self.stage.hub.place_known(namespace);
        let lane = LaneHandle::new(name, identity::decide_for_lane(&placement, namespace));
        lane.assign(
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

fn reference(from: &str, kind: &str, namespace: &str, name: &str) -> Reference {
    Reference {
        from: from.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test]
async fn lane_borrows_only_objects_granted_to_its_namespaces() {
    let scene = Scene::set(&[
        "tenant:green=shared/GitRepository/app",
        "tenant:green=shared/Kustomization/infra",
    ]);
    let (fleet, digest) = (&scene.fleet, digest());
    let (green, mauve) = (scene.lane("tenant/green", "green"), scene.lane("tenant/mauve", "mauve"));
    let asked = reference("green", "GitRepository", "shared", "app");
    // The controls: the granted source is lent, with its artifact.
    let ReferenceAnswer::Source { uid, artifact, .. } = fleet.lend(&green, &asked).await else {
        panic!("nothing is lent");
    };
    assert_eq!((uid.as_str(), artifact.unwrap().digest), ("1", digest.clone()));
    let mut archive = Vec::new();
    let opened = fleet.open_lent(&green, &asked, &digest).await;
    opened.unwrap().read_to_end(&mut archive).unwrap();
    assert_eq!(archive, CONTENT);
    let infra = reference("green", "Kustomization", "shared", "infra");
    assert!(matches!(
        fleet.lend(&green, &infra).await,
        ReferenceAnswer::Kustomization(_)
    ));

    // Refused: lanes without the grant, whatever they claim, and targets without a grant, whether they exist or not.
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
        assert!(matches!(lent, ReferenceAnswer::Nothing), "{asked:?}: {lent:?}");
        assert!(fleet.open_lent(lane, &asked, &digest).await.is_err(), "{asked:?}");
    }
    // A digest is no path.
    for odd in ["sha256:../../../token", "/etc/passwd", ""] {
        assert!(fleet.open_lent(&green, &asked, odd).await.is_err(), "{odd}");
    }
    // Objects of another instance are seen here, but their artifacts are not.
    let mirror = lock(&fleet.homes).remove("shared");
    let lent = fleet.lend(&green, &asked).await;
    assert!(
        matches!(&lent, ReferenceAnswer::Unknown(why) if why.contains("another shard")),
        "{lent:?}"
    );
    assert!(matches!(
        fleet.lend(&green, &infra).await,
        ReferenceAnswer::Kustomization(_)
    ));
    assert!(matches!(
        fleet
            .lend(&mauve, &reference("mauve", "Kustomization", "shared", "infra"))
            .await,
        ReferenceAnswer::Nothing
    ));
    assert!(fleet.open_lent(&green, &asked, &digest).await.is_err());
    lock(&fleet.homes).extend(mirror.map(|mirror| ("shared".to_owned(), mirror)));
    // A lane that has just lost the namespace, although it has not released it.
    let held_on = scene.lane("tenant/green", "green");
    assert!(scene.stage.show_namespace("green", Some("mauve"), "2"));
    assert!(matches!(fleet.lend(&held_on, &asked).await, ReferenceAnswer::Nothing));
}

/// A lane may replace its files with links, or with files that have no end.
#[tokio::test]
async fn replaced_archives_and_records_are_not_lent() {
    let scene = Scene::set(&["tenant:green=shared/GitRepository/app"]);
    let (fleet, digest) = (&scene.fleet, digest());
    let green = scene.lane("tenant/green", "green");
    let asked = reference("green", "GitRepository", "shared", "app");
    let source = SourceKey::new("GitRepository", "shared", "app", "1").unwrap();
    let lane = scene.stage.folder.path().join("artifacts/lanes/pool");
    let archive = lane.join(locate_archive(&source, &digest).unwrap());
    let record = lane.join(locate_record(&source));
    let secret = scene.stage.folder.path().join("token");
    std::fs::write(&secret, "sesame").unwrap();
    std::fs::remove_file(&archive).unwrap();
    symlink(&secret, &archive).unwrap();
    assert!(fleet.open_lent(&green, &asked, &digest).await.is_err());
    std::fs::write(&record, vec![b' '; 1 << 20]).unwrap();
    let ReferenceAnswer::Source { artifact: None, .. } = fleet.lend(&green, &asked).await else {
        panic!("a record without end was read");
    };
}
