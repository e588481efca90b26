//! The story, chapter by chapter. Each function changes Git, or the cluster as some user, and reports the observed effect. All changes go through commits and the API.

use std::time::Instant;

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::ObjectView;

use super::escapes::{self, Escape};
use super::transcript::{StepResult, Transcript, format_seconds};
use super::watch::{Kind, PATIENCE, find_condition, find_manager_of_replicas, is_ready, is_refused, wait_until};
use super::world::{Edit, World};

/// The timeout for the refusal of an attempt.
const REFUSAL: std::time::Duration = PATIENCE;

fn report_seen(result: Result<String, String>) -> StepResult {
    match result {
        Ok(text) => StepResult::Held(text),
        Err(text) => StepResult::Missing(text),
    }
}

/// Returns whether a Surface is ready, with its identity.
fn surface_is_ready(object: Option<&Value>) -> Option<String> {
    let message = is_ready(object)?;
    let status = |field: &str| {
        object
            .and_then(|object| ObjectView::new(object).find_text(&format!("/status/{field}")))
            .unwrap_or("?")
    };
    Some(format!("{} tier, as {}: {message}", status("tier"), status("identity")))
}

/// 1. An administrator's repository makes two tenants.
pub(super) async fn platform(world: &World, account: &mut Transcript) {
    account.chapter("The platform: an administrator's repository makes two tenants");
    account.print_text(
        "The administrator gives one ServiceAccount of tenure-system the rights of an administrator, and a Surface there\n\
         the repository platform.git. From now on the platform is what that repository says.",
    );
    account
        .step("the platform's Surface is reconciled", async {
            if let Err(error) = world.create_platform_surface().await {
                return StepResult::Missing(error.message);
            }
            report_seen(
                wait_until(
                    Kind::Surface.api(&world.admin, Some("tenure-system")),
                    "platform",
                    PATIENCE,
                    surface_is_ready,
                )
                .await,
            )
        })
        .await;
    for (tenant, namespaces) in [("alpha", 2), ("beta", 1)] {
        account
            .step(
                &format!("tenant {tenant} has its namespaces, ServiceAccount and RoleBindings"),
                async {
                    let api = Kind::Tenant.api(&world.admin, None);
                    let owned = |object: Option<&Value>| {
                        let names: Vec<&str> = ObjectView::new(object?).list_texts("/status/namespaces").collect();
                        (names.len() == namespaces).then(|| format!("namespaces: {}", names.join(", ")))
                    };
                    report_seen(wait_until(api, tenant, PATIENCE, owned).await)
                },
            )
            .await;
    }
}

/// 2. Two tenants' repositories become applications.
pub(super) async fn applications(world: &World, account: &mut Transcript) {
    account.chapter("The tenants: each repository is applied as its own tenant's ServiceAccount");
    for (tenant, surface) in [("alpha", "shop"), ("beta", "site")] {
        account
            .step(&format!("{tenant}'s Surface {surface} is reconciled"), async {
                report_seen(
                    wait_until(
                        Kind::Surface.api(&world.admin, Some(tenant)),
                        surface,
                        PATIENCE,
                        surface_is_ready,
                    )
                    .await,
                )
            })
            .await;
    }
    for (namespace, name, replicas) in [
        ("alpha", "shop", 3),
        ("alpha-staging", "shop", 1),
        ("beta", "prod-site", 2),
    ] {
        account
            .step(
                &format!("Deployment {name} runs in {namespace} as its overlay says"),
                async {
                    let as_wanted = |object: Option<&Value>| {
                        let object = object?;
                        let found = ObjectView::new(object).find_number("/spec/replicas")?;
                        (found == replicas).then(|| format!("{found} replicas of {}", read_image(object)))
                    };
                    report_seen(
                        wait_until(
                            Kind::Deployment.api(&world.admin, Some(namespace)),
                            name,
                            PATIENCE,
                            as_wanted,
                        )
                        .await,
                    )
                },
            )
            .await;
    }
}

fn read_image(deployment: &Value) -> &str {
    ObjectView::new(deployment)
        .find_text("/spec/template/spec/containers/0/image")
        .unwrap_or("no image")
}

/// 3. A commit changes an image.
pub(super) async fn image_change(world: &World, account: &mut Transcript) {
    account.chapter("A commit changes an image");
    account
        .step("alpha pushes shop 1.2.0, and the cluster follows", async {
            let started = Instant::now();
            let edit = Edit::Replace {
                path: "overlays/production/kustomization.yaml",
                from: "1.1.0",
                to: "1.2.0",
            };
            let commit = match world.commit(&world.alpha, &[edit], "shop: 1.2.0").await {
                Ok(commit) => commit,
                Err(error) => return StepResult::Missing(error.message),
            };
            let follows = |object: Option<&Value>| read_image(object?).ends_with(":1.2.0").then_some(());
            let answer = wait_until(
                Kind::Deployment.api(&world.admin, Some("alpha")),
                "shop",
                PATIENCE,
                follows,
            )
            .await;
            let short = commit.get(..8).unwrap_or(&commit).to_owned();
            report_seen(answer.map(|()| {
                format!(
                    "commit {short} was applied {} after the push; sources are asked every 2 s",
                    format_seconds(started.elapsed())
                )
            }))
        })
        .await;
}

/// 4. A user edits a Deployment by hand.
pub(super) async fn drift(world: &World, account: &mut Transcript) {
    account.chapter("Somebody edits a Deployment by hand");
    account
        .step("the edit is put back", async {
            let api = Kind::Deployment.api(&world.admin, Some("alpha"));
            let parameters = PatchParams {
                field_manager: Some("kubectl-edit".into()),
                ..PatchParams::default()
            };
            let patch = json!({"spec": {"replicas": 7}});
            let started = Instant::now();
            let edited = match api.patch("shop", &parameters, &Patch::Merge(&patch)).await {
                Ok(edited) => edited,
                Err(error) => return StepResult::Missing(error.to_string()),
            };
            let edited = serde_json::to_value(edited).unwrap_or_default();
            let editor = find_manager_of_replicas(&edited).unwrap_or("nobody").to_owned();
            let back = |object: Option<&Value>| {
                let object = object?;
                let found = ObjectView::new(object).find_number("/spec/replicas")?;
                (found == 3).then(|| find_manager_of_replicas(object).unwrap_or("nobody").to_owned())
            };
            let answer = wait_until(api.clone(), "shop", PATIENCE, back).await;
            report_seen(answer.map(|owner| {
                format!(
                    ".spec.replicas went 3 → 7 by {editor:?}, and back to 3 by {owner:?} {} later",
                    format_seconds(started.elapsed())
                )
            }))
        })
        .await;
}

/// 5. Tenant evil tries to get out.
pub(super) async fn escapes(world: &World, account: &mut Transcript) {
    account.chapter("Tenant evil tries to step outside");
    account.print_text(
        "A commit to platform.git onboards a third tenant, whose owner mallory may also write Flux's kinds and surfaces.\n\
         Every attempt comes with a control, the same thing inside evil's rights. The reason is what evil's owner reads.",
    );
    account
        .step(
            "tenant evil is onboarded by a commit, and its application runs",
            async {
                let edits = [
                    Edit::Add(super::files::PLATFORM_EVIL),
                    Edit::Replace {
                        path: "tenants/kustomization.yaml",
                        from: "  - beta\n",
                        to: "  - beta\n  - evil\n",
                    },
                ];
                if let Err(error) = world.commit(&world.platform, &edits, "tenants: onboard evil").await {
                    return StepResult::Missing(error.message);
                }
                report_seen(
                    wait_until(
                        Kind::Surface.api(&world.admin, Some("evil")),
                        "app",
                        PATIENCE,
                        surface_is_ready,
                    )
                    .await,
                )
            },
        )
        .await;
    for escape in escapes::list_escapes(&world.git_address) {
        let what = format!("evil tries to {}: denied; the control succeeds", escape.what);
        account.step(&what, attempt(world, &escape)).await;
    }
}

async fn attempt(world: &World, escape: &Escape) -> StepResult {
    let control = format!("{}-control", escape.name);
    let mut refused = None;
    for (name, spec) in [(escape.name, &escape.attempt), (control.as_str(), &escape.control)] {
        let (api_version, kind) = escape.kind.types();
        let manifest = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "evil"}, "spec": spec});
        let created = match serde_json::from_value(manifest) {
            Ok(object) => {
                escape
                    .kind
                    .api(&world.mallory, Some("evil"))
                    .create(&PostParams::default(), &object)
                    .await
            }
            Err(error) => return StepResult::Missing(error.to_string()),
        };
        match created {
            Ok(_) => {}
            // The write is denied. The control has the same kind, so the denial is not due to missing rights.
            Err(kube::Error::Api(status)) if status.code == 403 && name == escape.name => {
                refused = Some(format!("{}: {}", status.reason, status.message));
            }
            Err(error) => return StepResult::Missing(format!("mallory could not even create {name}: {error}")),
        }
    }
    // The reason is read with mallory's own rights, because a reason must be readable by its owner.
    let api = || escape.kind.api(&world.mallory, Some("evil"));
    let reason = match refused {
        Some(reason) => reason,
        None => match wait_until(api(), escape.name, REFUSAL, is_refused).await {
            Ok(reason) => reason,
            Err(seen) => return StepResult::Missing(format!("the attempt was not refused: {seen}")),
        },
    };
    if let Err(seen) = wait_until(api(), &control, PATIENCE, is_ready).await {
        return StepResult::Missing(format!(
            "denied ({reason}), but the same within the rights of the tenant failed, too: {seen}"
        ));
    }
    if let Some(harm) = &escape.harm {
        match harm.kind.api(&world.admin, harm.namespace).get_opt(harm.name).await {
            Ok(None) => {}
            Ok(Some(_)) => return StepResult::Missing(format!("{} exists: the denial is only words", harm.name)),
            Err(error) => return StepResult::Missing(error.to_string()),
        }
    }
    StepResult::Held(reason)
}

/// 6. A removal from Git, and the removal of a Surface.
pub(super) async fn removal(world: &World, account: &mut Transcript) {
    account.chapter("Things are removed from Git");
    account
        .step("alpha removes a file: its object is pruned, nothing else", async {
            let edits = [
                Edit::Remove("overlays/production/banner.yaml"),
                Edit::Replace {
                    path: "overlays/production/kustomization.yaml",
                    from: "  - banner.yaml\n",
                    to: "",
                },
            ];
            if let Err(error) = world.commit(&world.alpha, &edits, "the sale is over").await {
                return StepResult::Missing(error.message);
            }
            let gone = |object: Option<&Value>| object.is_none().then_some(());
            if let Err(seen) = wait_until(
                Kind::ConfigMap.api(&world.admin, Some("alpha")),
                "banner",
                PATIENCE,
                gone,
            )
            .await
            {
                return StepResult::Missing(seen);
            }
            match Kind::Service.api(&world.admin, Some("alpha")).get_opt("shop").await {
                Ok(Some(_)) => StepResult::Held(
                    "ConfigMap banner is gone; Service shop, which was applied with it, is there".into(),
                ),
                Ok(None) => StepResult::Missing("Service shop is gone too".into()),
                Err(error) => StepResult::Missing(error.to_string()),
            }
        })
        .await;
    account
        .step(
            "the platform removes alpha's Surface: alpha's applications keep running",
            async {
                let edits = [
                    Edit::Remove("tenants/alpha/surface.yaml"),
                    Edit::Replace {
                        path: "tenants/alpha/kustomization.yaml",
                        from: "  - surface.yaml\n",
                        to: "",
                    },
                ];
                if let Err(error) = world.commit(&world.platform, &edits, "alpha: no GitOps for now").await {
                    return StepResult::Missing(error.message);
                }
                let gone = |object: Option<&Value>| object.is_none().then_some(());
                for (kind, name) in [
                    (Kind::Surface, "shop"),
                    (Kind::Kustomization, "shop-shop-production"),
                    (Kind::GitRepository, "shop-shop"),
                ] {
                    if let Err(seen) = wait_until(kind.api(&world.admin, Some("alpha")), name, PATIENCE, gone).await {
                        return StepResult::Missing(format!("still there: {seen}"));
                    }
                }
                for namespace in ["alpha", "alpha-staging"] {
                    match Kind::Deployment
                        .api(&world.admin, Some(namespace))
                        .get_opt("shop")
                        .await
                    {
                        Ok(Some(_)) => {}
                        Ok(None) => {
                            return StepResult::Missing(format!(
                                "Deployment shop of {namespace} was deleted with the Surface"
                            ));
                        }
                        Err(error) => return StepResult::Missing(error.to_string()),
                    }
                }
                StepResult::Held(
                    "Surface, GitRepository and Kustomizations are gone; both Deployments are there".into(),
                )
            },
        )
        .await;
}

/// Watches beta's production Kustomization and reports applied pushes, for a user who tries it.
pub(super) async fn report_pushes(world: &World, account: &Transcript) {
    let api = Kind::Kustomization.api(&world.admin, Some("beta"));
    let mut last: Option<String> = None;
    let forever = std::time::Duration::from_secs(60 * 60 * 24 * 365);
    let _never = wait_until(api, "site-site", forever, |object| {
        let object = object?;
        let (status, reason, message) = find_condition(object, "Ready")?;
        let attempted = ObjectView::new(object).read_text("/status/lastAttemptedRevision");
        let now = format!("{attempted} {status} {reason} {message}");
        if status != "Unknown" && last.as_ref().is_some_and(|last| *last != now) {
            account.print_text(&format!("beta.git {attempted}: {reason}: {message}"));
        }
        if status != "Unknown" {
            last = Some(now);
        }
        None::<()>
    })
    .await;
}
