//! The story, chapter by chapter. Each step is a change by a person, and its observed effect at the control plane or at the host.

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::access::{DEFAULT_SECRET_NAME, FluxAccessRequest};
use tenure_git_access::notice::ANNOUNCED;
use tenure_git_access::rotation_order::RotationOrder;

use super::super::tenancy::judge_attempt;
use super::super::transcript::{StepResult, Transcript};
use super::super::watch::{Kind, PATIENCE, find_condition, is_ready, is_refused, until_any, wait_until};
use super::super::world::apply_manifest;
use super::{FOREIGN, PLATFORM, PROJECT, World, describe_host, describe_wish};
use crate::api_answers::{Answer, send_request};

const GRANTS: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessgrants";
const REQUESTS: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessrequests";

/// A tenant wants to deploy from the project.
pub(super) async fn wish(world: &World, account: &mut Transcript) {
    account.chapter("A tenant wants to deploy from a private project");
    account
        .step("alpha's Surface names the project, and its access is denied", async {
            let [tenant, surface] = describe_wish(&world.forge.git().http_url(PROJECT));
            if let Err(error) = apply_manifest(&world.admin, &tenant).await {
                return StepResult::Missing(error.message);
            }
            if let Err(seen) = wait_until(Kind::Tenant.api(&world.admin, None), "alpha", PATIENCE, is_ready).await {
                return StepResult::Missing(seen);
            }
            if let Err(error) = apply_manifest(&world.admin, &surface).await {
                return StepResult::Missing(error.message);
            }
            let source = Kind::GitRepository.api(&world.admin, Some("alpha"));
            see(wait_until(source, "shop-web", PATIENCE, is_refused).await)
        })
        .await;
}

/// An administrator names the host.
pub(super) async fn host(world: &World, account: &mut Transcript) {
    account.chapter("An administrator names the host, once");
    account
        .step("one account reads the authoriser's credential, and it works", async {
            if let Err(error) = world.apply_all(&describe_host(world)).await {
                return StepResult::Missing(error.message);
            }
            let works = |object: Option<&Value>| {
                let (status, _, message) = find_condition(object?, "AuthoriserWorks")?;
                (status == "True").then(|| message.to_owned())
            };
            let provider = Kind::AccessProvider.api(&world.admin, Some(PLATFORM));
            see(wait_until(provider, "work", PATIENCE, works).await)
        })
        .await;
}

/// The agent's configuration requests access.
pub(super) async fn question(world: &World, account: &mut Transcript) -> Option<FluxAccessRequest> {
    account.chapter("The agent's configuration asks");
    let mut found = None;
    account
        .step(&format!("for {PROJECT}: a request waits for its owner"), async {
            let waits = |object: &Value| {
                let request: FluxAccessRequest = serde_json::from_value(object.clone()).ok()?;
                (request.status.as_ref()?.state.as_deref() == Some("Pending")).then_some(request)
            };
            let requests = Kind::FluxAccessRequest.api(&world.admin, Some(PLATFORM));
            match until_any(requests, PATIENCE, waits).await {
                Ok(request) => {
                    let spec = &request.spec;
                    let summary = format!(
                        "{} asks to {} {} {} in {}",
                        spec.requested_by,
                        spec.role,
                        spec.target.path,
                        world.target(),
                        spec.namespaces.join(", ")
                    );
                    found = Some(request);
                    StepResult::Held(summary)
                }
                Err(seen) => StepResult::Missing(seen),
            }
        })
        .await;
    account
        .step("its owner reads of that in the project itself", async {
            let Some(request) = &found else { return nothing_asked() };
            let shown = |object: Option<&Value>| {
                let announced = find_condition(object?, ANNOUNCED).filter(|(status, ..)| *status == "True");
                announced.map(|_| ())
            };
            if let Err(seen) = wait_until(requests(world), name(request), PATIENCE, shown).await {
                return StepResult::Missing(seen);
            }
            match world.forge.issues().as_slice() {
                [issue] if issue.is_open && issue.is_confidential => StepResult::Held(format!(
                    "confidential issue {}: {}; nothing in it answers it",
                    issue.number, issue.title
                )),
                issues => StepResult::Missing(format!("at the host: {issues:?}")),
            }
        })
        .await;
    account
        .step(&format!("for {FOREIGN} as well: refused, alone"), async {
            let refused = |object: Option<&Value>| {
                let provider = ObjectView::new(object?);
                let problem = provider.list_views("/status/problems").next()?;
                Some(format!(
                    "{}:{} {}: {}",
                    problem.read_text("/file"),
                    problem.find_number("/line").unwrap_or_default(),
                    problem.read_text("/entry"),
                    problem.read_text("/message")
                ))
            };
            let provider = Kind::AccessProvider.api(&world.admin, Some(PLATFORM));
            see(wait_until(provider, "work", PATIENCE, refused).await)
        })
        .await;
    found
}

/// The project's owner answers.
pub(super) async fn answer(world: &World, request: Option<&FluxAccessRequest>, account: &mut Transcript) {
    account.chapter("The project's owner answers, once");
    account.print_text(&format!(
        "alice may approve {}; mallory may write grants, too, as far as RBAC goes.",
        world.target()
    ));
    account
        .step("mallory approves in alice's name: denied; alice approves", async {
            let Some(request) = request else { return nothing_asked() };
            let grant = |by: &str| describe_grant(world, request, by);
            let attempt = send_request(&world.mallory, Method::POST, GRANTS, &grant("alice")).await;
            judge_attempt(
                attempt,
                "access",
                send_request(&world.alice, Method::POST, GRANTS, &grant("alice")).await,
            )
        })
        .await;
    account
        .step("a credential is made for alpha alone, and is seen in use", async {
            let Some(request) = request else { return nothing_asked() };
            let in_use = |object: Option<&Value>| {
                let is_true = |kind: &str| find_condition(object?, kind).filter(|(status, ..)| *status == "True");
                is_true("Ready").and(is_true("Verified")).map(|_| ())
            };
            if let Err(seen) = wait_until(requests(world), name(request), PATIENCE, in_use).await {
                return StepResult::Missing(seen);
            }
            describe_live(world, &[])
        })
        .await;
    account
        .step("the Surface deploys, with no further edit", async {
            let surface = Kind::Surface.api(&world.admin, Some("alpha"));
            if let Err(seen) = wait_until(surface, "shop", PATIENCE, is_ready).await {
                return StepResult::Missing(seen);
            }
            let is_there = |object: Option<&Value>| {
                let title = ObjectView::new(object?).read_text("/data/title").to_owned();
                (!title.is_empty()).then(|| format!("ConfigMap web says: {title}"))
            };
            let deployed = Kind::ConfigMap.api(&world.admin, Some("alpha"));
            see(wait_until(deployed, "web", PATIENCE, is_there).await)
        })
        .await;
}

/// The credential leaks.
pub(super) async fn leak(world: &World, request: Option<&FluxAccessRequest>, account: &mut Transcript) {
    account.chapter("A laptop is stolen");
    account.print_text("Two replacements are ten minutes apart: the demo makes the record an hour older.");
    account
        .step(
            "alice orders a new one: it is in use, and the old one is dead at the host",
            async {
                let Some(request) = request else { return nothing_asked() };
                let before: Vec<u64> = world.forge.live().iter().map(|live| live.id).collect();
                let path = format!("{REQUESTS}/{}", name(request));
                // A host's list from before the credential may seem to show that the credential was revoked, since the record now looks older. Then the controllers
                // first make another credential, and the owner orders again.
                for _ in 0..3 {
                    let generation = match make_older(world, &path).await {
                        Ok(generation) => generation,
                        Err(seen) => return StepResult::Missing(seen),
                    };
                    let order = RotationOrder {
                        namespace: None,
                        by: "alice".to_owned(),
                        at: Timestamp::now(),
                        is_leak: true,
                        cause: "a laptop was stolen".to_owned(),
                    };
                    let (key, value) = order.write();
                    let patch = json!({ "metadata": { "annotations": { key: value } } });
                    match send_request(&world.alice, Method::PATCH, &path, &patch).await {
                        Ok(answer) if answer.is_done() => {}
                        Ok(answer) => return StepResult::Missing(answer.describe()),
                        Err(error) => return StepResult::Missing(error),
                    }
                    let is_over = |object: Option<&Value>| {
                        let request: FluxAccessRequest = serde_json::from_value(object?.clone()).ok()?;
                        let ledgers = &request.status.as_ref()?.credentials;
                        if !order.is_open(&request) {
                            return ledgers.iter().all(|ledger| ledger.retiring.is_empty()).then_some(true);
                        }
                        let is_another = ledgers.first()?.generation != generation;
                        (is_another && ledgers.iter().all(|ledger| ledger.next.is_none())).then_some(false)
                    };
                    match wait_until(requests(world), name(request), PATIENCE, is_over).await {
                        Ok(true) => return describe_live(world, &before),
                        Ok(false) => {}
                        Err(seen) => return StepResult::Missing(seen),
                    }
                }
                StepResult::Missing("it was replaced again and again".to_owned())
            },
        )
        .await;
}

/// The owner revokes the credential.
pub(super) async fn revoke(world: &World, request: Option<&FluxAccessRequest>, account: &mut Transcript) {
    account.chapter("The owner takes it back");
    account
        .step(
            "alice deletes her grant: the Secret goes, and nothing lives at the host",
            async {
                let Some(request) = request else { return nothing_asked() };
                match send_request(&world.alice, Method::DELETE, &format!("{GRANTS}/alice"), &Value::Null).await {
                    Ok(answer) if answer.is_done() => {}
                    Ok(answer) => return StepResult::Missing(answer.describe()),
                    Err(error) => return StepResult::Missing(error),
                }
                let gone = |object: Option<&Value>| object.is_none().then_some(());
                let secret = Kind::Secret.api(&world.admin, Some("alpha"));
                if let Err(seen) = wait_until(secret, DEFAULT_SECRET_NAME, PATIENCE, gone).await {
                    return StepResult::Missing(format!("the Secret is still there: {seen}"));
                }
                let over = |object: Option<&Value>| {
                    let request: FluxAccessRequest = serde_json::from_value(object?.clone()).ok()?;
                    request.status?.credentials.is_empty().then_some(())
                };
                if let Err(seen) = wait_until(requests(world), name(request), PATIENCE, over).await {
                    return StepResult::Missing(seen);
                }
                match world.forge.live().as_slice() {
                    [] => StepResult::Held("Secret and token are gone; what was deployed runs on".to_owned()),
                    live => StepResult::Missing(format!("these live on: {live:?}")),
                }
            },
        )
        .await;
}

fn requests(world: &World) -> kube::Api<kube::api::DynamicObject> {
    Kind::FluxAccessRequest.api(&world.admin, Some(PLATFORM))
}

fn name(request: &FluxAccessRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

fn nothing_asked() -> StepResult {
    StepResult::Missing("nothing was asked for".to_owned())
}

fn see(seen: Result<String, String>) -> StepResult {
    match seen {
        Ok(message) => StepResult::Held(message),
        Err(problem) => StepResult::Missing(problem),
    }
}

/// Checks that exactly one credential is valid at the host: a read token that was used, and none of the earlier ones.
fn describe_live(world: &World, before: &[u64]) -> StepResult {
    let live = world.forge.live();
    match live.as_slice() {
        [one] if !one.may_write && one.last_used_at.is_some() && !before.contains(&one.id) => {
            StepResult::Held(format!(
                "at the host lives deploy token {} alone, {}, for reading; it has cloned",
                one.id, one.name
            ))
        }
        _ => StepResult::Missing(format!("at the host: {live:?}")),
    }
}

fn describe_grant(world: &World, request: &FluxAccessRequest, by: &str) -> Value {
    json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessGrant", "metadata": { "name": by, "namespace": PLATFORM },
        "spec": {
            "requestRef": { "name": name(request), "uid": request.metadata.uid }, "target": world.target(),
            "specHash": request.spec.spec_hash, "requestedBy": request.spec.requested_by,
            "decision": "Approved", "approvedBy": by, "reason": "our own deployment"
        }
    })
}

/// Makes the recorded times of the credentials an hour older, and retries after a concurrent write. Returns the generation.
async fn make_older(world: &World, path: &str) -> Result<u64, String> {
    let mut last_answer = String::new();
    for _ in 0..10 {
        let answer = try_to_make_older(world, path).await?;
        if answer.is_done() {
            let ledger = ObjectView::new(&answer.object).list_views("/status/credentials").next();
            let generation = ledger.and_then(|ledger| ledger.find_number("/generation"));
            return generation
                .and_then(|generation| u64::try_from(generation).ok())
                .ok_or_else(|| "there is no ledger".to_owned());
        }
        last_answer = answer.describe();
        if answer.code != 409 {
            break;
        }
    }
    Err(last_answer)
}

async fn try_to_make_older(world: &World, path: &str) -> Result<Answer, String> {
    let read = send_request(&world.admin, Method::GET, path, &Value::Null).await?;
    let mut credentials = read.object.pointer("/status/credentials").cloned().unwrap_or_default();
    for ledger in credentials.as_array_mut().into_iter().flatten() {
        let begun = ledger.pointer_mut("/current/begunAt");
        let Some(begun) = begun else { continue };
        let at: Option<Timestamp> = begun.as_str().and_then(|at| at.parse().ok());
        let earlier = at.and_then(|at| at.checked_sub(SignedDuration::from_hours(1)).ok());
        *begun = json!(earlier.ok_or("the ledger has no time")?.to_string());
    }
    let version = read.object.pointer("/metadata/resourceVersion");
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "credentials": credentials } });
    send_request(&world.admin, Method::PATCH, &format!("{path}/status"), &patch).await
}
