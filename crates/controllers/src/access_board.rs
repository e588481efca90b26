//! Who knows where approved access to hosts of repositories is delivered, for those whose sources name no Secret, and as whom hosts are asked, for
//! those who keep whose tokens may be asked for.

use std::fmt::Debug;

/// What others ask of access.
pub(crate) trait AccessBoard: Debug + Send + Sync {
    /// The Secret of a namespace with which the project at a URL is fetched.
    fn find_secret(&self, namespace: &str, url: &str) -> Option<String>;

    /// The accounts that an AccessProvider names; nothing where there is none of this name.
    fn find_accounts(&self, provider: &str) -> Option<Vec<String>>;

    /// Those that all of them name.
    fn list_accounts(&self) -> Vec<String>;
}
