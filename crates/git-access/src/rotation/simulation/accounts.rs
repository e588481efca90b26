//! A ServiceAccount of the model, with an entry of another writer among its `imagePullSecrets`.

use serde_json::{Value, json};

use super::model::World;
use crate::pull_secrets::{AccountChange, ObservedAccounts, read_account, tests::merge};

const NAME: &str = "runner";

/// Returns a new account. A re-created account has nothing of the earlier one.
pub(super) fn make(version: u64) -> Value {
    json!({ "metadata": { "uid": format!("a-{version}"), "resourceVersion": version.to_string() },
        "imagePullSecrets": [{ "name": "of-somebody" }] })
}

impl World {
    pub(super) fn see_accounts(&self) -> ObservedAccounts {
        ObservedAccounts::Seen(vec![read_account(NAME, self.account.as_ref())])
    }

    /// Changes the account if it is unchanged since the observation. Returns whether it was.
    pub(super) fn change_account(&mut self, changes: &[AccountChange]) -> bool {
        let [change] = changes else { panic!("{changes:?}") };
        let Some(account) = self.account.as_mut() else {
            return false;
        };
        let is = |field: &str| change.patch["metadata"][field] == account["metadata"][field];
        if !is("uid") || !is("resourceVersion") {
            return false;
        }
        self.versions += 1;
        merge(account, &change.patch);
        account["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        true
    }

    /// Lists the Secrets that the account names.
    pub(super) fn list_images(&self) -> Vec<String> {
        let images = self
            .account
            .iter()
            .flat_map(|account| account["imagePullSecrets"].as_array());
        let names = images.flatten().map(|image| image["name"].as_str().unwrap().to_owned());
        names.collect()
    }
}
