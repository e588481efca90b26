//! Artifacts on their way from lanes to the server for other controllers. This module finds artifacts, and bounds the rate of requests and the number
//! of concurrent transfers.
//!
//! Only artifacts stored for an object, under its uid, are served (`tenure_planner::artifact_address` says which). A reader has a rate and a few
//! transfers. The artifacts of a tenant share a number of transfers. So a slow reader blocks no reader of another tenant. This module does not decide
//! who may read an artifact: its caller asks the API server.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tenure_planner::artifact_address::ArtifactAddress;
use tenure_planner::receiver::{Rate, TokenBucket};

/// The request rate of one reader.
const READER_RATE: Rate = Rate {
    most: 500,
    each: Duration::from_millis(10),
};
/// The limit of concurrent transfers for one reader, for the artifacts of one tenant, and for all.
const OF_READER: usize = 16;
const OF_SHARE: usize = 32;
const OF_ALL: usize = 128;
/// Transfers that each tenant always has: several other tenants together can't use them up.
const OF_SHARE_ALWAYS: usize = 4;
/// Below this number of buckets, unused ones are not removed.
const FEW: usize = 256;

/// An open archive, and when it was stored.
pub(crate) type OpenArchive = (File, Option<Timestamp>);

/// Finds and opens artifacts for the endpoint. The hub implements it.
pub(crate) trait ArtifactKeeper: Send + Sync + fmt::Debug {
    /// Checks whether all existing objects have been seen.
    fn is_ready(&self) -> bool;

    /// Returns the name of the share to which the artifacts of a namespace count.
    fn name_share(&self, namespace: &str) -> String;

    /// Opens a served artifact, with the time when it was stored, if known; `None` if it does not exist.
    fn open<'a>(&'a self, address: &'a ArtifactAddress) -> BoxFuture<'a, Option<OpenArchive>>;
}

/// The handle through which the artifact server opens artifacts. It bounds the rate of requests and the number of transfers. Cheap to clone; all
/// clones share one state.
#[derive(Clone, Debug)]
pub struct ArtifactEndpoint {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    keeper: Mutex<Option<Weak<dyn ArtifactKeeper>>>,
    rates: Mutex<HashMap<String, TokenBucket>>,
    transfers: Mutex<TransferCounts>,
    began: Instant,
}

/// The numbers of running transfers: of each reader, of each tenant's artifacts, and of all.
#[derive(Debug, Default)]
struct TransferCounts {
    readers: HashMap<String, usize>,
    shares: HashMap<String, usize>,
    all: usize,
}

/// Why an artifact is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactRefusal {
    /// The existing artifacts are not known yet.
    Unavailable,
    /// The reader asks too often, or too many transfers are running.
    TooMany,
    /// The artifact does not exist.
    Unknown,
}

/// An open artifact for one reader.
#[derive(Debug)]
pub struct ServedArtifact {
    /// The archive, from its beginning. The reader checks its content with the digest in the object.
    pub file: File,
    /// The size in bytes.
    pub size: u64,
    /// When it was stored, if that is known.
    pub stored_at: Option<Timestamp>,
    /// The permit of the transfer. Absent if the reader requested only the size and the time.
    pub transfer: Option<Transfer>,
}

/// A permit for one transfer. Dropping it lets another transfer begin.
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<Shared>,
    reader: String,
    share: String,
}

impl Default for ArtifactEndpoint {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                keeper: Mutex::default(),
                rates: Mutex::default(),
                transfers: Mutex::default(),
                began: Instant::now(),
            }),
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ArtifactEndpoint {
    /// Sets the keeper of artifacts from now on.
    pub(crate) fn set_keeper(&self, keeper: Weak<dyn ArtifactKeeper>) {
        *lock(&self.shared.keeper) = Some(keeper);
    }

    /// Checks the request rate of a reader.
    ///
    /// # Errors
    /// [`ArtifactRefusal::TooMany`].
    pub fn admit(&self, reader: &str) -> Result<(), ArtifactRefusal> {
        match self.take_turn(reader) {
            true => Ok(()),
            false => Err(ArtifactRefusal::TooMany),
        }
    }

    /// Opens an artifact for an authorized reader. With `takes`, the result has a permit to transfer the content.
    ///
    /// # Errors
    /// [`ArtifactRefusal`].
    pub async fn open(
        &self,
        address: &ArtifactAddress,
        reader: &str,
        takes: bool,
    ) -> Result<ServedArtifact, ArtifactRefusal> {
        let keeper = lock(&self.shared.keeper).as_ref().and_then(Weak::upgrade);
        let keeper = keeper.filter(|keeper| keeper.is_ready());
        let keeper = keeper.ok_or(ArtifactRefusal::Unavailable)?;
        let transfer = match takes {
            true => Some(
                self.begin_transfer(reader, keeper.name_share(&address.namespace))
                    .ok_or(ArtifactRefusal::TooMany)?,
            ),
            false => None,
        };
        let opened = keeper.open(address).await;
        let (file, stored_at) = opened.ok_or(ArtifactRefusal::Unknown)?;
        let size = file.metadata().map(|found| found.len());
        Ok(ServedArtifact {
            file,
            size: size.map_err(|_| ArtifactRefusal::Unknown)?,
            stored_at,
            transfer,
        })
    }

    /// Takes one request from the reader's rate. Returns false if the reader asks too often.
    fn take_turn(&self, reader: &str) -> bool {
        let now = self.shared.began.elapsed();
        let mut rates = lock(&self.shared.rates);
        if rates.len() >= FEW && rates.len() == rates.capacity() {
            rates.retain(|_, bucket| !bucket.is_full(now));
        }
        rates.entry(reader.to_owned()).or_default().take_token(READER_RATE, now)
    }

    /// Returns the permit for a transfer; `None` if a limit on concurrent transfers is reached.
    fn begin_transfer(&self, reader: &str, share: String) -> Option<Transfer> {
        let mut counts = lock(&self.shared.transfers);
        let of_reader = counts.readers.get(reader).copied().unwrap_or_default();
        let of_share = counts.shares.get(&share).copied().unwrap_or_default();
        let is_full = counts.all >= OF_ALL && of_share >= OF_SHARE_ALWAYS;
        if of_reader >= OF_READER || of_share >= OF_SHARE || is_full {
            return None;
        }
        counts.all += 1;
        counts.readers.insert(reader.to_owned(), of_reader + 1);
        counts.shares.insert(share.clone(), of_share + 1);
        Some(Transfer {
            shared: Arc::clone(&self.shared),
            reader: reader.to_owned(),
            share,
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut counts = lock(&self.shared.transfers);
        counts.all = counts.all.saturating_sub(1);
        let TransferCounts { readers, shares, .. } = &mut *counts;
        count_down(readers, &self.reader);
        count_down(shares, &self.share);
    }
}

fn count_down<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct IdleKeeper;

    impl ArtifactKeeper for IdleKeeper {
        fn is_ready(&self) -> bool {
            true
        }

        fn name_share(&self, namespace: &str) -> String {
            namespace.to_owned()
        }

        fn open<'a>(&'a self, _address: &'a ArtifactAddress) -> BoxFuture<'a, Option<OpenArchive>> {
            Box::pin(std::future::ready(None))
        }
    }

    fn address(namespace: &str) -> ArtifactAddress {
        let digest = format!("sha256:{}", "0a".repeat(32));
        ArtifactAddress::new("Bucket", (namespace, "app"), &digest).expect("an address")
    }

    #[tokio::test]
    async fn too_frequent_reader_keeps_no_other_reader_waiting() {
        let endpoint = ArtifactEndpoint::default();
        let none = endpoint.open(&address("a"), "one", true).await;
        assert_eq!(none.err(), Some(ArtifactRefusal::Unavailable));
        let keeper: Arc<dyn ArtifactKeeper> = Arc::new(IdleKeeper);
        endpoint.set_keeper(Arc::downgrade(&keeper));
        let refused = (0..10 * READER_RATE.most).filter(|_| endpoint.admit("one").is_err());
        assert!(refused.count() > 0);
        assert_eq!(endpoint.admit("another"), Ok(()));
        let other = endpoint.open(&address("a"), "another", true).await.err();
        assert_eq!(other, Some(ArtifactRefusal::Unknown));
        drop(keeper);
        let gone = endpoint.open(&address("a"), "another", true).await.err();
        assert_eq!(gone, Some(ArtifactRefusal::Unavailable));
    }

    #[test]
    fn slow_readers_take_their_own_share_and_no_more() {
        let endpoint = ArtifactEndpoint::default();
        let begin = |reader: &str, share: &str| endpoint.begin_transfer(reader, share.to_owned());
        let mut held: Vec<Transfer> = (0..OF_READER).filter_map(|_| begin("slow", "a")).collect();
        assert_eq!(held.len(), OF_READER);
        assert!(begin("slow", "a").is_none() && begin("slow", "b").is_none());
        // Other readers of this tenant have the rest of its share, and other tenants have all of theirs.
        held.extend((0..OF_SHARE).filter_map(|_| begin("other", "a")));
        assert_eq!(held.len(), OF_SHARE);
        assert!(begin("third", "a").is_none());
        let third = begin("third", "b");
        assert!(third.is_some());
        held.pop();
        assert!(begin("third", "a").is_some());
        drop((held, third));
        // Several tenants that use everything leave some transfers for all others.
        let held: Vec<Transfer> = (0..10 * OF_ALL)
            .filter_map(|number| begin(&format!("reader-{number}"), &format!("share-{}", number % 8)))
            .collect();
        assert_eq!(held.len(), OF_ALL);
        let quiet: Vec<Transfer> = (0..OF_ALL).filter_map(|_| begin("quiet", "quiet")).collect();
        assert_eq!(quiet.len(), OF_SHARE_ALWAYS);
        drop((held, quiet));
        let counts = lock(&endpoint.shared.transfers);
        assert!(counts.readers.is_empty() && counts.shares.is_empty() && counts.all == 0);
    }
}
