//! One fetch of a bucket: list it, stop if nothing changed, else receive the new objects and store the artifact.
//!
//! A bucket has no commits, so the listing and the received content may differ. An object that changes meanwhile is taken as received, and a deleted one is left out. The
//! revision describes the content that was taken.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use jiff::Timestamp;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::fetch::Fetched;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::client::{OpenObject, StoreClient, quote_key};
use super::error::BucketError;
use super::index::{self, Content, Index};
use super::listing::ListedObject;
use super::request::BucketRequest;
use super::write::{Parts, PreviousArtifact};
use crate::artifact::{ArtifactStore, IncomingFile, TaskWrite as _};
use crate::cancel::spawn_cancellable;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError};
use crate::fetch_budgets::{self, FetchBudgets, GrowingCharge};
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::{Limits, describe_bytes};

/// Bytes of the buffers of all connections, and of unpacking one archive and packing another.
const BUFFER_BYTES: u64 = 2 << 20;
/// Objects that are received at the same time.
const CONNECTIONS: usize = 4;
/// The largest file with patterns, in bytes.
const IGNORE_FILE_BYTES: u64 = 64 << 10;

/// Fetches the bucket of the request, if it has changed.
///
/// Drop the future to cancel: connections close and work on other threads stops. Memory and disk are charged to the account and to the store; the fetch waits for memory.
///
/// # Errors
/// A [`BucketError`] that says what failed and what to do.
pub fn fetch_bucket<'a>(
    request: &'a BucketRequest,
    reach: impl Into<Connector>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
) -> BoxFuture<'a, Result<Fetched, BucketError>> {
    Box::pin(fetch_in_time(request, reach.into(), limits, store, account))
}

/// Runs a fetch, and ends it at the timeout of the request.
async fn fetch_in_time(
    request: &BucketRequest,
    reach: Connector,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<Fetched, BucketError> {
    // Waits for capacity end shortly before the timeout, so that the error names the missing capacity.
    let spare = Duration::from_secs(1).min(request.asked.timeout / 10);
    let dialer = Dialer::new(reach, limits).with_proxy(request.proxy.as_ref(), request.tls.ca.as_deref());
    let fetching = Fetch {
        request,
        dialer: &dialer,
        limits,
        store,
        account,
        deadline: Instant::now() + request.asked.timeout.saturating_sub(spare),
        fingerprint: request.fingerprint(),
    };
    let Ok(result) = tokio::time::timeout(request.asked.timeout, fetching.run()).await else {
        return Err(BucketError::Connection(FetchError::Timeout {
            url: request.display_address(),
            timeout: request.asked.timeout,
        }));
    };
    // If the byte limit was reached, it is the cause of any error that the protocol reported.
    result.map_err(|error| dialer.budget().limit_error().map_or(error, BucketError::from))
}

/// A fetch of a bucket: the request, and the limits, store and budgets that it uses.
struct Fetch<'a> {
    request: &'a BucketRequest,
    dialer: &'a Dialer,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
    deadline: Instant,
    fingerprint: String,
}

/// The bucket's objects, each with the place of its content: the store, or the previous artifact.
struct Surveyed {
    index: Index,
    before: Option<PreviousArtifact>,
    memory: GrowingCharge,
}

/// An object whose content was received into a file.
struct ReceivedObject {
    key: String,
    mark: String,
    size: u64,
    content: Content,
}

impl Fetch<'_> {
    /// Runs the phases of the fetch: list, compare, receive and store.
    async fn run(&self) -> Result<Fetched, BucketError> {
        let FetchBudgets { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, BUFFER_BYTES, self.deadline).await?;
        let mut memory = GrowingCharge::new_used(held);
        let mut bucket = StoreClient::new(self.dialer, self.request);
        let ignore_file = self.get_ignore_file(&mut bucket).await?;
        let listed = self.list(&mut bucket, &mut memory).await?;
        let mut surveyed = match self.find_changes(listed, ignore_file.clone(), memory).await? {
            (revision, None) => return Ok(Fetched::Unchanged { revision }),
            (_, Some(surveyed)) => surveyed,
        };
        let received = self.receive_objects(&bucket, &mut surveyed.index).await?;
        drop(bucket);
        self.write(surveyed, ignore_file, received).await
    }

    /// Fetches the file with patterns, which is at the root of the bucket for every prefix.
    async fn get_ignore_file(&self, bucket: &mut StoreClient<'_>) -> Result<Option<String>, BucketError> {
        let Some(OpenObject { body, .. }) = bucket.open_object(IGNORE_FILE).await? else {
            return Ok(None);
        };
        let invalid = |problem| BucketError::InvalidIgnore { problem };
        let mut bytes = Vec::new();
        let read = body.take(IGNORE_FILE_BYTES + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| bucket.broken_error(&error))?;
        if bytes.len() as u64 > IGNORE_FILE_BYTES {
            return Err(invalid(".sourceignore is larger than 64 KiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid(".sourceignore is not UTF-8 text"))?;
        Ok(Some(text))
    }

    /// Lists the objects of the bucket that can become files.
    async fn list(
        &self,
        bucket: &mut StoreClient<'_>,
        memory: &mut GrowingCharge,
    ) -> Result<Vec<ListedObject>, BucketError> {
        let mut listed = Vec::new();
        let mut count = 0_usize;
        let look = |object: ListedObject| {
            count += 1;
            if count > self.limits.files as usize {
                return Err(BucketError::TooLarge {
                    what: "objects",
                    limit: self.limits.files.to_string(),
                });
            }
            if index::is_left_out(&object.key) {
                return Ok(0);
            }
            let bytes = index::count_bytes(&object);
            listed.push(object);
            Ok(bytes)
        };
        bucket.list(memory, look).await?;
        Ok(listed)
    }

    /// Finds the changes, on a thread for blocking work and in the lane's turn; `None` if nothing changed.
    async fn find_changes(
        &self,
        listed: Vec<ListedObject>,
        ignore_file: Option<String>,
        memory: GrowingCharge,
    ) -> Result<(String, Option<Surveyed>), BucketError> {
        let known = self.request.asked.known.clone();
        let known = known.filter(|known| self.store.contains(&self.request.source, &known.facts.digest));
        let (store, limits, request) = (self.store.clone(), *self.limits, self.request.clone());
        let fingerprint = self.fingerprint.clone();
        let work = move |cancelled: &AtomicBool| {
            let ignore = Ignore::from_texts(ignore_file.as_deref(), request.asked.ignore.as_deref());
            let is_cancelled = || cancelled.load(Ordering::Relaxed);
            let mut index = Index::from_objects(listed, &ignore, &limits, is_cancelled)?;
            let revision = index.revision();
            let is_same = |known: &StoredArtifact| known.facts.revision == revision && known.fingerprint == fingerprint;
            if known.as_ref().is_some_and(is_same) {
                return Ok((revision, None));
            }
            let mut before = None;
            if let Some(known) = known {
                // An unreadable artifact counts as missing.
                if let Ok(file) = store.open_verified(&request.source, &known.facts.digest) {
                    let digest = known.facts.digest;
                    let found = PreviousArtifact { file, digest };
                    found.mark_kept(&mut index, &limits, cancelled)?;
                    before = Some(found);
                }
            }
            let surveyed = Surveyed { index, before, memory };
            Ok((revision, Some(surveyed)))
        };
        self.in_turn(work).await
    }

    /// Receives the missing objects over several connections at once. Records in the index where each object is.
    async fn receive_objects(
        &self,
        bucket: &StoreClient<'_>,
        index: &mut Index,
    ) -> Result<Vec<IncomingFile>, BucketError> {
        let wanted = index.list_wanted();
        let width = CONNECTIONS.min(wanted.len());
        let mut shares: Vec<Vec<String>> = vec![Vec::new(); width];
        for (number, key) in wanted.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(number % width) {
                share.push(key);
            }
        }
        let receiving = shares.into_iter().enumerate();
        let receiving = receiving.map(|(file, keys)| self.receive_share(bucket.with_own_connection(), file, keys));
        let mut files = Vec::with_capacity(width);
        for (file, objects, gone) in try_join_all(receiving).await? {
            files.push(file);
            for key in gone {
                index.objects.remove(&key);
            }
            for ReceivedObject {
                key,
                mark,
                size,
                content,
            } in objects
            {
                let Some(object) = index.objects.get_mut(&key) else {
                    continue;
                };
                if object.mark == mark && object.size != size {
                    return Err(bucket.protocol_error(format!(
                        "the object {} is not as long as its listing says",
                        quote_key(&key)
                    )));
                }
                (object.mark, object.size, object.content) = (mark, size, content);
            }
        }
        Ok(files)
    }

    /// Receives objects into one file over one connection. Returns the file, the received objects, and the keys of objects that were deleted meanwhile.
    async fn receive_share(
        &self,
        mut bucket: StoreClient<'_>,
        file: usize,
        keys: Vec<String>,
    ) -> Result<(IncomingFile, Vec<ReceivedObject>, Vec<String>), BucketError> {
        let mut incoming = self.store.incoming_file(&self.account.lane)?;
        let path = incoming.path().to_owned();
        let failed = |error: std::io::Error| match fetch_budgets::find_refusal(&error) {
            Some(refused) => BucketError::OverBudget(refused),
            None => self.store.io_error("write", &path, error).into(),
        };
        // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
        let mut out = incoming.task_writer(self.store);
        let (mut objects, mut gone) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut offset = 0_u64;
        let mut piece = vec![0; 64 << 10];
        for key in keys {
            let Some(OpenObject { mut body, mark }) = bucket.open_object(&key).await? else {
                gone.push(key);
                continue;
            };
            let mut size = 0_u64;
            loop {
                let read = body.read(&mut piece).await;
                let length = read.map_err(|error| bucket.broken_error(&error))?;
                if length == 0 {
                    break;
                }
                size = size.saturating_add(length as u64);
                if size > self.limits.file_bytes {
                    return Err(BucketError::TooLarge {
                        what: "bytes of one object",
                        limit: describe_bytes(self.limits.file_bytes),
                    });
                }
                out.write_ready(piece.get(..length).unwrap_or_default())
                    .await
                    .map_err(failed)?;
            }
            let content = Content::Received { file, offset };
            offset = offset.saturating_add(size);
            objects.push(ReceivedObject {
                key,
                mark,
                size,
                content,
            });
        }
        out.flush().map_err(failed)?;
        drop(out);
        incoming.complete();
        Ok((incoming, objects, gone))
    }

    /// Makes the artifact on a thread for blocking work, in the lane's turn, after the budget has capacity for its memory.
    async fn write(
        &self,
        surveyed: Surveyed,
        ignore_file: Option<String>,
        received: Vec<IncomingFile>,
    ) -> Result<Fetched, BucketError> {
        let FetchBudgets { lane, trees, .. } = self.account;
        let (store, limits, trees, lane) = (self.store.clone(), *self.limits, *trees, lane.clone());
        let work = move |cancelled: &AtomicBool| {
            let Surveyed { index, before, memory } = surveyed;
            let mut target = store.incoming_file(&lane)?;
            let parts = Parts {
                index: &index,
                ignore_file: ignore_file.as_deref(),
                before: before.as_ref(),
                received: &received,
            };
            let written = parts.write((&store, &limits, &trees), &mut target, cancelled)?;
            target.complete();
            drop(memory);
            Ok((target, written, index.revision(), index.objects.len()))
        };
        let (target, written, revision, count) = self.in_turn(work).await?;
        let path = self
            .store
            .store_archive(&self.request.source, target, &written.digest)?;
        Ok(Fetched::Stored {
            artifact: StoredArtifact {
                facts: ArtifactFacts {
                    revision,
                    digest: written.digest,
                    origin_revision: None,
                },
                size: written.size,
                path,
                stored_at: Some(Timestamp::now()),
                ignore: self.request.asked.ignore.clone(),
                fingerprint: self.fingerprint.clone(),
                ..StoredArtifact::default()
            },
            subject: Some(count.to_string()),
        })
    }

    /// Runs work on a thread for blocking work in the lane's turn. The turn is held until the work really ends.
    ///
    /// The fetch holds the listing in memory while it waits, and the lane that has the turn may need this memory. So the wait ends after half of the remaining time, and
    /// the fetch is retried later.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, BucketError> + Send + 'static,
    ) -> Result<T, BucketError> {
        let FetchBudgets { lane, unpacking, .. } = self.account;
        let now = Instant::now();
        let until = now + self.deadline.saturating_duration_since(now) / 2;
        let turn = unpacking.acquire(lane, 1, until).await?;
        let done = spawn_cancellable(move |cancelled| {
            let _turn = turn;
            work(cancelled)
        });
        done.await.unwrap_or_else(|error| {
            Err(StorageError::Io {
                action: "write",
                path: "the artifact".to_owned(),
                source: std::io::Error::other(error),
            }
            .into())
        })
    }
}
