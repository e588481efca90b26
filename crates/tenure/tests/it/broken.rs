//! Broken inputs, from each source and at each step. The status reports each problem with a reason of Flux (or IdentityMissing, UnknownKind or InvalidSpec, where Flux
//! has none) and with words that help to fix it. Applied objects stay, and after the fix the result is the same as without the problem.

use serde_json::{Value, json};
use tenure_bucket_server::Answer as StoreAnswer;
use tenure_git_server::Content;
use tenure_registry_server::Answer as RegistryAnswer;
use tenure_testkit::{SOON, eventually};

use crate::killed::{Ends, KUSTOMIZATION, NAMESPACE, SOURCE_VERSION, TURNS, World, key, map, read_fixture};

/// The problem.
enum Fault {
    /// A broken file in Git.
    File(&'static str, String),
    /// A file that was applied before, with its ConfigMap: the valid text and the broken text.
    Changed(&'static str, &'static str, [String; 2]),
    /// Fields of an object's spec, and the fields that fix them.
    Spec(Value, Value),
    /// Two Kustomizations that wait for each other.
    Ring([&'static str; 2]),
    /// A wrong key for the encrypted files.
    Key,
    /// A missing key.
    NoKey,
    /// The registry fails.
    Registry,
    /// The store fails.
    Store,
}

struct Case {
    fault: Fault,
    /// The kind and the name of the reporting object.
    by: (&'static str, &'static str),
    reason: &'static str,
    /// Words that its message must contain.
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

fn spec(broken: Value, whole: Value) -> Fault {
    Fault::Spec(json!({ "spec": broken }), json!({ "spec": whole }))
}

/// Returns files in Git that can't be read or built.
fn list_files() -> Vec<Case> {
    let git = ("Kustomization", "git");
    let build = |path: &'static str, text: &str, words: &'static [&'static str]| {
        case(Fault::File(path, text.to_owned()), git, "BuildFailed", words)
    };
    let of_kind = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n");
    vec![
        build("kustomization.yaml", "resources: [map.yaml, map.yaml]\n", &["map.yaml"]),
        build("kustomization.yaml", "resources: [nowhere.yaml]\n", &["nowhere.yaml"]),
        build(
            "kustomization.yaml",
            "resources: [map.yaml]\nnamePrefx: a-\n",
            &["namePrefx"],
        ),
        build(
            "kustomization.yaml",
            "resources: [map.yaml]\npatches:\n- path: nowhere.yaml\n",
            &["nowhere.yaml"],
        ),
        build("image.yaml", "\u{89}PNG\r\n\u{1a}\u{0}\u{0}", &["image.yaml"]),
        build("words.yaml", "only some words\n", &["words.yaml"]),
        build(
            "tab.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n\tname: tab\n",
            &["tab.yaml", "4"],
        ),
        build(
            "kind.yaml",
            "apiVersion: v1\nmetadata:\n  name: k\n",
            &["kind.yaml", "kind"],
        ),
        build("name.yaml", "apiVersion: v1\nkind: ConfigMap\n", &["name.yaml", "name"]),
        build(
            "twice.yaml",
            &[of_kind("twice"), of_kind("twice")].join("---\n"),
            &["twice"],
        ),
    ]
}

/// Returns readable objects that the API server rejects.
fn list_objects() -> Vec<Case> {
    let git = ("Kustomization", "git");
    let refused = |path: &'static str, text: &str, words: &'static [&'static str]| {
        case(Fault::File(path, text.to_owned()), git, "ReconciliationFailed", words)
    };
    let large = map("large", &"x".repeat(3 << 20));
    let field = map("field", "1").replace("\ndata:", "\ndta:");
    let label = map("label", "1").replace("name: label", "name: label\n  labels: {a: is no label}");
    let fixed = |value: &str| format!("{}immutable: true\n", map("fixed", value));
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: word\ndata:\n  word: \"731731!\"\n";
    vec![
        refused("large.yaml", &large, &["ConfigMap/shop/large", "large.yaml"]),
        refused("field.yaml", &field, &["ConfigMap/shop/field", "field.yaml", "dta"]),
        refused(
            "label.yaml",
            &label,
            &["ConfigMap/shop/label", "label.yaml", "metadata.labels"],
        ),
        refused(
            "word.yaml",
            secret,
            &["Secret/shop/word", "word.yaml", "data.word", "base64"],
        ),
        case(
            Fault::File(
                "widget.yaml",
                "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\n".to_owned(),
            ),
            git,
            "UnknownKind",
            &["Widget", "example.com/v1"],
        ),
        case(
            Fault::Changed("fixed.yaml", "fixed", ["1", "2"].map(fixed)),
            git,
            "ReconciliationFailed",
            &["ConfigMap/shop/fixed", "fixed.yaml", "immutable"],
        ),
    ]
}

/// Returns invalid fields of a Kustomization.
fn list_kustomizations() -> Vec<Case> {
    let name_kustomization = |name: &'static str| ("Kustomization", name);
    let from = |name: &str| json!({ "substituteFrom": [{ "kind": "Secret", "name": name }] });
    let checked = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "namespace": NAMESPACE });
    vec![
        case(
            spec(json!({ "path": "./none" }), json!({ "path": "./" })),
            name_kustomization("bucket"),
            "BuildFailed",
            &["none"],
        ),
        case(
            spec(
                json!({ "targetNamespace": "none" }),
                json!({ "targetNamespace": NAMESPACE }),
            ),
            name_kustomization("git"),
            "ReconciliationFailed",
            &["none", "applier"],
        ),
        case(
            spec(
                json!({ "postBuild": from("none") }),
                json!({ "postBuild": from("variables") }),
            ),
            name_kustomization("git"),
            "BuildFailed",
            &["Secret", "none"],
        ),
        case(
            spec(
                json!({ "sourceRef": { "kind": "GitRepository", "name": "none" } }),
                json!({ "sourceRef": { "kind": "OCIRepository", "name": "oci" } }),
            ),
            name_kustomization("oci"),
            "ArtifactFailed",
            &["GitRepository", "none"],
        ),
        case(
            spec(
                json!({ "dependsOn": [{ "name": "none" }] }),
                json!({ "dependsOn": null }),
            ),
            name_kustomization("oci"),
            "DependencyNotReady",
            &["shop/none", "not found"],
        ),
        case(
            spec(
                json!({ "dependsOn": [{ "name": "oci" }] }),
                json!({ "dependsOn": null }),
            ),
            name_kustomization("oci"),
            "InvalidSpec",
            &["shop/oci", "itself"],
        ),
        case(
            Fault::Ring(["git", "oci"]),
            name_kustomization("git"),
            "DependencyNotReady",
            &["dependsOn forms a cycle"],
        ),
        case(
            spec(
                json!({ "wait": false, "timeout": "2s", "healthChecks": [checked] }),
                json!({ "wait": true, "timeout": null, "healthChecks": null }),
            ),
            name_kustomization("oci"),
            "HealthCheckFailed",
            &["Widget/shop/w"],
        ),
    ]
}

/// Returns sources with missing targets.
fn list_sources() -> Vec<Case> {
    let git = ("GitRepository", "git");
    let oci = ("OCIRepository", "oci");
    let whole = || json!({ "ref": { "branch": "main", "semver": null, "commit": null } });
    vec![
        case(
            spec(json!({ "ref": { "branch": null, "semver": "one or two" } }), whole()),
            git,
            "GitOperationFailed",
            &["one or two"],
        ),
        case(
            spec(json!({ "ref": { "branch": null, "semver": ">= 7" } }), whole()),
            git,
            "GitOperationFailed",
            &[">= 7"],
        ),
        case(
            spec(json!({ "secretRef": { "name": "none" } }), json!({ "secretRef": null })),
            git,
            "AuthenticationFailed",
            &["none"],
        ),
        case(
            spec(json!({ "ref": { "semver": "one or two" } }), json!({ "ref": null })),
            oci,
            "OCIArtifactPullFailed",
            &["one or two"],
        ),
        case(
            spec(json!({ "secretRef": { "name": "none" } }), json!({ "secretRef": null })),
            oci,
            "AuthenticationFailed",
            &["none"],
        ),
        case(
            spec(json!({ "secretRef": { "name": "none" } }), json!({ "secretRef": null })),
            ("Bucket", "bucket"),
            "AuthenticationFailed",
            &["none"],
        ),
    ]
}

fn list_cases() -> Vec<Case> {
    let git = ("Kustomization", "git");
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: o\ndata:\n  a: [1]\n";
    let cases = vec![
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
            Fault::File("s.yaml", read_fixture("encrypted/changed-value.yaml")),
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
        case(Fault::NoKey, git, "BuildFailed", &["shop/keys", "not found"]),
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
    ];
    let groups = [list_files(), list_objects(), list_kustomizations(), list_sources()];
    cases.into_iter().chain(groups.into_iter().flatten()).collect()
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
            Fault::Changed(path, _, [_, broken]) => {
                let content = if is_broken {
                    Content::from(broken.as_str())
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
                    secret["stringData"]["a.agekey"] = json!(read_fixture("keys/stranger.agekey"));
                }
                admin.apply(secret).await.unwrap();
            }
            Fault::Ring(names) => {
                for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
                    let depends = is_broken.then(|| json!([{ "name": other }]));
                    let patch = json!({ "spec": { "dependsOn": depends } });
                    admin.patch(KUSTOMIZATION, (NAMESPACE, name), patch).await.unwrap();
                }
            }
            Fault::NoKey if is_broken => admin.delete(("v1", "Secret"), (NAMESPACE, "keys")).await.unwrap(),
            Fault::NoKey => {
                admin.apply(key()).await.unwrap();
            }
            Fault::Registry => world
                .registry
                .answer_with(move |_| is_broken.then(|| RegistryAnswer::new(500, "out of order"))),
            Fault::Store => world
                .store
                .answer_with(move |_| is_broken.then(|| StoreAnswer::new(500, "out of order"))),
        }
    }

    /// Commits the valid state, and waits until it is applied.
    async fn prepare(&self, world: &World, number: &mut usize) {
        let Fault::Changed(path, name, [whole, _]) = &self.fault else {
            return;
        };
        *number += 1;
        world
            .git
            .commit([(*path, whole.as_str())], "before a fault")
            .await
            .unwrap();
        world.change(*number).await;
        world.ask(*number).await;
        let admin = world.admin().await;
        let there = eventually(SOON, || async {
            let object = admin.get(("v1", "ConfigMap"), (NAMESPACE, name)).await;
            object.ok().flatten().ok_or("it is not applied")
        });
        there.await.unwrap();
    }

    /// Waits until the object reports these words and this reason. Returns the report, or the report in its place.
    async fn wait_for_report(&self, world: &World) -> Result<String, String> {
        let admin = world.admin().await;
        let (kind, name) = self.by;
        let report = eventually(SOON, || async {
            let object = admin.get((version(kind), kind), (NAMESPACE, name)).await;
            let object = object.unwrap().unwrap();
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            let ready = ready.cloned().unwrap_or_default();
            let message = ready["message"].as_str().unwrap_or_default();
            let has_words = self.words.iter().all(|word| message.contains(word));
            if ready["status"] == "False" && ready["reason"] == self.reason && has_words {
                return Ok(format!("{kind} {name}: {}: {message}", self.reason));
            }
            Err(format!(
                "{kind} {name} does not tell {} {:?}: {ready:#}",
                self.reason, self.words
            ))
        });
        report.await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_inputs_are_reported_and_repaired() {
    let (world, _up) = World::set().await;
    let (ends, _) = Ends::record(&world).await;
    let mut number = TURNS;
    let mut wrong = Vec::new();
    for case in list_cases() {
        case.prepare(&world, &mut number).await;
        // A new object comes with the broken input: it must not be applied partly, nor lost.
        number += 1;
        case.set(&world, true).await;
        world.change(number).await;
        world.ask(number).await;
        let report = case.wait_for_report(&world).await;
        let message = match &report {
            Ok(message) => message.clone(),
            Err(other) => {
                wrong.push(other.clone());
                other.clone()
            }
        };
        println!("{message}");
        number += 1;
        case.set(&world, false).await;
        world.change(number).await;
        world.ask(number).await;
        world.wait_for_end(number, &ends, &format!("after {message}")).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The API server rejects these fields when they are written, so no controller has to check them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_field_is_refused_when_written() {
    let (world, _up) = World::set().await;
    let admin = world.admin().await;
    for (kind, name, spec, field) in [
        (
            "Kustomization",
            "git",
            json!({ "interval": "10 minutes" }),
            "spec.interval",
        ),
        ("Kustomization", "git", json!({ "timeout": "soon" }), "spec.timeout"),
        (
            "Kustomization",
            "git",
            json!({ "sourceRef": { "kind": "Gitrepository" } }),
            "spec.sourceRef.kind",
        ),
        (
            "Kustomization",
            "git",
            json!({ "decryption": { "provider": "vault" } }),
            "spec.decryption.provider",
        ),
        ("GitRepository", "git", json!({ "interval": "often" }), "spec.interval"),
        ("GitRepository", "git", json!({ "url": "git.example/app" }), "spec.url"),
        (
            "OCIRepository",
            "oci",
            json!({ "url": "https://ghcr.io/app" }),
            "spec.url",
        ),
        ("Bucket", "bucket", json!({ "provider": "floppy" }), "spec.provider"),
    ] {
        let patch = json!({ "spec": spec });
        let refused = admin.patch((version(kind), kind), (NAMESPACE, name), patch).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(field), "{field}: {message}");
    }
}

/// YAML allows the output of other systems' editors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_but_valid_yaml_is_applied() {
    let (world, _up) = World::set().await;
    let (ends, _) = Ends::record(&world).await;
    let admin = world.admin().await;
    let text = map("strange", "as it is");
    let forms = [
        ("a byte order mark", format!("\u{feff}{text}")),
        ("carriage returns", text.replace('\n', "\r\n")),
        ("both", format!("\u{feff}{text}").replace('\n', "\r\n")),
        ("no end of the last line", text.trim_end().to_owned()),
        ("empty documents", format!("---\n---\n{text}---\n# nothing\n---\n")),
    ];
    let mut number = TURNS;
    for (what, text) in forms {
        number += 1;
        world.git.commit([("strange.yaml", text.as_str())], what).await.unwrap();
        world.change(number).await;
        world.ask(number).await;
        let applied = eventually(SOON, || async {
            let object = admin.get(("v1", "ConfigMap"), (NAMESPACE, "strange")).await;
            let object = object.unwrap().unwrap_or_default();
            match &object["data"]["value"] {
                value if value == "as it is" => Ok(()),
                other => Err(format!("{what}: {other:?}")),
            }
        });
        applied.await.unwrap();
        number += 1;
        world
            .git
            .commit([("strange.yaml", Content::Removed)], what)
            .await
            .unwrap();
        world.change(number).await;
        world.ask(number).await;
        world.wait_for_end(number, &ends, what).await;
    }
}
