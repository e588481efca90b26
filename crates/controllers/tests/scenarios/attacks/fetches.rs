//! Attempts to make a build, a link or an encrypted file fetch something: from a server that answers and that sources may use, so that a request
//! would be seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tenure_git_server::Content;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Attack, Scene, attack};
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, condition, config_map};

/// Answers every request with an object, and counts.
struct Trap {
    address: String,
    asked: Arc<AtomicUsize>,
}

impl Trap {
    async fn set() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut line, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let mut buffer = [0; 4096];
                let _whatever = line.read(&mut buffer).await;
                let body = config_map("fetched", "1");
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _gone = line.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, asked }
    }

    fn count(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Kustomization files, each of which names the trap in another field.
const REMOTE: [(&str, &str); 17] = [
    ("remote-resource", "resources: [a.yaml, \"http://TRAP/remote.yaml\"]"),
    (
        "remote-base",
        "resources: [a.yaml, \"http://TRAP/remote//folder?ref=main\"]",
    ),
    ("remote-git", "resources: [a.yaml, \"git::http://TRAP/remote\"]"),
    ("remote-ssh", "resources: [a.yaml, \"ssh://git@TRAP/remote\"]"),
    ("remote-scp", "resources: [a.yaml, \"git@TRAP:remote.git\"]"),
    ("remote-file", "resources: [a.yaml, \"file:///etc/remote\"]"),
    (
        "remote-component",
        "resources: [a.yaml]\ncomponents: [\"http://TRAP/remote\"]",
    ),
    (
        "remote-schema",
        "resources: [a.yaml]\nopenapi: {path: \"http://TRAP/remote.json\"}",
    ),
    (
        "remote-crds",
        "resources: [a.yaml]\ncrds: [\"http://TRAP/remote.json\"]",
    ),
    (
        "remote-configuration",
        "resources: [a.yaml]\nconfigurations: [\"http://TRAP/remote.yaml\"]",
    ),
    (
        "remote-generator",
        "resources: [a.yaml]\ngenerators: [\"http://TRAP/remote.yaml\"]",
    ),
    (
        "remote-transformer",
        "resources: [a.yaml]\ntransformers: [\"http://TRAP/remote.yaml\"]",
    ),
    (
        "remote-validator",
        "resources: [a.yaml]\nvalidators: [\"http://TRAP/remote.yaml\"]",
    ),
    (
        "remote-patch",
        "resources: [a.yaml]\npatches: [{path: \"http://TRAP/remote.yaml\"}]",
    ),
    (
        "remote-replacement",
        "resources: [a.yaml]\nreplacements: [{path: \"http://TRAP/remote.yaml\"}]",
    ),
    (
        "remote-map",
        "resources: [a.yaml]\nconfigMapGenerator: [{name: x, files: [\"http://TRAP/remote\"]}]",
    ),
    (
        "remote-secret",
        "resources: [a.yaml]\nsecretGenerator: [{name: x, envs: [\"http://TRAP/remote\"]}]",
    ),
];

/// Returns a Secret that only a Vault could open, at an address of its author's choice.
fn for_vault() -> String {
    "apiVersion: v1\nkind: Secret\nmetadata: {name: vault}\nstringData:\n  password: ENC[AES256_GCM,data:p673w==,iv:YY=,tag:UQ==,type:str]\nsops:\n  hc_vault:\n  - {vault_address: \"http://TRAP\", engine_path: transit, key_name: k, created_at: \"2026-01-01T00:00:00Z\", enc: \"vault:v1:AAAA\"}\n  lastmodified: \"2026-01-01T00:00:00Z\"\n  mac: ENC[AES256_GCM,data:p673w==,iv:YY=,tag:UQ==,type:str]\n  encrypted_regex: ^(data|stringData)$\n  version: 3.9.0\n".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_fetched_but_by_a_source() {
    let trap = Trap::set().await;
    let scene = Scene::set_allowing("attacks-fetch", &[format!("http://{}", trap.address)]).await;
    let mut files = Vec::new();
    let mut attacks = Vec::new();
    let sides = |name: &str| ["attempt", "control"].map(|side| json!({ "path": format!("./{name}/{side}") }));
    for (name, kustomization) in REMOTE {
        let text = kustomization.replace("TRAP", &trap.address);
        files.push((format!("{name}/attempt/kustomization.yaml"), text + "\n"));
        for side in ["attempt", "control"] {
            files.push((format!("{name}/{side}/a.yaml"), config_map(name, "1")));
        }
        let [attempt, control] = sides(name);
        attacks.push(attack(name, attempt, "remote", control));
    }
    let [mut attempt, control] = sides("vault");
    attempt["decryption"] = json!({ "provider": "sops" });
    files.push((
        "vault/attempt/a.yaml".to_owned(),
        for_vault().replace("TRAP", &trap.address),
    ));
    files.push(("vault/control/a.yaml".to_owned(), config_map("vault", "1")));
    attacks.push(attack("vault", attempt, "HashiCorp Vault", control));
    scene.serve(&files).await;
    scene
        .check(&attacks, |_, name, spec| scene.kustomization(name, spec))
        .await;
    assert_eq!(trap.count(), 0, "somebody fetched");
    scene
        .absent(&[
            (CONFIG_MAP, "EVIL", "fetched"),
            (CONFIG_MAP, "EVIL", "x"),
            (("v1", "Secret"), "EVIL", "vault"),
        ])
        .await;
    // The control: a source may fetch from it, and is seen.
    let source = json!({ "url": format!("http://{}/remote", trap.address), "interval": "1h" });
    scene.mallory.apply(scene.source("seen", "x", &source)).await.unwrap();
    scene
        .stage
        .wait_for(GIT_REPOSITORY, (&scene.evil, "seen"), |object| {
            let ready = object.and_then(|object| condition(object, "Ready"));
            ready.is_some_and(|ready| ready["status"] == "False")
        })
        .await;
    assert!(trap.count() > 0, "a fetch would not have been seen");
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_link_leads_out_of_the_source() {
    let scene = Scene::set("attacks-links").await;
    let repository = scene
        .serve(&[("own/a.yaml".to_owned(), config_map("linked", "1"))])
        .await;
    // Each folder with the target of its link. A link to the outside would reach the machine, or a neighbouring artifact.
    let outside = "/proc/self/environ";
    let links = [
        ("file", "a.yaml", outside),
        ("kustomization", "kustomization.yaml", "../../../../../../../etc/passwd"),
        ("beside", "a.yaml", "../../own.tar.gz"),
        ("ring", "a.yaml", "b.yaml"),
    ];
    let resources = || Content::from("resources: [a.yaml]\n");
    let mut changes: Vec<(String, Content)> = Vec::new();
    for (name, file, target) in links {
        let mut add = |path: &str, content: Content| changes.push((format!("link-{name}/{path}"), content));
        let inside = match file {
            "kustomization.yaml" => ("attempt/a.yaml", "control/a.yaml", "control/real.txt"),
            _ => (
                "attempt/kustomization.yaml",
                "control/kustomization.yaml",
                "control/real.txt",
            ),
        };
        let (beside, real) = match file {
            "kustomization.yaml" => (
                config_map(&format!("link-{name}"), "1"),
                "resources: [a.yaml]\n".to_owned(),
            ),
            _ => (
                "resources: [a.yaml]\n".to_owned(),
                config_map(&format!("link-{name}"), "1"),
            ),
        };
        add(inside.0, Content::from(beside.clone()));
        add(inside.1, Content::from(beside));
        add(inside.2, Content::from(real));
        add(&format!("attempt/{file}"), Content::Link(target.to_owned()));
        add(&format!("control/{file}"), Content::Link("real.txt".to_owned()));
    }
    changes.push((
        "link-ring/attempt/b.yaml".to_owned(),
        Content::Link("a.yaml".to_owned()),
    ));
    changes.push(("link-folder".to_owned(), Content::Link("/etc".to_owned())));
    changes.push(("folder/kustomization.yaml".to_owned(), resources()));
    changes.push((
        "folder/a.yaml".to_owned(),
        Content::from(config_map("link-folder", "1")),
    ));
    repository.commit(changes, "links").await.unwrap();
    let attacks: Vec<Attack> = links
        .iter()
        .map(|(name, ..)| {
            let name: &'static str = match *name {
                "file" => "link-file",
                "kustomization" => "link-kustomization",
                "beside" => "link-beside",
                _ => "link-ring",
            };
            let at = |side: &str| json!({ "path": format!("./{name}/{side}") });
            attack(name, at("attempt"), name, at("control"))
        })
        .chain([attack(
            "link-folder",
            json!({ "path": "./link-folder" }),
            "link-folder",
            json!({ "path": "./folder" }),
        )])
        .collect();
    scene
        .check(&attacks, |_, name, spec| scene.kustomization(name, spec))
        .await;

    // An ignore list that is a link has no effect, and its target is not read.
    let ignoring = [
        ("kept.yaml".to_owned(), Content::from(config_map("kept", "1"))),
        (".sourceignore".to_owned(), Content::Link(outside.to_owned())),
    ];
    repository.commit_on("ignoring", ignoring, "ignore").await.unwrap();
    let source = json!({ "ref": { "branch": "ignoring" } });
    scene
        .mallory
        .apply(scene.source("ignoring", "EVIL-files", &source))
        .await
        .unwrap();
    let kept = json!({ "sourceRef": { "kind": "GitRepository", "name": "ignoring" } });
    scene.mallory.apply(scene.kustomization("kept", &kept)).await.unwrap();
    let has_answer = |object: Option<&Value>| {
        let ready = object.and_then(|object| condition(object, "Ready"));
        ready.is_some_and(|ready| ready["status"] != "Unknown")
    };
    let object = scene
        .stage
        .wait_for(KUSTOMIZATION, (&scene.evil, "kept"), has_answer)
        .await
        .unwrap();
    assert!(!object.to_string().contains("PATH="), "{object:#}");
    let source = scene
        .stage
        .get(GIT_REPOSITORY, (&scene.evil, "ignoring"))
        .await
        .unwrap();
    assert!(!source.to_string().contains("PATH="), "{source:#}");
    scene.shut_down().await;
}

/// Artifacts are not served here, so they have no address and can't be listed or read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_artifacts_have_no_address() {
    let scene = Scene::set("attacks-served").await;
    scene.serve(&[("a.yaml".to_owned(), config_map("a", "1"))]).await;
    let is_stored =
        |object: Option<&Value>| object.is_some_and(|object| object["status"]["artifact"]["digest"].is_string());
    let source = scene
        .stage
        .wait_for(GIT_REPOSITORY, (&scene.evil, "files"), is_stored)
        .await
        .unwrap();
    assert_eq!(source["status"]["artifact"]["url"], "", "{source:#}");
    scene.shut_down().await;
}
