//! Reads and changes the ServiceAccounts that an entry names, to add the Secret to their `imagePullSecrets`. This happens as the account that writes
//! credentials, which an administrator allows to get and patch single accounts. The plan decides the change.

use tenure_api::metadata::{PLATFORM_NAMESPACE, TENURE_CONTROLLER};
use tenure_cluster::{Client, ClusterError};
use tenure_git_access::pull_secrets::{AccountChange, ObservedAccounts, read_account};
use tenure_git_access::rotation::{NamespaceState, WriteFailure};

use super::secrets::fail_as;
use super::steps::Actor;

const SERVICE_ACCOUNT: &str = "ServiceAccount";
/// The name of the Role that a message proposes.
const ROLE: &str = "tenure-pull-secrets";
/// The limit of accounts that a message names.
const NAMED_ACCOUNTS: usize = 5;

impl Actor {
    /// Reads the ServiceAccounts of a namespace that the entry names.
    pub(super) async fn look_at_accounts(&self, namespace: &str) -> ObservedAccounts {
        if self.access_hub.find_namespace(namespace) != NamespaceState::Present {
            return ObservedAccounts::Seen(Vec::new());
        }
        let client = match self.writer().await {
            Ok(client) => client,
            Err(why) => return ObservedAccounts::Unknown(why),
        };
        let mut accounts = Vec::new();
        for name in &self.request.spec.service_accounts {
            let found = async {
                let resource = client.resource("v1", SERVICE_ACCOUNT).await?;
                client.find(&resource, namespace, name).await
            };
            match found.await {
                Ok(found) => accounts.push(read_account(name, found.as_ref())),
                Err(error) => return ObservedAccounts::Unknown(self.explain_account(&client, namespace, name, &error)),
            }
        }
        ObservedAccounts::Seen(accounts)
    }

    /// Changes accounts. A failure for one account does not stop the others, and the first failure is returned.
    pub(super) async fn change_accounts(&self, namespace: &str, changes: &[AccountChange]) -> Result<(), WriteFailure> {
        let client = self.writer().await.map_err(WriteFailure::Refused)?;
        let mut first = Ok(());
        for change in changes {
            let changed = async {
                let resource = client.resource("v1", SERVICE_ACCOUNT).await?;
                let place = (namespace, change.name.as_str());
                client
                    .merge_patch(&resource, place, None, TENURE_CONTROLLER, &change.patch)
                    .await
            };
            if let Err(error) = changed.await {
                let explained = self.explain_account(&client, namespace, &change.name, &error);
                first = first.and(Err(fail_as(&error, explained)));
            }
        }
        first
    }

    /// Returns the message of a failed request about a ServiceAccount. If a right is missing, the message proposes the Role for it.
    fn explain_account(&self, client: &Client, namespace: &str, account: &str, error: &ClusterError) -> String {
        if !matches!(error, ClusterError::Forbidden { .. }) {
            return format!("ServiceAccount {namespace}/{account}: {error}");
        }
        let all = &self.request.spec.service_accounts;
        let names: String = all
            .iter()
            .take(NAMED_ACCOUNTS)
            .map(|name| format!(" --resource-name {name}"))
            .collect();
        let more = if all.len() > NAMED_ACCOUNTS {
            " (and the others)"
        } else {
            ""
        };
        let writer = self
            .provider
            .as_ref()
            .map_or("", |provider| provider.spec.name_writer());
        format!(
            "{} may not get and patch ServiceAccount {namespace}/{account}, whose imagePullSecrets are to name the Secret, or a policy forbids it: bind it a Role \
             there, as in kubectl create role {ROLE} -n {namespace} --verb get,patch --resource serviceaccounts{names}{more} and kubectl create rolebinding {ROLE} \
             -n {namespace} --role {ROLE} --serviceaccount {PLATFORM_NAMESPACE}:{writer}",
            client.identity()
        )
    }
}
