//! Contents of a repository that cost more to read than to write.

use serde_json::json;
use tenure_controllers::{BudgetLimit, Budgets};

use super::contents::{Contents, files_of, one};
use super::{Attack, Scene, attack};
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, config_map};
use crate::tenants::{surface, surface_ready};

/// Files that are small to store and large, deep or endless to read.
fn bombs() -> Vec<Contents> {
    let deep = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\ndata: {}{}\n",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let block: String = (0..3_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let aliases: String = (1..40).fold(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\nl0: &a0 [x]\n".to_owned(),
        |text, level| {
            let below = level - 1;
            format!("{text}l{level}: &a{level} [*a{below}, *a{below}, *a{below}, *a{below}]\n")
        },
    );
    let merge = "apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: bomb\n  <<: *m\n";
    let ring = |name, other: &str| Contents {
        attempt: vec![
            ("kustomization.yaml", format!("resources: [{other}]\n")),
            ("other/kustomization.yaml", "resources: [../]\n".to_owned()),
        ],
        ..one(name, String::new(), "cycle detected")
    };
    let fields: String = (0..2_000).map(|field| format!("    - data.k{field}\n")).collect();
    let copies = Contents {
        attempt: vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [map.yaml]\nreplacements:\n- source: {{kind: ConfigMap, name: bomb, fieldPath: data.a}}\n  targets:\n  - \
                     select: {{kind: ConfigMap}}\n    options: {{create: true}}\n    fieldPaths:\n{fields}"
                ),
            ),
            (
                "map.yaml",
                format!(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\ndata: {{a: {}}}\n",
                    "x".repeat(100_000)
                ),
            ),
        ],
        ..one("bomb-copies", String::new(), "more than 64 MiB")
    };
    let json = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    vec![
        one("bomb-deep", deep, "nested deeper than"),
        one("bomb-block", block, "nested deeper"),
        one("bomb-aliases", aliases, "aliases stand for more"),
        one("bomb-merge", merge.to_owned(), "contains itself"),
        one("bomb-json", json, "nested deeper"),
        one(
            "bomb-junk",
            "\u{feff}%YAML 9.9\n--- !!binary |\n  ".repeat(2_000),
            "malformed YAML",
        ),
        ring("bomb-ring", "other"),
        ring("bomb-self", "../attempt"),
        copies,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bomb_in_repository_affects_only_its_lane() {
    let scene = Scene::set("attacks-d").await;
    let bombs = bombs();
    scene.serve(&files_of(&bombs)).await;
    let attacks: Vec<Attack> = bombs
        .iter()
        .map(|contents| {
            let at = |side: &str| json!({ "path": format!("./{}/{side}", contents.name) });
            attack(contents.name, at("attempt"), contents.expected, at("control"))
        })
        .collect();
    let alpha = scene.alpha.clone();
    let others = async {
        surface(
            &scene.stage,
            &alpha,
            "apps",
            &[("a.yaml", &config_map("a", "1"))],
            json!({}),
        )
        .await;
        surface_ready(&scene.stage, (&alpha, "apps")).await;
    };
    let attempts = scene.check(&attacks, |_, name, spec| scene.kustomization(name, spec));
    tokio::join!(others, attempts);

    // A file above the size limit: the source reports it, and mallory's previous objects stay.
    let huge = vec![b'#'; (64 << 20) + 1];
    let repository = scene.stage.git.create(&scene.fill("EVIL-huge")).await.unwrap();
    repository.commit([("a.yaml", huge)], "huge").await.unwrap();
    let attempt = attack(
        "huge",
        json!({ "url": scene.stage.git.http_url(&scene.fill("EVIL-huge")) }),
        "64 MiB",
        json!({}),
    );
    scene
        .check(&[attempt], |_, name, spec| scene.source(name, "EVIL-files", spec))
        .await;
    scene.shut_down().await;
}

/// A waiting Kustomization blocks neither another tenant nor a later one of its own tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_health_blocks_no_other_kustomization() {
    const WAITING: usize = 40;
    let scene = Scene::set("attacks-waiting").await;
    let mut files: Vec<(String, String)> = (0..WAITING)
        .map(|number| (format!("s{number}/a.yaml"), config_map(&format!("s{number}"), "1")))
        .collect();
    files.push(("last/a.yaml".to_owned(), config_map("last", "1")));
    scene.serve(&files).await;
    for number in 0..WAITING {
        let spec = json!({
            "path": format!("./s{number}"), "wait": true, "timeout": "10m",
            "healthCheckExprs": [{ "apiVersion": "v1", "kind": "ConfigMap", "current": "data.value == 'never'" }],
        });
        scene
            .mallory
            .apply(scene.kustomization(&format!("s{number}"), &spec))
            .await
            .unwrap();
    }
    let is_waiting = |object: Option<&serde_json::Value>| {
        let healthy = object.and_then(|object| crate::stage::condition(object, "Healthy"));
        healthy.is_some_and(|healthy| healthy["status"] == "Unknown")
    };
    // All of them wait at the same time, so none of them waits for capacity.
    for number in 0..WAITING {
        let target = (scene.evil.as_str(), format!("s{number}"));
        scene
            .stage
            .wait_for(KUSTOMIZATION, (target.0, &target.1), is_waiting)
            .await;
    }
    let spec = json!({ "path": "./last" });
    scene.mallory.apply(scene.kustomization("last", &spec)).await.unwrap();
    scene
        .stage
        .ready(KUSTOMIZATION, (&scene.evil, "last"), "True", "ReconciliationSucceeded")
        .await;
    let files = [("a.yaml", config_map("a", "1"))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    surface(&scene.stage, &scene.alpha, "apps", &files, json!({})).await;
    surface_ready(&scene.stage, (&scene.alpha, "apps")).await;
    for number in 0..WAITING {
        let name = format!("s{number}");
        assert!(
            is_waiting(scene.stage.get(KUSTOMIZATION, (&scene.evil, &name)).await.as_ref()),
            "{name} waits still"
        );
    }
    scene.shut_down().await;
}

/// A user that may write beside Git can make the objects of a reconciliation as large as they like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_use_only_memory_of_their_tenant() {
    let budgets = Budgets {
        object_memory: BudgetLimit {
            tenant: 2 << 20,
            all: 6 << 20,
            is_divided: false,
        },
        ..Budgets::default()
    };
    let stage = Stage::set_within("bombs-large", budgets).await.planting(&[]).await;
    let maps: Vec<String> = (0..4).map(|n| config_map(&format!("m{n}"), "1")).collect();
    let files = [("a.yaml", maps.join("---\n"))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let repository = stage.repository("bombs-large", "app", &files).await;
    stage.kustomization("bombs-large", "app", "app", json!({})).await;
    let commit = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("bombs-large", "app"), &commit).await;

    let target = ("bombs-large", "app");
    let fill = async |bytes: usize| {
        for n in 0..4 {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("m{n}"), "namespace": "bombs-large" },
                "data": { "more": "x".repeat(bytes) }
            });
            stage.admin.apply(map).await.unwrap();
        }
    };
    fill(900_000).await;
    let message = stage
        .ready(KUSTOMIZATION, target, "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("fit: --live-memory-per-tenant"), "{message}");
    for n in 0..4 {
        let name = format!("m{n}");
        assert!(stage.get(CONFIG_MAP, ("bombs-large", &name)).await.is_some(), "{name}");
    }

    // Other tenants have their own memory.
    stage.namespace("bombs-small").await;
    let other = stage.repository("bombs-small", "app", &files).await;
    stage.kustomization("bombs-small", "app", "app", json!({})).await;
    let commit_of_other = other.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("bombs-small", "app"), &commit_of_other).await;

    fill(1).await;
    stage.wait_for_commit(target, &commit).await;
    stage.shut_down().await;
}
