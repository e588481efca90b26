//! Who knows where approved access to hosts of repositories is delivered, for those whose sources name no Secret.

use std::fmt::Debug;

/// Where access is delivered.
pub(crate) trait AccessBoard: Debug + Send + Sync {
    /// The Secret of a namespace with which the project at a URL is fetched.
    fn find_secret(&self, namespace: &str, url: &str) -> Option<String>;
}
