//! One fetch of an artifact: resolve the reference, stop if nothing changed, else verify, receive and store.
//!
//! The signature is verified before any content of the artifact is received. After the tag was resolved, every request uses a digest, so the received content is the
//! signed content.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use go_words::version::Version;
use jiff::Timestamp;
use regex::Regex;
use sha2::{Digest as _, Sha256};
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::oci::{LayerOperation, ORIGIN_REVISION};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::cosign;
use super::error::OciError;
use super::layer::{self, LayerError};
use super::manifest::{self, Image, Manifest, read_manifest};
use super::reference::{ArtifactReference, Digest, OciRequest, is_tag};
use super::registry::{self, Registry};
use crate::artifact::{ArtifactStore, IncomingFile, TaskWrite as _};
use crate::cancel::spawn_cancellable;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError};
use crate::fetch_budgets::{self, FetchBudgets, GrowingCharge};
use crate::limits::{Limits, describe_bytes};
use crate::reference_selection::read_tag_version;

/// Bytes of the buffers of a connection.
const CONNECTION_BYTES: u64 = 512 << 10;
/// Bytes for unpacking a layer.
const UNPACKING_BYTES: u64 = 1 << 20;
/// The media type of Helm charts. Tags can't have `+`, so tags of charts have `_` instead.
const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Fetches the reference of the request, if it isn't the known artifact already.
///
/// Drop the future to cancel: connections close and work on other threads stops. Memory and disk are charged to the account and to the store; the fetch waits for memory.
///
/// # Errors
/// An [`OciError`] that says what failed and what to do.
pub fn fetch_artifact<'a>(
    request: &'a OciRequest,
    reach: impl Into<Connector>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
) -> BoxFuture<'a, Result<Fetched, OciError>> {
    Box::pin(fetch_in_time(request, reach.into(), limits, store, account))
}

/// Runs a fetch, and ends it at the timeout of the request.
async fn fetch_in_time(
    request: &OciRequest,
    reach: Connector,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<Fetched, OciError> {
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
        fingerprint: fingerprint(request),
    };
    let Ok(result) = tokio::time::timeout(request.asked.timeout, fetching.run()).await else {
        return Err(OciError::Connection(FetchError::Timeout {
            url: request.url.to_string(),
            timeout: request.asked.timeout,
        }));
    };
    // If the byte limit was reached, it is the cause of any error that the protocol reported.
    result.map_err(|error| dialer.budget().limit_error().map_or(error, OciError::from))
}

/// Returns the digest of all inputs of the stored content besides the artifact: the layer to take, the patterns and the trusted keys. Another digest makes another
/// artifact.
fn fingerprint(request: &OciRequest) -> String {
    let mut hash = Sha256::new();
    let mut add = |name: &str, bytes: &[u8]| {
        hash.update(name.as_bytes());
        hash.update(bytes.len().to_be_bytes());
        hash.update(bytes);
    };
    add("oci", b"1");
    add("url", request.url.to_string().as_bytes());
    if let Some(media_type) = &request.asked.media_type {
        add("media type", media_type.as_bytes());
    }
    if request.asked.operation == LayerOperation::Copy {
        add("copy", b"");
    }
    if let Some(ignore) = &request.asked.ignore {
        add("ignore", ignore.as_bytes());
    }
    // With other trusted keys, the artifact is fetched and verified again.
    for key in request.keys.iter().flatten() {
        add("key", key.bytes());
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// A fetch of an artifact from a registry: the request, and the limits, store and budgets that it uses.
struct Fetch<'a> {
    request: &'a OciRequest,
    dialer: &'a Dialer,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
    deadline: Instant,
    fingerprint: String,
}

/// The layer of an artifact that was received, with the artifact's revision, digests and annotations.
struct Received {
    revision: String,
    digest: Digest,
    layer: Digest,
    metadata: BTreeMap<String, String>,
    file: IncomingFile,
}

impl Fetch<'_> {
    /// Runs the phases of the fetch: resolve, compare, verify, receive and store.
    async fn run(&self) -> Result<Fetched, OciError> {
        let OciRequest { url, keychain, tls, .. } = self.request;
        if let ArtifactReference::Digest(digest) = &self.request.reference
            // The content of a digest never changes: a stored artifact needs no registry.
            && let Some(unchanged) = self.find_unchanged(digest.as_str())
        {
            return Ok(unchanged);
        }
        let FetchBudgets { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, CONNECTION_BYTES, self.deadline).await?;
        let mut memory = GrowingCharge::new_used(held);
        let mut registry = Registry::new(self.dialer, url, keychain, tls);
        let (revision, digest) = self.resolve_reference(&mut registry, &mut memory).await?;
        if let Some(unchanged) = self.find_unchanged(&revision) {
            return Ok(unchanged);
        }
        if let Some(keys) = &self.request.keys {
            cosign::verify(&mut registry, &digest, keys, &mut memory).await?;
        }
        let image = self.get_image(&mut registry, &digest, &mut memory).await?;
        let invalid = |problem| OciError::InvalidArtifact {
            digest: digest.to_string(),
            problem,
        };
        let layer = image
            .select_layer(self.request.asked.media_type.as_deref())
            .map_err(invalid)?;
        let wanted = layer.digest.clone();
        let file = self.receive_layer(&mut registry, layer).await?;
        let metadata = image.list_metadata();
        drop((image, registry, memory));
        let received = Received {
            revision,
            digest,
            layer: wanted,
            metadata,
            file,
        };
        match self.request.asked.operation {
            LayerOperation::Extract => self.extract_layer(received).await,
            LayerOperation::Copy => {
                let written = (received.layer.to_string(), received.file.length());
                self.store_artifact((received.file, written), received.revision, received.metadata)
            }
        }
    }

    /// Resolves the reference to a revision and a digest.
    async fn resolve_reference(
        &self,
        registry: &mut Registry<'_>,
        memory: &mut GrowingCharge,
    ) -> Result<(String, Digest), OciError> {
        let tag = match &self.request.reference {
            ArtifactReference::Digest(digest) => return Ok((digest.to_string(), digest.clone())),
            ArtifactReference::Tag(tag) => tag.clone(),
            ArtifactReference::Semver { .. } => self.find_tag(registry, memory).await?,
        };
        let digest = match registry.resolve_tag(&tag).await? {
            Some(digest) => digest,
            None => registry.get_manifest(&tag, memory).await?.1,
        };
        Ok((format!("{tag}@{digest}"), digest))
    }

    /// Finds the tag with the highest version in the range.
    async fn find_tag(&self, registry: &mut Registry<'_>, memory: &mut GrowingCharge) -> Result<String, OciError> {
        let ArtifactReference::Semver { range, filter } = &self.request.reference else {
            return Err(self.no_match());
        };
        let is_chart = self.request.asked.media_type.as_deref() == Some(CHART_TYPE);
        let mut found: Vec<(Version, String)> = Vec::new();
        let look = |tag: &str| {
            if !is_tag(tag) {
                return 0;
            }
            let written = if is_chart {
                tag.replace('_', "+")
            } else {
                tag.to_owned()
            };
            let Some(version) = read_tag_version(&written).filter(|version| range.matches(version)) else {
                return 0;
            };
            found.push((version, tag.to_owned()));
            // The capacity of the list may be twice its length, and a version holds parts of its tag.
            (2 * (size_of::<(Version, String)>() + tag.len()) + 64) as u64
        };
        registry.list_tags(self.limits.references, memory, look).await?;
        // Versions that differ only in build metadata are ordered by it, then by name, so that the choice is always the same.
        found.sort_by(|one, other| other.cmp(one));
        let tags = found.into_iter().map(|(_, tag)| tag);
        let tag = match filter {
            None => tags.take(1).next(),
            Some(filter) => self.find_match(filter.clone(), tags.collect()).await?,
        };
        tag.ok_or_else(|| self.no_match())
    }

    /// Returns the first tag that matches. A pattern may be made to take long, so this runs on a thread of its own, in the lane's turn.
    async fn find_match(&self, filter: Regex, tags: Vec<String>) -> Result<Option<String>, OciError> {
        let FetchBudgets { lane, unpacking, .. } = self.account;
        let turn = unpacking.acquire(lane, 1, self.deadline).await?;
        let search = spawn_cancellable(move |cancelled| {
            let _turn = turn;
            let mut tags = tags.into_iter();
            tags.find(|tag| cancelled.load(Ordering::Relaxed) || filter.is_match(tag))
        });
        search.await.map_err(|error| self.explain_end(&error))
    }

    /// Explains why work on another thread ended without an answer.
    fn explain_end(&self, error: &tokio::task::JoinError) -> OciError {
        OciError::Protocol {
            url: self.request.url.to_string(),
            problem: error.to_string(),
        }
    }

    /// Returns the error for a range that no tag matches.
    fn no_match(&self) -> OciError {
        let what = match &self.request.reference {
            ArtifactReference::Semver { range, filter } => {
                let filter = filter
                    .as_ref()
                    .map(|_| " and spec.ref.semverFilter")
                    .unwrap_or_default();
                format!("the versions {:?}{filter}", range.to_string())
            }
            _ => "spec.ref".to_owned(),
        };
        OciError::NoMatch {
            url: self.request.url.to_string(),
            what,
        }
    }

    /// Gets the manifest of the artifact. From a list of manifests, takes the one for Flux's platform.
    async fn get_image(
        &self,
        registry: &mut Registry<'_>,
        digest: &Digest,
        memory: &mut GrowingCharge,
    ) -> Result<Image, OciError> {
        let invalid = |problem: String| OciError::InvalidArtifact {
            digest: digest.to_string(),
            problem,
        };
        let (bytes, _) = registry.get_manifest(digest.as_str(), memory).await?;
        let inner = match read_manifest(&bytes).map_err(invalid)? {
            Manifest::Image(image) => return Ok(image),
            Manifest::Index(inner) => inner,
        };
        let (bytes, _) = registry.get_manifest(inner.as_str(), memory).await?;
        match read_manifest(&bytes).map_err(invalid)? {
            Manifest::Image(image) => Ok(image),
            Manifest::Index(_) => Err(invalid("it is a list of lists of manifests".to_owned())),
        }
    }

    /// Receives a layer into a file, and checks its digest.
    async fn receive_layer(
        &self,
        registry: &mut Registry<'_>,
        layer: &manifest::Layer,
    ) -> Result<IncomingFile, OciError> {
        if layer.size > self.limits.received_bytes {
            return Err(OciError::TooLarge {
                what: "bytes of the layer",
                limit: describe_bytes(self.limits.received_bytes),
            });
        }
        let mut body = registry.open_blob(&layer.digest).await?;
        let mut incoming = self.store.incoming_file(&self.account.lane)?;
        let path = incoming.path().to_owned();
        let failed = |error: std::io::Error| match fetch_budgets::find_refusal(&error) {
            Some(refused) => OciError::OverBudget(refused),
            None => self.store.io_error("write", &path, error).into(),
        };
        // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
        let mut out = incoming.task_writer(self.store);
        let mut hash = Sha256::new();
        let mut received = 0_u64;
        let mut piece = vec![0; 64 << 10];
        loop {
            let read = body.read(&mut piece).await;
            let length = read.map_err(|error| registry::make_connection_error(&self.request.url, &error))?;
            if length == 0 {
                break;
            }
            let bytes = piece.get(..length).unwrap_or_default();
            received = received.saturating_add(length as u64);
            if received > layer.size {
                break;
            }
            hash.update(bytes);
            out.write_ready(bytes).await.map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        drop(out);
        let found = Digest::from_hash(hash.finalize());
        if received != layer.size {
            return Err(OciError::Protocol {
                url: self.request.url.to_string(),
                problem: format!("the layer {} is not as long as its manifest says", layer.digest),
            });
        }
        if found != layer.digest {
            return Err(registry.mismatch_error("the layer", &layer.digest, &found));
        }
        incoming.complete();
        Ok(incoming)
    }

    /// Turns a layer into a stored artifact, on a thread for blocking work, in the lane's turn, after the budget has capacity for its memory.
    async fn extract_layer(&self, received: Received) -> Result<Fetched, OciError> {
        let FetchBudgets {
            lane,
            memory,
            unpacking,
            trees,
        } = self.account;
        let turn = unpacking.acquire(lane, 1, self.deadline).await?;
        let memory = memory.acquire(lane, UNPACKING_BYTES, self.deadline).await?;
        let (store, limits, trees, lane) = (self.store.clone(), *self.limits, *trees, lane.clone());
        let ignore = self.request.asked.ignore.clone();
        let digest = received.digest.to_string();
        let work = move |cancelled: &AtomicBool| -> Result<_, OciError> {
            // The turn and the memory are held until the blocking work ends, even if the fetch was cancelled before.
            let _turn = turn;
            let mut memory = GrowingCharge::new_used(memory);
            let mut target = store.incoming_file(&lane)?;
            let layer = layer::Layer {
                file: received.file.file(),
                ignore: ignore.as_deref(),
                limits: &limits,
                trees: &trees,
                cancelled,
            };
            let written = layer.write_archive(&mut memory, target.writer(&store));
            let written = written.map_err(|error| explain_layer_error(error, &digest, &store, target.path()))?;
            target.complete();
            Ok((
                target,
                (written.digest, written.size),
                received.revision,
                received.metadata,
            ))
        };
        let done = spawn_cancellable(work).await;
        let (target, written, revision, metadata) = done.map_err(|error| self.explain_end(&error))??;
        self.store_artifact((target, written), revision, metadata)
    }

    fn store_artifact(
        &self,
        (file, (digest, size)): (IncomingFile, (String, u64)),
        revision: String,
        metadata: BTreeMap<String, String>,
    ) -> Result<Fetched, OciError> {
        let path = self.store.store_archive(&self.request.source, file, &digest)?;
        Ok(Fetched::Stored {
            artifact: StoredArtifact {
                facts: ArtifactFacts {
                    revision,
                    digest,
                    origin_revision: metadata.get(ORIGIN_REVISION).cloned(),
                },
                size,
                path,
                stored_at: Some(Timestamp::now()),
                ignore: self.request.asked.ignore.clone(),
                verified: None,
                included: Vec::new(),
                fingerprint: self.fingerprint.clone(),
                metadata,
                chart: None,
            },
            subject: None,
        })
    }

    /// Returns [`Fetched::Unchanged`] if the known artifact has this revision and the same other inputs, and is stored.
    fn find_unchanged(&self, revision: &str) -> Option<Fetched> {
        let known = self.request.asked.known.as_ref()?;
        let same = known.facts.revision == revision
            && known.fingerprint == self.fingerprint
            && self.store.contains(&self.request.source, &known.facts.digest);
        same.then(|| Fetched::Unchanged {
            revision: revision.to_owned(),
        })
    }
}

fn explain_layer_error(error: LayerError, digest: &str, store: &ArtifactStore, target: &std::path::Path) -> OciError {
    match error {
        LayerError::Invalid(problem) => OciError::InvalidArtifact {
            digest: digest.to_owned(),
            problem,
        },
        LayerError::TooLarge { what, limit } => OciError::TooLarge { what, limit },
        LayerError::OverBudget(refused) => OciError::OverBudget(refused),
        LayerError::Io(source) => store.io_error("write", target, source).into(),
        // The fetch was cancelled. This error is visible only if the timeout and the fetch end at the same moment.
        LayerError::Cancelled => StorageError::Io {
            action: "write",
            path: "the artifact".to_owned(),
            source: std::io::ErrorKind::TimedOut.into(),
        }
        .into(),
    }
}
