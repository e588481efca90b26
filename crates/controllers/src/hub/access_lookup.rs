//! Delivery of approved access to Git hosts, for sources that name no Secret. Also the accounts with which hosts are asked, for the fact that lists
//! the accounts whose tokens may be requested.

use std::fmt::Debug;

/// Answers questions of other modules about approved access to Git hosts. The access hub implements it.
pub(crate) trait AccessLookup: Debug + Send + Sync {
    /// Returns the Secret of a namespace with which the project at a URL is fetched.
    fn find_secret(&self, namespace: &str, url: &str) -> Option<String>;

    /// Returns the accounts that an AccessProvider names; `None` if the provider does not exist.
    fn find_accounts(&self, provider: &str) -> Option<Vec<String>>;

    /// Returns the accounts that all AccessProviders name.
    fn list_accounts(&self) -> Vec<String>;
}
