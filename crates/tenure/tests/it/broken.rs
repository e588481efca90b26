//! Inputs that are broken, from each source and at each step: what is wrong is told with one of Flux's reasons (or IdentityMissing, where Flux has none) and in words that one can act on,
//! what was applied stays, and when it is mended the end is as if nothing had been wrong.

use std::time::Instant;

use serde_json::{Value, json};
use tenure_bucket_server::Answer as StoreAnswer;
use tenure_git_server::Content;
use tenure_registry_server::Answer as RegistryAnswer;

use crate::killed::{Ends, KUSTOMIZATION, NAMESPACE, SOURCE_VERSION, TURNS, World, key, map, recorded};

/// What is wrong.
enum Fault {
    /// A file in Git.
    File(&'static str, String),
    /// Fields of an object's spec; and what mends them.
    Spec(Value, Value),
    /// The key that opens the encrypted files.
    Key,
    /// The registry answers with a failure.
    Registry,
    /// The store does.
    Store,
}

struct Case {
    fault: Fault,
    /// Who tells of it: kind and name.
    by: (&'static str, &'static str),
    reason: &'static str,
    /// What must stand in its message.
    words: &'static [&'static str],
}

fn case(fault: Fault, by: (&'static str, &'static str), reason: &'static str, words: &'static [&'static str]) -> Case {
    Case {
        fault,
        by,
        reason,
        words,
    }
}

fn version(kind: &str) -> &'static str {
    if kind == KUSTOMIZATION.1 {
        KUSTOMIZATION.0
    } else {
        SOURCE_VERSION
    }
}

fn cases() -> Vec<Case> {
    let spec = |broken: Value, whole: Value| Fault::Spec(json!({ "spec": broken }), json!({ "spec": whole }));
    let git = ("Kustomization", "git");
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: o\ndata:\n  a: [1]\n";
    vec![
        case(
            Fault::File("broken.yaml", "a: [".to_owned()),
            git,
            "BuildFailed",
            &["broken.yaml"],
        ),
        case(
            Fault::File("v.yaml", map("v", "${missing}")),
            git,
            "BuildFailed",
            &["missing"],
        ),
        case(
            Fault::File("s.yaml", recorded("encrypted/changed-value.yaml")),
            git,
            "BuildFailed",
            &["s.yaml", "was changed"],
        ),
        case(
            Fault::File("o.yaml", object.to_owned()),
            git,
            "ReconciliationFailed",
            &["ConfigMap/shop/o", "o.yaml"],
        ),
        case(Fault::Key, git, "BuildFailed", &["none of the keys opens it"]),
        case(
            spec(json!({ "path": "./none" }), json!({ "path": "./" })),
            git,
            "BuildFailed",
            &["none"],
        ),
        case(
            spec(
                json!({ "serviceAccountName": "nobody" }),
                json!({ "serviceAccountName": "applier" }),
            ),
            git,
            "IdentityMissing",
            &["nobody"],
        ),
        case(
            spec(
                json!({ "ref": { "branch": "none" } }),
                json!({ "ref": { "branch": "main" } }),
            ),
            ("GitRepository", "git"),
            "GitOperationFailed",
            &["none"],
        ),
        case(
            spec(json!({ "ref": { "tag": "none" } }), json!({ "ref": null })),
            ("OCIRepository", "oci"),
            "OCIArtifactPullFailed",
            &["none"],
        ),
        case(
            Fault::Registry,
            ("OCIRepository", "oci"),
            "OCIArtifactPullFailed",
            &["500"],
        ),
        case(
            spec(json!({ "bucketName": "none" }), json!({ "bucketName": "app" })),
            ("Bucket", "bucket"),
            "BucketOperationFailed",
            &["none"],
        ),
        case(Fault::Store, ("Bucket", "bucket"), "BucketOperationFailed", &["500"]),
    ]
}

impl Case {
    async fn set(&self, world: &World, is_broken: bool) {
        let admin = world.admin().await;
        match &self.fault {
            Fault::File(path, text) => {
                let content = if is_broken {
                    Content::from(text.as_str())
                } else {
                    Content::Removed
                };
                world.git.commit([(*path, content)], "a fault").await.unwrap();
            }
            Fault::Spec(broken, whole) => {
                let patch = if is_broken { broken } else { whole };
                let (kind, name) = self.by;
                admin
                    .patch((version(kind), kind), (NAMESPACE, name), patch.clone())
                    .await
                    .unwrap();
            }
            Fault::Key => {
                let mut secret = key();
                if is_broken {
                    secret["stringData"]["a.agekey"] = json!(recorded("keys/stranger.agekey"));
                }
                admin.apply(secret).await.unwrap();
            }
            Fault::Registry => world
                .registry
                .answer_with(move |_| is_broken.then(|| RegistryAnswer::of(500, "out of order"))),
            Fault::Store => world
                .store
                .answer_with(move |_| is_broken.then(|| StoreAnswer::of(500, "out of order"))),
        }
    }

    /// Waits until it is told; and what was told.
    async fn until_told(&self, world: &World) -> (String, String) {
        let admin = world.admin().await;
        let (kind, name) = self.by;
        let begun = Instant::now();
        loop {
            let object = admin
                .get((version(kind), kind), (NAMESPACE, name))
                .await
                .unwrap()
                .unwrap();
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions
                .iter()
                .find(|condition| condition["type"] == "Ready")
                .cloned()
                .unwrap_or_default();
            let message = ready["message"].as_str().unwrap_or_default();
            if ready["status"] == "False" && self.words.iter().all(|word| message.contains(word)) {
                return (ready["reason"].as_str().unwrap().to_owned(), message.to_owned());
            }
            assert!(
                begun.elapsed().as_secs() < 60,
                "{kind} {name} does not tell {:?}: {ready:#}",
                self.words
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_broken_is_told_and_mended() {
    let (world, _up) = World::set().await;
    let (ends, _) = Ends::learn(&world).await;
    let mut number = TURNS;
    for case in cases() {
        // Something new comes with what is broken: it must not be applied by halves, nor lost.
        number += 1;
        case.set(&world, true).await;
        world.change(number).await;
        world.ask(number).await;
        let (reason, message) = case.until_told(&world).await;
        println!("{:?}: {reason}: {message}", case.by);
        assert_eq!(reason, case.reason, "{:?}: {message}", case.by);
        number += 1;
        case.set(&world, false).await;
        world.change(number).await;
        world.ask(number).await;
        world
            .until(number, &ends, &format!("after {:?}: {message}", case.by))
            .await;
    }
}
