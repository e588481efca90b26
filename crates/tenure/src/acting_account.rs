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
    let is_allowed = match describe_impersonation(&config) {
        None => true,
        Some(_) => {
            let question = Question {
                verb: "impersonate",
                group: "",
                resource: "serviceaccounts",
                namespace: account.namespace(),
                name: account.name(),
            };
            caller::has_right(client, &question).await?
        }
    };
    let refused = if is_allowed {
        let mut acting = config.clone();
        clear_impersonation(&mut acting);
        acting.auth_info.impersonate = Some(account.to_string());
        match ask_who(&acting).await {
            Ok(user) if user == account.to_string() => return Ok(acting),
            Ok(user) => format!("the API server authenticates them as {user}"),
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

/// Describes the user that a kubeconfig impersonates (`as`, `as-groups`, `as-uid`, `as-user-extra`), if it does.
pub(crate) fn describe_impersonation(config: &kube::Config) -> Option<String> {
    let who = &config.auth_info;
    let mut parts: Vec<String> = who.impersonate.iter().map(|user| format!("user {user}")).collect();
    let groups = who.impersonate_groups.as_deref().unwrap_or_default();
    parts.extend(groups.iter().map(|group| format!("group {group}")));
    parts.extend(who.impersonate_uid.iter().map(|uid| format!("uid {uid}")));
    let extra = who.impersonate_user_extra.iter().flatten();
    parts.extend(extra.map(|(key, _)| format!("extra {key}")));
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn clear_impersonation(config: &mut kube::Config) {
    let who = &mut config.auth_info;
    (who.impersonate, who.impersonate_groups, who.impersonate_uid) = (None, None, None);
    who.impersonate_user_extra = None;
}

/// Refuses a kubeconfig that impersonates a user, for a command that has to impersonate others: it would act with the rights of the user behind the kubeconfig.
pub(crate) fn refuse_impersonation(config: &kube::Config, command: &str) -> Result<(), Failure> {
    let Some(user) = describe_impersonation(config) else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "{command} has to impersonate other accounts, and the requests impersonate {user} already (as and as-groups of the kubeconfig)"
    ))
    .hint("use a context whose user impersonates no account: --context NAME, or --kubeconfig FILE"))
}

/// Returns a configuration for an account by a new token, and never by impersonation.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(auth: serde_json::Value) -> kube::Config {
        let mut config = kube::Config::new("https://127.0.0.1:6443".parse().expect("an address"));
        config.auth_info = serde_json::from_value(auth).expect("an AuthInfo");
        config
    }

    #[test]
    fn every_form_of_impersonation_is_recognised() {
        for (auth, expected) in [
            (json!({"token": "t"}), None),
            (json!({"as-groups": []}), None),
            (json!({"as": "alice"}), Some("user alice")),
            (
                json!({"as": "alice", "as-groups": ["one", "two"]}),
                Some("user alice, group one, group two"),
            ),
            (json!({"as-uid": "u"}), Some("uid u")),
            (json!({"as-user-extra": {"scopes": ["s"]}}), Some("extra scopes")),
        ] {
            let mut config = config(auth.clone());
            assert_eq!(describe_impersonation(&config).as_deref(), expected, "{auth}");
            assert_eq!(
                refuse_impersonation(&config, "attest").is_err(),
                expected.is_some(),
                "{auth}"
            );
            clear_impersonation(&mut config);
            assert_eq!(describe_impersonation(&config), None, "{auth}");
        }
    }
}
