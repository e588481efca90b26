//! The artifacts that sources have fetched, on disk and in memory.
//!
//! - `storage`: the artifact store with a record for each source, and the budgets of disk and memory.
//! - `tree_cache`: loaded file trees of artifacts, within a memory budget.
//! - `untrusted_folder`: opens files below a folder in which another user writes.

pub(crate) mod storage;
pub(crate) mod tree_cache;
pub(crate) mod untrusted_folder;
