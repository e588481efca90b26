//! The store's tests: one binary, with a module for each subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod backups;
mod crash;
mod damage;
mod failing;
mod full;
mod history;
mod log;
mod model;

use std::path::Path;
use std::sync::Arc;

use tenure_store::{Change, Entry, Expect, Limits, Payload, Store, Write, WriteError};

fn open(directory: &Path) -> Store {
    Store::open(directory, Limits::default()).unwrap()
}

async fn put(store: &Store, key: &str, expect: Expect, value: &str) -> Result<Arc<Entry>, WriteError> {
    let change = Change::Put(Payload::plain(value.to_owned()));
    store
        .write(Write {
            key: key.into(),
            expect,
            change,
            frees: false,
        })
        .await
}

async fn delete(store: &Store, key: &str, revision: u64) -> Result<Arc<Entry>, WriteError> {
    let change = Change::Delete(Payload::with_revision_at("gone at ", 8));
    store
        .write(Write {
            key: key.into(),
            expect: Expect::Revision(revision),
            change,
            frees: false,
        })
        .await
}

/// Returns the values under a prefix, as text.
fn list_keys(snapshot: &tenure_store::Snapshot, prefix: &str) -> Vec<String> {
    let shown = |entry: &Entry| String::from_utf8(entry.bytes.to_vec()).unwrap();
    snapshot
        .range(prefix, None)
        .map(|(key, entry)| format!("{key}={}@{}", shown(entry), entry.revision))
        .collect()
}
