//! What is put into the embedded control plane at every start, and the controllers on top of it. Owns no list of its
//! own: the objects are `tenure_api::installation`, and the controllers choose nothing that is not in their Config.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_apiserver::Server;
use tenure_cluster::{Connection, Installation, Token};
use tenure_controllers::{Budgets, Guards, RenderLimits};
use tenure_sources::Endpoint;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, chain};

/// The field manager of what an installation applies.
const FIELD_MANAGER: &str = "tenure";

/// How long a token of the controller is good for.
const TOKEN_SECONDS: i64 = 3600;

/// What sources may reach although it is denied by default.
pub(crate) struct Allowed {
    /// Sources of any namespace.
    pub(crate) everybody: Vec<Endpoint>,
    /// Sources of the platform namespace, besides.
    pub(crate) platform: Vec<Endpoint>,
}

/// Reads what an administrator allows sources to reach.
pub(crate) fn allowances(texts: &[String]) -> Result<Vec<Endpoint>, Failure> {
    let parse = |text: &String| {
        text.parse().map_err(|error| {
            Failure::usage(format!("--allow-source: {error}"))
                .hint("an allowance is exact: scheme, host and port, such as http://127.0.0.1:3000")
        })
    };
    texts.iter().map(parse).collect()
}

/// Reads who acts by default, by namespace.
pub(crate) fn default_service_accounts(texts: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let parse = |text: &String| match text.split_once('=') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(
            Failure::usage(format!("--default-service-account {text:?}: NAMESPACE=NAME is wanted"))
                .hint("such as tenure-system=platform-gitops"),
        ),
    };
    texts.iter().map(parse).collect()
}

/// Applies everything that an installation consists of; what is as it should be is not written again. What is in a
/// namespace comes after the namespaces; beyond that there is no order, and what is written together is on disk together.
pub(crate) async fn apply(installation: &Installation) -> Result<(), Failure> {
    let objects = tenure_api::installation::objects().map_err(|error| Failure::internal(chain(&error)))?;
    let (inside, outside): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| ObjectView::of(object).has("/metadata/namespace"));
    for objects in [outside, inside] {
        // Tasks of their own: a start is work for every core.
        let tasks = objects.into_iter().map(|object| {
            let installation = installation.clone();
            tokio::spawn(async move { apply_one(&installation, &object).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|error| Failure::internal(error.to_string()))??;
        }
    }
    Ok(())
}

async fn apply_one(installation: &Installation, object: &Value) -> Result<(), Failure> {
    let applied = installation.apply(&path(object)?, FIELD_MANAGER, object).await;
    applied.map_err(|error| {
        let failure = Failure::from(error);
        Failure::internal(format!("{} can't be installed: {}", name(object), failure.message))
    })
}

fn name(object: &Value) -> String {
    let text = |path: &str| ObjectView::of(object).read_text(path);
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Where an object of the installation is written to. The kinds are few and known, so nothing has to be discovered.
fn path(object: &Value) -> Result<String, Failure> {
    let text = |path: &str| ObjectView::of(object).read_text(path);
    let collection = match text("/kind") {
        "CustomResourceDefinition" => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        "Namespace" => "/api/v1/namespaces".to_owned(),
        "ServiceAccount" => format!("/api/v1/namespaces/{}/serviceaccounts", text("/metadata/namespace")),
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        other => return Err(Failure::internal(format!("an installation has no {other}"))),
    };
    Ok(format!("{collection}/{}", text("/metadata/name")))
}

/// Starts the controllers as their own ServiceAccount, through the server's service in this process.
pub(crate) fn start_controllers(
    server: &Server,
    data: &Path,
    allowed: Allowed,
    defaults: BTreeMap<String, String>,
    (guards, budgets, rendering): (Guards, Budgets, RenderLimits),
    shutdown: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let namespace = tenure_api::metadata::PLATFORM_NAMESPACE;
    let account = tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;
    let issue = {
        let server = server.clone();
        move || {
            let token = server.service_account_token(namespace, account, TOKEN_SECONDS);
            token
                .map(|token| Token::new(token, None))
                .map_err(|error| format!("no token for {namespace}/{account}: {error}"))
        }
    };
    // The next ones come from there, too: a request for one needs one that is good, and after a jump of the clock there is none.
    let connection = Connection::in_process(server.service(), issue().map_err(Failure::internal)?).issued_by(issue);
    let health = connection.health();
    server.add_ready_check("controllers", move || health.is_good());
    let mut config = tenure_controllers::Config::new(connection, data.join("artifacts"));
    config.platform_sources.allow.clone_from(&allowed.everybody);
    config.platform_sources.allow.extend(allowed.platform);
    config.tenant_sources.allow = allowed.everybody;
    config.settings.default_service_accounts = defaults;
    config.guards = guards;
    config.budgets = budgets;
    config.rendering = rendering;
    Ok(tokio::spawn(async move {
        if let Err(error) = tenure_controllers::run(config, shutdown).await {
            tracing::error!(error = chain(&error), "the controllers ended");
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_installation_has_a_place() {
        for object in tenure_api::installation::objects().expect("objects") {
            path(&object).expect("a path");
        }
    }

    #[test]
    fn an_allowance_is_exact() {
        for (text, ok) in [
            ("http://127.0.0.1:3000", true),
            ("ssh://git.example", true),
            ("git.example", false),
            ("http://git.example/path", false),
        ] {
            assert_eq!(allowances(&[text.to_owned()]).is_ok(), ok, "{text}");
        }
    }
}
