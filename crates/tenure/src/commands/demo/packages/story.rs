//! The story, chapter by chapter. Each step is a change by a person or a commit, and its observed effect.

use std::process::Stdio;

use http::Method;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{ALLOW_DELETION, PLATFORM_NAMESPACE};
use tenure_git_server::Content;

use super::super::transcript::{StepResult, Transcript};
use super::super::watch::{Kind, PATIENCE, find_condition, is_ready, is_refused, wait_until};
use super::super::world::git_failure;
use super::{
    PACKAGE, RELEASE, RUTH, SUPPLY, World, describe_applied, describe_customizer, describe_ruth, describe_sources,
    describe_stored_release,
};
use crate::api_answers::{apply_object, send_request};
use crate::failure::Failure;

/// The first commit of the customizer's repository: one value.
pub(super) const PACKAGE_VALUES: &str = "apiVersion: cozystack.io/v1alpha1\nkind: PackageValues\nmetadata: {name: example.web}\n\
    spec: {components: {web: {values: {replicas: 3}}}}\n";
/// The second commit: a list, by the key of its items.
const WITH_LIST: &str = "apiVersion: cozystack.io/v1alpha1\nkind: PackageValues\nmetadata: {name: example.web}\n\
    spec: {components: {web: {values: {replicas: 3, images: [{name: web, tag: '2'}]}, lists: [{path: images, key: name}]}}}\n";
/// The third commit: a field of the chart.
const WRONG_VARIANT: &str =
    "apiVersion: cozystack.io/v1alpha1\nkind: Package\nmetadata: {name: example.web}\nspec: {variant: oidc}\n";
const WRONG_FILE: &str = "production/package.yaml";

fn see(result: Result<String, String>) -> StepResult {
    match result {
        Ok(text) => StepResult::Held(text),
        Err(text) => StepResult::Missing(text),
    }
}

/// Waits until a value of the HelmRelease is as expected.
async fn wait_for_value(world: &World, key: &str, expected: &Value) -> Result<(), String> {
    let has_value = |object: Option<&Value>| {
        let values = object?.pointer("/spec/values")?;
        (values.get(key) == Some(expected)).then_some(())
    };
    let releases = Kind::HelmRelease.api(&world.admin, Some(RELEASE.0));
    wait_until(releases, RELEASE.1, PATIENCE, has_value).await
}

/// Waits until the installed chart has a text, where a helm-controller installs it.
async fn wait_for_chart(world: &World, key: &str, expected: &str) -> Result<String, String> {
    if !world.has_helm_controller() {
        return Ok("the HelmRelease has it".to_owned());
    }
    let has_text = |object: Option<&Value>| {
        let text = object?.get("data")?.get(key)?.as_str()?;
        (text.trim() == expected).then_some(())
    };
    let maps = Kind::ConfigMap.api(&world.admin, Some(RELEASE.0));
    let seen = wait_until(maps, RELEASE.1, PATIENCE, has_text).await;
    let installed = seen.map(|()| format!("the chart is installed with {key}: {expected}"));
    installed.map_err(|seen| world.explain(seen))
}

/// Returns uid and generation of the HelmRelease.
async fn read_version(world: &World) -> Result<(Value, Value), String> {
    let release = Kind::HelmRelease
        .api(&world.admin, Some(RELEASE.0))
        .get(RELEASE.1)
        .await;
    let release = release.map_err(|error| error.to_string())?.metadata;
    Ok((json!(release.uid), json!(release.generation)))
}

async fn commit(world: &World, path: &'static str, content: Content, message: &str) -> Result<String, String> {
    let committed = world.tuning.commit([(path, content)], message).await;
    committed.map_err(|error| git_failure(&error).message)
}

/// Waits until a status of the customizer's generated objects has a commit.
async fn wait_for_commit(world: &World, kind: Kind, path: &str, id: &str) -> Result<(), String> {
    let has_commit = |object: Option<&Value>| {
        let revision = object?.pointer(path)?.as_str()?;
        revision.ends_with(id).then_some(())
    };
    let api = kind.api(&world.admin, Some(PLATFORM_NAMESPACE));
    wait_until(api, "customizer-config", PATIENCE, has_commit).await
}

/// The platform's chart makes a Package.
pub(super) async fn install(world: &World, account: &mut Transcript) {
    account.chapter("A Package of the platform's chart becomes a HelmRelease");
    account
        .step("a PackageSource names a chart in Git", async {
            if let Err(error) = world.apply_all(&describe_sources(&world.git)).await {
                return StepResult::Missing(error.message);
            }
            let sources = Kind::PackageSource.api(&world.admin, None);
            see(wait_until(sources, PACKAGE, PATIENCE, is_ready).await)
        })
        .await;
    account
        .step(
            "the platform's chart makes Package example.web, and Tenure its HelmRelease",
            async {
                let path =
                    format!("/apis/cozystack.io/v1alpha1/packages/{PACKAGE}?fieldManager=helm-controller&force=true");
                match apply_object(&world.admin, &path, &describe_applied()).await {
                    Ok(answer) if answer.is_done() => {}
                    Ok(answer) => return StepResult::Missing(answer.describe()),
                    Err(error) => return StepResult::Missing(error),
                }
                if let Err(error) = world.apply_all(&[describe_stored_release()]).await {
                    return StepResult::Missing(error.message);
                }
                if let Err(seen) = wait_for_value(world, "replicas", &json!(2)).await {
                    return StepResult::Missing(seen);
                }
                see(wait_for_chart(world, "replicas", "2").await)
            },
        )
        .await;
    account
        .step("the Package is Ready", async {
            let packages = Kind::Package.api(&world.admin, None);
            see(wait_until(packages, PACKAGE, PATIENCE, is_ready)
                .await
                .map_err(|seen| world.explain(seen)))
        })
        .await;
}

/// A repository changes its values.
pub(super) async fn tune(world: &World, account: &mut Transcript) {
    account.chapter("An administrator tunes it from a repository");
    account
        .step("a PackageValues sets replicas to 3", async {
            let objects = match describe_customizer(&world.git) {
                Ok(objects) => objects,
                Err(error) => return StepResult::Missing(error.message),
            };
            if let Err(error) = world.apply_all(&objects).await {
                return StepResult::Missing(error.message);
            }
            if let Err(seen) = wait_for_value(world, "replicas", &json!(3)).await {
                return StepResult::Missing(seen);
            }
            see(wait_for_chart(world, "replicas", "3").await)
        })
        .await;
    account
        .step("a commit changes one item of a list, by its key", async {
            let committed = commit(world, "production/values.yaml", Content::from(WITH_LIST), "web: 2").await;
            if let Err(error) = committed {
                return StepResult::Missing(error);
            }
            let images = json!([{ "name": "web", "tag": "2" }, { "name": "cache", "tag": "1" }]);
            if let Err(seen) = wait_for_value(world, "images", &images).await {
                return StepResult::Missing(seen);
            }
            see(wait_for_chart(world, "images", "web:2 cache:1").await)
        })
        .await;
}

/// A commit takes a field of the chart.
pub(super) async fn steal(world: &World, account: &mut Transcript) {
    account.chapter("A commit takes spec.variant from the chart");
    account.print_text("The customizer has the profile admin: it may override fields of a chart.");
    account
        .step(
            "VariantNotFound: the variant oidc does not exist, and the release stays unchanged",
            async {
                let before = match read_version(world).await {
                    Ok(before) => before,
                    Err(error) => return StepResult::Missing(error),
                };
                if let Err(error) = commit(world, WRONG_FILE, Content::from(WRONG_VARIANT), "web: oidc").await {
                    return StepResult::Missing(error);
                }
                let packages = Kind::Package.api(&world.admin, None);
                let is_wrong = |object: Option<&Value>| {
                    is_refused(object).filter(|message| message.starts_with("VariantNotFound"))
                };
                let message = match wait_until(packages, PACKAGE, PATIENCE, is_wrong).await {
                    Ok(message) => message,
                    Err(seen) => return StepResult::Missing(seen),
                };
                match read_version(world).await {
                    Ok(after) if after == before => StepResult::Held(message),
                    Ok(after) => StepResult::Missing(format!("the HelmRelease changed: {before:?} {after:?}")),
                    Err(error) => StepResult::Missing(error),
                }
            },
        )
        .await;
}

/// Runs this program as ruth. Returns its exit code and its output.
async fn run_as_ruth(world: &World, arguments: &[&str]) -> Result<(Option<i32>, String), Failure> {
    let failure = |error: std::io::Error| Failure::environment(format!("this program can't run itself: {error}"));
    let output = tokio::process::Command::new(std::env::current_exe().map_err(failure)?)
        .args(arguments)
        .args(["--as", RUTH])
        .env("KUBECONFIG", world.plane.admin_kubeconfig()?)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failure)?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    Ok((
        output.status.code(),
        format!("$ tenure {}\n{text}", arguments.join(" ")),
    ))
}

/// Runs a command as ruth, and expects an exit code and words in its output.
async fn expect_from_ruth(world: &World, arguments: &[&str], code: i32, words: &[&str]) -> StepResult {
    match run_as_ruth(world, arguments).await {
        Ok((Some(found), text)) if found == code && words.iter().all(|word| text.contains(word)) => {
            StepResult::Held(text)
        }
        Ok((found, text)) => StepResult::Missing(format!("exit code {found:?}\n{text}")),
        Err(error) => StepResult::Missing(error.message),
    }
}

/// The chart gets its field back.
pub(super) async fn recover(world: &World, account: &mut Transcript) {
    account.chapter("The recovery: the chart's fields come back");
    account.print_text(
        "ruth may read the Package and the release, patch the Package, override, and suspend the customizer.",
    );
    account
        .step("ruth reads the plan: the field, and its present owner", async {
            if let Err(error) = world.apply_all(&describe_ruth()).await {
                return StepResult::Missing(error.message);
            }
            expect_from_ruth(
                world,
                &["recover", PACKAGE],
                1,
                &["restore", ".spec.variant", "would apply them again"],
            )
            .await
        })
        .await;
    account
        .step("the recovery: Ready again, and the chart owns its variant", async {
            let arguments = ["recover", PACKAGE, "--yes", "--suspend"];
            let recovered = expect_from_ruth(world, &arguments, 0, &["recovered"]).await;
            let StepResult::Held(text) = recovered else {
                return recovered;
            };
            let owner = Kind::Package.api(&world.admin, None).get(PACKAGE).await;
            let owner = owner.map(|package| serde_json::to_value(package).unwrap_or_default());
            match owner {
                Ok(package) if list_owners_of_variant(&package) == ["helm-controller"] => StepResult::Held(text),
                Ok(package) => StepResult::Missing(format!("{:?} own the variant", list_owners_of_variant(&package))),
                Err(error) => StepResult::Missing(error.to_string()),
            }
        })
        .await;
    account
        .step(
            "the corrected repository is applied again, and leaves the variant alone",
            async {
                let id = match commit(world, WRONG_FILE, Content::Removed, "web: not oidc").await {
                    Ok(id) => id,
                    Err(error) => return StepResult::Missing(error),
                };
                // The source goes on fetching.
                let fetched = wait_for_commit(world, Kind::GitRepository, "/status/artifact/revision", &id).await;
                if let Err(seen) = fetched {
                    return StepResult::Missing(seen);
                }
                let arguments = ["resume", "kustomization/customizer-config", "-n", PLATFORM_NAMESPACE];
                let resumed = expect_from_ruth(world, &arguments, 0, &[]).await;
                let StepResult::Held(_) = resumed else { return resumed };
                let applied = wait_for_commit(world, Kind::Kustomization, "/status/lastAppliedRevision", &id).await;
                if let Err(seen) = applied {
                    return StepResult::Missing(seen);
                }
                let packages = Kind::Package.api(&world.admin, None);
                let is_charts = |object: Option<&Value>| {
                    is_ready(object)
                        .filter(|_| object.is_some_and(|object| list_owners_of_variant(object) == ["helm-controller"]))
                };
                see(wait_until(packages, PACKAGE, PATIENCE, is_charts).await)
            },
        )
        .await;
}

/// Returns the field managers of `spec.variant`.
fn list_owners_of_variant(package: &Value) -> Vec<&str> {
    let entries = ObjectView::new(package).list_views("/metadata/managedFields");
    let owning = entries.filter(|entry| entry.has("/fieldsV1/f:spec/f:variant"));
    owning.filter_map(|entry| entry.find_text("/manager")).collect()
}

/// The Package is removed.
pub(super) async fn remove(world: &World, account: &mut Transcript) {
    account.chapter("The removal: nothing is uninstalled by accident");
    let mut digest = None;
    account
        .step("a deleted Package waits, and names what would go", async {
            let packages = Kind::Package.api(&world.admin, None);
            if let Err(error) = packages.delete(PACKAGE, &DeleteParams::default()).await {
                return StepResult::Missing(error.to_string());
            }
            let waits = |object: Option<&Value>| {
                let (status, _, message) = find_condition(object?, "RemovalPending")?;
                (status == "True").then(|| message.to_owned())
            };
            match wait_until(packages, PACKAGE, PATIENCE, waits).await {
                Ok(message) => {
                    digest = read_digest(&message);
                    StepResult::Held(message)
                }
                Err(seen) => StepResult::Missing(seen),
            }
        })
        .await;
    account
        .step("with the digest it goes, and its release with it", async {
            let Some(digest) = digest else {
                return StepResult::Missing("no message said how to allow it".to_owned());
            };
            let patch = json!({ "metadata": { "annotations": { ALLOW_DELETION: digest } } });
            let packages = Kind::Package.api(&world.admin, None);
            if let Err(error) = packages
                .patch(PACKAGE, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                return StepResult::Missing(error.to_string());
            }
            let is_gone = |object: Option<&Value>| object.is_none().then_some(());
            let releases = Kind::HelmRelease.api(&world.admin, Some(RELEASE.0));
            for (api, name) in [(packages, PACKAGE), (releases, RELEASE.1)] {
                if let Err(seen) = wait_until(api, name, PATIENCE, is_gone).await {
                    return StepResult::Missing(world.explain(seen));
                }
            }
            let path = format!("/api/v1/namespaces/{}/configmaps/{}", RELEASE.0, RELEASE.1);
            match send_request(&world.admin, Method::GET, &path, &Value::Null).await {
                Ok(answer) if answer.code == 404 => StepResult::Held(format!(
                    "the Package and HelmRelease {}/{} are gone; namespace {} stays, and so does {SUPPLY}",
                    RELEASE.0, RELEASE.1, RELEASE.0
                )),
                Ok(answer) => StepResult::Missing(format!("the chart is still installed: {}", answer.describe())),
                Err(error) => StepResult::Missing(error),
            }
        })
        .await;
}

/// Reads the digest that allows a removal from the message that asks for it.
fn read_digest(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(&format!("{ALLOW_DELETION}="))?;
    let digest = rest.split([';', ' ']).next()?;
    Some(digest.trim_end_matches('.').to_owned())
}
