//! Acts as a ServiceAccount whose rights are examined: by impersonation, or else by a token of the account. If the user has neither right, the command fails and names
//! the rights. It never acts as another identity.

use k8s_openapi::api::core::v1::ServiceAccount as StoredAccount;
use kube::api::{Api, PostParams};
use serde_json::json;
use tenure_admission_rules::Question;
use tenure_cluster::ServiceAccount;

use crate::caller;
use crate::commands::run::ask_who;
use crate::failure::Failure;

/// The lifetime of a token: the minimum of Kubernetes.
const TOKEN_SECONDS: u32 = 600;

/// Returns a configuration for an account, made from the user's configuration.
pub(crate) async fn become_account(
    config: kube::Config,
    client: &kube::Client,
    account: &ServiceAccount,
) -> Result<kube::Config, Failure> {
    let accounts: Api<StoredAccount> = Api::namespaced(client.clone(), account.namespace());
    if let Err(kube::Error::Api(status)) = accounts.get(account.name()).await
        && status.code == 404
    {
        return Err(
            Failure::environment(format!("{account} would apply, but this ServiceAccount does not exist"))
                .hint("nothing would be applied: create it, or name another one in spec.serviceAccountName"),
        );
    }
    // A kubeconfig that impersonates a user has the rights of that user alone. The user behind it may have more.
    let is_allowed = match config.auth_info.impersonate {
        None => true,
        Some(_) => {
            let question = Question {
                verb: "impersonate",
                group: "",
                resource: "serviceaccounts",
                namespace: account.namespace(),
                name: account.name(),
            };
            caller::may(client, &question).await?
        }
    };
    let refused = if is_allowed {
        let mut acting = config.clone();
        acting.auth_info.impersonate = Some(account.to_string());
        acting.auth_info.impersonate_groups = None;
        match ask_who(&acting).await {
            Ok(user) if user == account.to_string() => return Ok(acting),
            Ok(user) => format!("the API server takes them for {user}"),
            Err(failure) => failure.message,
        }
    } else {
        "the user of the kubeconfig may not impersonate it".to_owned()
    };
    by_token(config, client, account).await.map_err(|_| {
        Failure::environment(format!("you may not look as {account}: {refused}")).hint(format!(
            "in namespace {}, a Role with the verb impersonate on serviceaccounts, resourceNames [{}], or create on serviceaccounts/token allows it",
            account.namespace(),
            account.name()
        ))
    })
}

/// Returns such a configuration by a token of the account alone.
pub(crate) async fn by_token(
    mut config: kube::Config,
    client: &kube::Client,
    account: &ServiceAccount,
) -> Result<kube::Config, Failure> {
    let accounts: Api<StoredAccount> = Api::namespaced(client.clone(), account.namespace());
    let internal = |error: serde_json::Error| Failure::internal(error.to_string());
    let request = serde_json::from_value(json!({"spec": {"expirationSeconds": TOKEN_SECONDS}})).map_err(internal)?;
    let issued = accounts
        .create_token_request(account.name(), &PostParams::default(), &request)
        .await?;
    let token = issued.status.map(|status| status.token);
    let token =
        token.ok_or_else(|| Failure::environment(format!("a token of {account} was asked for and not given")))?;
    config.auth_info = serde_json::from_value(json!({"token": token})).map_err(internal)?;
    Ok(config)
}
