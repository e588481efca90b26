//! The second story: the rules for writes, chapter by chapter. Each step is a request as a user, with the API server's answer. An attempt counts as denied only if its
//! control succeeded.

use futures::future::join_all;
use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{ALLOW_DELETION, KUSTOMIZE_CONTROLLER};

use super::transcript::{StepResult, Transcript};
use super::watch::{Kind, PATIENCE, find_manager_of_replicas, is_refused, wait_until};
use super::world::{Edit, World};
use crate::api_answers::{Answer, send_request};

/// The number of namespaces that alpha may have from the second chapter on; it has three then.
const QUOTA: i64 = 5;
/// The number of namespaces that its owner creates at once.
const AT_ONCE: usize = 10;

async fn make_namespace(client: &kube::Client, name: &str, tenant: Option<&str>) -> Result<Answer, String> {
    send_request(
        client,
        Method::POST,
        "/api/v1/namespaces",
        &describe_namespace(name, tenant),
    )
    .await
}

fn describe_namespace(name: &str, tenant: Option<&str>) -> Value {
    let labels = tenant.map(|tenant| json!({ "capsule.clastix.io/tenant": tenant }));
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Judges an attempt and its control, the same request within the user's rights.
pub(super) fn judge_attempt(
    attempt: Result<Answer, String>,
    rule: &str,
    control: Result<Answer, String>,
) -> StepResult {
    match (attempt, control) {
        (Err(error), _) | (_, Err(error)) => StepResult::Missing(error),
        (Ok(attempt), _) if !attempt.is_denied_by(rule) => {
            StepResult::Missing(format!("it was not denied by {rule}: {}", attempt.describe()))
        }
        (Ok(attempt), Ok(control)) if control.is_done() => StepResult::Held(attempt.message),
        (Ok(attempt), Ok(control)) => StepResult::Missing(format!(
            "denied ({}), but the same within the rights of the tenant failed, too: {}",
            attempt.message,
            control.describe()
        )),
    }
}

/// Owners and namespaces.
pub(super) async fn owners(world: &World, alice: &kube::Client, account: &mut Transcript) {
    account.chapter("An owner makes namespaces");
    account.print_text("alice owns Tenant alpha. Outside its namespaces she may create namespaces, and nothing else.");
    account
        .step("alice makes a namespace, and it is alpha's", async {
            match make_namespace(alice, "alpha-dev", None).await {
                Ok(answer) if answer.is_done() => {}
                Ok(answer) => return StepResult::Missing(answer.describe()),
                Err(error) => return StepResult::Missing(error),
            }
            let recorded = |object: Option<&Value>| {
                let tenant = ObjectView::new(object?);
                let mut spaces = tenant.list_views("/status/spaces");
                let space = spaces.find(|space| space.read_text("/name") == "alpha-dev")?;
                Some(space.read_text("/uid").to_owned())
            };
            match wait_until(Kind::Tenant.api(&world.admin, None), "alpha", PATIENCE, recorded).await {
                Ok(uid) => StepResult::Held(format!(
                    "its label was added, and the Tenant's status has its uid {uid}"
                )),
                Err(seen) => StepResult::Missing(seen),
            }
        })
        .await;
    account
        .step(
            "alice makes one for beta: denied; one of her own succeeds (dry run)",
            async {
                let attempt = make_namespace(alice, "beta-dev", Some("beta")).await;
                let own = describe_namespace("alpha-more", Some("alpha"));
                let control = send_request(alice, Method::POST, "/api/v1/namespaces?dryRun=All", &own).await;
                judge_attempt(attempt, "namespace-membership", control)
            },
        )
        .await;
    account
        .step(
            "an administrator gives kube-system to beta: denied; another label succeeds",
            async {
                let label = |key: &str, value: &str| json!({ "metadata": { "labels": { key: value } } });
                let path = "/api/v1/namespaces/kube-system";
                let given = label("capsule.clastix.io/tenant", "beta");
                let attempt = send_request(&world.admin, Method::PATCH, path, &given).await;
                let control = send_request(&world.admin, Method::PATCH, path, &label("demo", "yes")).await;
                judge_attempt(attempt, "namespace-membership", control)
            },
        )
        .await;
}

/// A quota, and the rules for Pods.
pub(super) async fn bounds(world: &World, alice: &kube::Client, account: &mut Transcript) {
    account.chapter("What the Tenant says is kept when something is written");
    account
        .step("a commit to platform.git gives alpha a quota and a registry", async {
            let edit = Edit::Replace {
                path: "tenants/alpha/tenant.yaml",
                from: "spec:\n",
                to: "spec:\n  namespaceOptions:\n    quota: 5\n  containerRegistries:\n    allowed:\n      - registry.example\n",
            };
            let committed = world.commit(&world.platform, &[edit], "alpha: bounds").await;
            if let Err(error) = committed {
                return StepResult::Missing(error.message);
            }
            let bounded = |object: Option<&Value>| {
                let quota = ObjectView::new(object?).find_number("/spec/namespaceOptions/quota")?;
                (quota == QUOTA).then_some(())
            };
            match wait_until(Kind::Tenant.api(&world.admin, None), "alpha", PATIENCE, bounded).await {
                Ok(()) => StepResult::Held(format!("{QUOTA} namespaces, of which it has 3, and images of registry.example")),
                Err(seen) => StepResult::Missing(seen),
            }
        })
        .await;
    account
        .step("alice makes ten namespaces at once: two are made", async {
            let names: Vec<String> = (0..AT_ONCE).map(|number| format!("alpha-{number}")).collect();
            let answers = join_all(names.iter().map(|name| make_namespace(alice, name, None))).await;
            let (mut made, mut denial) = (0, String::new());
            for answer in answers {
                match answer {
                    Ok(answer) if answer.is_done() => made += 1,
                    Ok(answer) if answer.is_denied_by("namespace-options") => denial = answer.message,
                    Ok(answer) => return StepResult::Missing(answer.describe()),
                    Err(error) => return StepResult::Missing(error),
                }
            }
            match made {
                2 => StepResult::Held(denial),
                made => StepResult::Missing(format!("{made} were made")),
            }
        })
        .await;
    account
        .step(
            "alice runs an image of another registry: denied; one of its own succeeds",
            async {
                let pod = |name: &str, image: &str| {
                    json!({
                        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
                        "spec": { "containers": [{ "name": "app", "image": image }] }
                    })
                };
                let path = "/api/v1/namespaces/alpha/pods";
                let attempt =
                    send_request(alice, Method::POST, path, &pod("stranger", "elsewhere.example/miner:1")).await;
                let control = send_request(alice, Method::POST, path, &pod("known", "registry.example/tool:1")).await;
                judge_attempt(attempt, "container-registries", control)
            },
        )
        .await;
}

/// Hand edits of Git-managed fields.
pub(super) async fn hand_edits(world: &World, alice: &kube::Client, account: &mut Transcript) {
    account.chapter("An owner edits what Git manages");
    let edit = async |replicas: i64| {
        let path = "/apis/apps/v1/namespaces/alpha/deployments/shop?fieldManager=kubectl-edit";
        send_request(alice, Method::PATCH, path, &json!({ "spec": { "replicas": replicas } })).await
    };
    account
        .step("alice scales the shop, and is told where that belongs", async {
            match edit(7).await {
                Ok(answer) if answer.is_done() => {
                    let mut warnings = answer.warnings.into_iter();
                    match warnings.find(|warning| warning.ends_with("(git-managed)")) {
                        Some(warning) => StepResult::Held(warning),
                        None => StepResult::Missing("nobody told her".into()),
                    }
                }
                Ok(answer) => StepResult::Missing(answer.describe()),
                Err(error) => StepResult::Missing(error),
            }
        })
        .await;
    // Her edit made the field hers: until Tenure applies it again, no rule knows it as Git's.
    account
        .step("it is put back, and is Git's again", async {
            let restored = |object: Option<&Value>| {
                let replicas = ObjectView::new(object?).find_number("/spec/replicas")?;
                (find_manager_of_replicas(object?) == Some(KUSTOMIZE_CONTROLLER)).then_some(replicas)
            };
            let shop = Kind::Deployment.api(&world.admin, Some("alpha"));
            match wait_until(shop, "shop", PATIENCE, restored).await {
                Ok(replicas) => StepResult::Held(format!(".spec.replicas is {replicas}, applied by Tenure")),
                Err(seen) => StepResult::Missing(seen),
            }
        })
        .await;
    account
        .step(
            "the platform has such edits refused: denied; what Git doesn't say succeeds",
            async {
                let edits = [Edit::Replace {
                    path: "tenants/alpha/surface.yaml",
                    from: "  namespace: alpha\n",
                    to: "  namespace: alpha\n  annotations:\n    tenure.dev/hand-edits: refuse\n",
                }];
                let committed = world.commit(&world.platform, &edits, "alpha: no edits by hand").await;
                if let Err(error) = committed {
                    return StepResult::Missing(error.message);
                }
                let refuses = |object: Option<&Value>| {
                    let annotations = object?.pointer("/metadata/annotations")?;
                    (annotations.get("tenure.dev/hand-edits")? == "refuse").then_some(())
                };
                if let Err(seen) = wait_until(
                    Kind::Surface.api(&world.admin, Some("alpha")),
                    "shop",
                    PATIENCE,
                    refuses,
                )
                .await
                {
                    return StepResult::Missing(seen);
                }
                let attempt = edit(9).await;
                let path = "/apis/apps/v1/namespaces/alpha/deployments/shop?fieldManager=kubectl-edit";
                let free = json!({ "metadata": { "annotations": { "alice": "was here" } } });
                judge_attempt(
                    attempt,
                    "git-managed",
                    send_request(alice, Method::PATCH, path, &free).await,
                )
            },
        )
        .await;
}

/// Fields of a Package that are a chart's values.
pub(super) async fn packages(world: &World, dora: &kube::Client, account: &mut Transcript) {
    account.chapter("An administrator tunes a component");
    account.print_text("dora may write Packages and PackageValues, and has no right to write as the platform's chart.");
    let packages = "/apis/cozystack.io/v1alpha1/packages";
    let package = format!("{packages}/cozystack.metallb?fieldManager=kubectl-edit");
    account
        .step("the platform's chart makes Package cozystack.metallb", async {
            for (path, object) in [
                (format!("{packages}?fieldManager=helm-controller"), describe_package()),
                (
                    "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
                    describe_tuner(),
                ),
                (
                    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
                    describe_tuners(),
                ),
            ] {
                match send_request(&world.admin, Method::POST, &path, &object).await {
                    Ok(answer) if answer.is_done() => {}
                    Ok(answer) => return StepResult::Missing(answer.describe()),
                    Err(error) => return StepResult::Missing(error),
                }
            }
            StepResult::Held("variant default, with two replicas of its controller".into())
        })
        .await;
    account
        .step(
            "dora claims its variant: denied; values of her own beside it succeed",
            async {
                let claim = json!({ "spec": { "variant": "oidc" } });
                let attempt = send_request(dora, Method::PATCH, &package, &claim).await;
                let values = json!({ "controller": { "replicas": 3 } });
                let own = json!({ "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageValues", "metadata": { "name": "cozystack.metallb" },
                    "spec": { "components": { "metallb": { "values": values } } } });
                let path = "/apis/cozystack.io/v1alpha1/packagevalues";
                judge_attempt(attempt, "field-ownership", send_request(dora, Method::POST, path, &own).await)
            },
        )
        .await;
    account
        .step(
            "dora clears the record of the field's owner: denied; a value that no chart has succeeds",
            async {
                let forget = json!({ "metadata": { "managedFields": [{}] } });
                let attempt = send_request(dora, Method::PATCH, &package, &forget).await;
                let values = json!({ "speaker": { "logLevel": "debug" } });
                let free = json!({ "spec": { "components": { "metallb": { "values": values } } } });
                judge_attempt(
                    attempt,
                    "field-ownership",
                    send_request(dora, Method::PATCH, &package, &free).await,
                )
            },
        )
        .await;
}

fn describe_package() -> Value {
    let values = json!({ "controller": { "replicas": 2 } });
    json!({ "apiVersion": "cozystack.io/v1alpha1", "kind": "Package",
        "metadata": { "name": "cozystack.metallb", "annotations": { "helm.sh/resource-policy": "keep" } },
        "spec": { "variant": "default", "components": { "metallb": { "values": values } } } })
}

/// Returns dora's role.
fn describe_tuner() -> Value {
    let verbs = ["get", "list", "create", "update", "patch"];
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "demo-tuner" },
        "rules": [{ "apiGroups": ["cozystack.io"], "resources": ["packages", "packagevalues"], "verbs": verbs }] })
}

fn describe_tuners() -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "demo-tuner" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "demo-tuner" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "dora" }] })
}

/// A Tenant is removed.
pub(super) async fn departure(world: &World, account: &mut Transcript) {
    account.chapter("A tenant leaves");
    let kustomizations = || Kind::Kustomization.api(&world.admin, Some("tenure-system"));
    let mut confirmation = None;
    account
        .step(
            "a commit removes tenant beta, and is asked whether that is meant",
            async {
                let edit = Edit::Replace {
                    path: "tenants/kustomization.yaml",
                    from: "  - beta\n",
                    to: "",
                };
                let committed = world.commit(&world.platform, &[edit], "tenants: beta leaves").await;
                if let Err(error) = committed {
                    return StepResult::Missing(error.message);
                }
                let guarded = |object: Option<&Value>| {
                    is_refused(object).filter(|message| message.starts_with("DeletionGuarded"))
                };
                match wait_until(kustomizations(), "platform-platform", PATIENCE, guarded).await {
                    Ok(message) => {
                        confirmation = read_confirmation(&message);
                        StepResult::Held(message)
                    }
                    Err(seen) => StepResult::Missing(seen),
                }
            },
        )
        .await;
    account
        .step(
            "once it is: beta's GitOps ends, its namespace goes, and then its Tenant",
            async {
                let Some(digest) = confirmation else {
                    return StepResult::Missing("no message said how to confirm it".into());
                };
                let patch = json!({ "metadata": { "annotations": { ALLOW_DELETION: digest } } });
                let confirmed = kustomizations()
                    .patch("platform-platform", &PatchParams::default(), &Patch::Merge(&patch))
                    .await;
                if let Err(error) = confirmed {
                    return StepResult::Missing(error.to_string());
                }
                let gone = |object: Option<&Value>| object.is_none().then_some(());
                for (kind, what) in [(Kind::Tenant, "Tenant"), (Kind::Namespace, "namespace")] {
                    if let Err(seen) = wait_until(kind.api(&world.admin, None), "beta", PATIENCE, gone).await {
                        return StepResult::Missing(format!("{what} beta is still there: {seen}"));
                    }
                }
                StepResult::Held("Tenant beta and namespace beta are gone".into())
            },
        )
        .await;
}

/// Reads the confirmation of a deletion from the message that asks for it.
fn read_confirmation(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(&format!("{ALLOW_DELETION}="))?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmation_is_read_from_requesting_message() {
        let asks =
            "If they are to go: kubectl annotate kustomization a --overwrite tenure.dev/allow-deletion=sha256:0a1b";
        assert_eq!(read_confirmation(asks).as_deref(), Some("sha256:0a1b"));
        assert_eq!(read_confirmation("nothing"), None);
    }

    #[test]
    fn denial_for_another_reason_does_not_count() {
        let answer = |code: u16, message: &str| {
            Ok(Answer {
                code,
                message: message.to_owned(),
                warnings: Vec::new(),
                object: Value::Null,
            })
        };
        let held = |seen: StepResult| matches!(seen, StepResult::Held(_));
        assert!(held(judge_attempt(
            answer(403, "no: leave it (tenant)"),
            "tenant",
            answer(201, "")
        )));
        assert!(!held(judge_attempt(
            answer(403, "no (cordoned)"),
            "tenant",
            answer(201, "")
        )));
        assert!(!held(judge_attempt(answer(201, ""), "tenant", answer(201, ""))));
        assert!(!held(judge_attempt(
            answer(403, "no (tenant)"),
            "tenant",
            answer(403, "no rights")
        )));
    }
}
