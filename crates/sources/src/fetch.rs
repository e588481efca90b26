//! One fetch from beginning to end: list the references, stop if nothing changed, else receive, verify and store.
//!
//! Owns the order of these phases and what each failure is called. What decides is elsewhere (`policy`, `select`,
//! `ignore`); what reads outside bytes is in `git`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tenure_planner::artifact::{ArtifactFacts, StoredArtifact};
use tenure_planner::git_repository::Fetched;
use tokio::time::Instant;

use crate::account::{self, Account, Growing};
use crate::archive::{self, ArchiveError};
use crate::artifact::{ArtifactStore, Incoming};
use crate::budget::{Held, Room};
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError};
use crate::git::measure::Measure;
use crate::git::object;
use crate::git::oid::{Algorithm, Oid};
use crate::git::pack::{ObjectKind, Pack, PackError};
use crate::git::wire::{self, Advertisement, PackRequest, PackWriter, RemoteReference};
use crate::limits::Limits;
use crate::reach::Reach;
use crate::request::{GitRequest, Reference};
use crate::select::{self, Selected};
use crate::transport::Transport;

/// Bytes of the buffers of a connection.
const CONNECTION_BYTES: u64 = 512 << 10;
/// Bytes that are left to the list of a commit's files where there is room for it beside its objects.
const LIST_BYTES: u64 = 16 << 20;

/// Fetches what the request names, if it isn't the known artifact already.
///
/// Cancel it by dropping the future: connections close and work on other threads stops. What it holds, in memory and on disk, is
/// charged to the account and to the store; for memory it waits.
///
/// # Errors
/// A [`FetchError`] that says what failed and what to do; [`FetchError::reason`] is the condition's reason and
/// [`FetchError::transient`] says whether trying again may help.
pub fn fetch<'a>(
    request: &'a GitRequest,
    reach: impl Into<Reach>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a Account,
) -> BoxFuture<'a, Result<Fetched, FetchError>> {
    Box::pin(fetch_in_time(request, reach.into(), limits, store, account))
}

async fn fetch_in_time(
    request: &GitRequest,
    reach: Reach,
    limits: &Limits,
    store: &ArtifactStore,
    account: &Account,
) -> Result<Fetched, FetchError> {
    // Whoever waits for room to the end is told so, instead of that the time is over.
    let spare = Duration::from_secs(1).min(request.asked.timeout / 10);
    let dialer = Dialer::new(reach, limits);
    let fetching = Fetch {
        request,
        dialer: &dialer,
        limits,
        store,
        account,
        deadline: Instant::now() + request.asked.timeout.saturating_sub(spare),
        fingerprint: fingerprint(request),
    };
    let result = match tokio::time::timeout(request.asked.timeout, fetching.run()).await {
        Ok(result) => result,
        Err(_) => {
            return Err(FetchError::Timeout {
                url: request.url.to_string(),
                timeout: request.asked.timeout,
            });
        }
    };
    // Whatever a protocol made of the end of its stream: if too much arrived, that is the reason.
    result.map_err(|error| dialer.budget().exceeded().unwrap_or(error))
}

/// What besides the commit decides the content of an artifact.
fn fingerprint(request: &GitRequest) -> String {
    let mut hash = Sha256::new();
    hash.update(b"1\0");
    hash.update(request.url.to_string().as_bytes());
    hash.update(b"\0");
    if let Some(ignore) = &request.asked.ignore {
        hash.update(b"ignore\0");
        hash.update(ignore.as_bytes());
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

struct Fetch<'a> {
    request: &'a GitRequest,
    dialer: &'a Dialer,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a Account,
    deadline: Instant,
    fingerprint: String,
}

impl Fetch<'_> {
    async fn run(&self) -> Result<Fetched, FetchError> {
        let url = self.request.url.to_string();
        if let Reference::Commit { id, branch } = &self.request.reference {
            let oid = Oid::from_hex(id.as_bytes()).ok_or_else(|| self.not_found(Vec::new()))?;
            let name = branch.as_ref().map(|branch| format!("refs/heads/{branch}"));
            let selected = Selected {
                name,
                want: oid,
                commit: oid,
            };
            // A commit never changes: what is stored needs no server.
            if let Some(unchanged) = self.unchanged(&selected) {
                return Ok(unchanged);
            }
            return self.commit(selected).await;
        }
        let mut memory = self.memory().await?;
        let (mut transport, advertisement) = self.connect(&mut memory).await?;
        let prefixes = select::list_prefixes(&self.request.reference);
        let references = self.list(&mut transport, &advertisement, prefixes, &mut memory).await?;
        let Some(selected) = select::select_reference(&self.request.reference, &references) else {
            let neighbours = select::list_neighbours(&self.request.reference);
            let references = self
                .list(&mut transport, &advertisement, neighbours, &mut memory)
                .await?;
            return Err(self.not_found(select::find_close_names(&self.request.reference, &references)));
        };
        if let Some(unchanged) = self.unchanged(&selected) {
            return Ok(unchanged);
        }
        let ask = PackRequest::new(&advertisement, &[selected.want], true);
        let pack = self
            .receive(&mut transport, ask)
            .await
            .map_err(|error| transport.explain(error, &url))??;
        drop((transport, references));
        drop(memory);
        self.store_pack(pack, advertisement.algorithm(), selected).await
    }

    /// Room for a connection. What the server lists comes on top.
    async fn memory(&self) -> Result<Growing, FetchError> {
        let Account { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, CONNECTION_BYTES, self.deadline).await?;
        Ok(Growing::used(held))
    }

    /// Fetches a bare commit: directly where the server allows it, else with the history of the branch it is on.
    async fn commit(&self, selected: Selected) -> Result<Fetched, FetchError> {
        let url = self.request.url.to_string();
        let mut memory = self.memory().await?;
        let (mut transport, advertisement) = self.connect(&mut memory).await?;
        let algorithm = advertisement.algorithm();
        let direct = match &advertisement {
            Advertisement::Two { .. } => true,
            Advertisement::Zero {
                capabilities,
                references,
                ..
            } => {
                references.iter().any(|reference| reference.oid == selected.want)
                    || capabilities.iter().any(|offered| {
                        matches!(
                            offered.as_str(),
                            "allow-reachable-sha1-in-want" | "allow-any-sha1-in-want"
                        )
                    })
            }
        };
        if direct {
            let ask = PackRequest::new(&advertisement, &[selected.want], true);
            match self.receive(&mut transport, ask).await {
                Ok(pack) => {
                    drop((transport, advertisement));
                    drop(memory);
                    return self.store_pack(pack?, algorithm, selected).await;
                }
                // It may only give out what a branch points to.
                Err(wire::WireError::Remote(message)) => {
                    tracing::debug!(%message, "the server refuses a commit by its id");
                }
                Err(error) => return Err(transport.explain(error, &url)),
            }
        }
        drop(transport);
        let (mut transport, advertisement) = self.connect(&mut memory).await?;
        let prefix = selected.name.clone().unwrap_or_else(|| "refs/heads/".to_owned());
        let references = self
            .list(&mut transport, &advertisement, vec![prefix], &mut memory)
            .await?;
        let mut wants: Vec<Oid> = references
            .iter()
            .filter(|reference| match &selected.name {
                Some(name) => reference.name == *name,
                None => reference.name.starts_with("refs/heads/"),
            })
            .map(|reference| reference.oid)
            .collect();
        wants.sort_unstable();
        wants.dedup();
        if wants.is_empty() {
            return Err(self.not_found(Vec::new()));
        }
        let ask = PackRequest::new(&advertisement, &wants, false);
        let pack = self
            .receive(&mut transport, ask)
            .await
            .map_err(|error| transport.explain(error, &url))??;
        drop((transport, advertisement, references, wants));
        drop(memory);
        self.store_pack(pack, algorithm, selected).await
    }

    async fn connect(&self, memory: &mut Growing) -> Result<(Transport, Advertisement), FetchError> {
        let mut transport = Transport::open(self.request, self.dialer).await?;
        match Advertisement::read(transport.reader(), self.limits, memory).await {
            Ok(advertisement) => Ok((transport, advertisement)),
            Err(error) => Err(transport.explain(error, &self.request.url.to_string())),
        }
    }

    async fn list(
        &self,
        transport: &mut Transport,
        advertisement: &Advertisement,
        prefixes: Vec<String>,
        memory: &mut Growing,
    ) -> Result<Vec<RemoteReference>, FetchError> {
        match advertisement {
            Advertisement::Zero { references, .. } => Ok(references.clone()),
            Advertisement::Two { algorithm, .. } => {
                transport.send(wire::write_list_request(*algorithm, &prefixes)).await?;
                let list = wire::read_list(transport.reader(), self.limits, memory).await;
                list.map_err(|error| transport.explain(error, &self.request.url.to_string()))
            }
        }
    }

    /// Receives a pack into a file. The outer error is the conversation's, the inner one everything else.
    async fn receive(
        &self,
        transport: &mut Transport,
        ask: PackRequest,
    ) -> Result<Result<Incoming, FetchError>, wire::WireError> {
        let mut ask = ask;
        let mut incoming = match self.store.incoming_file(&self.account.lane) {
            Ok(incoming) => incoming,
            Err(error) => return Ok(Err(error.into())),
        };
        if let Err(error) = transport.send(std::mem::take(&mut ask.body)).await {
            return Ok(Err(error));
        }
        // Written without leaving the thread: pieces of 64 KiB go to the page cache.
        let mut out = incoming.writer(self.store);
        let mut writer = PackWriter::new(&mut out, self.limits);
        ask.read(transport.reader(), &mut writer).await?;
        drop(out);
        incoming.complete();
        Ok(Ok(incoming))
    }

    /// Turns a pack into a stored artifact, on threads for blocking work, in its turn and when there is room for what it takes.
    async fn store_pack(
        &self,
        pack: Incoming,
        algorithm: Algorithm,
        selected: Selected,
    ) -> Result<Fetched, FetchError> {
        let Account {
            lane,
            memory,
            unpacking,
            trees,
        } = self.account;
        let turn = unpacking.acquire(lane, 1, self.deadline).await?;
        let cancel = CancelOnDrop(Arc::new(AtomicBool::new(false)));
        let work = Work {
            request: self.request.clone(),
            limits: *self.limits,
            store: self.store.clone(),
            lane: lane.clone(),
            trees: *trees,
            fingerprint: self.fingerprint.clone(),
            cancelled: Arc::clone(&cancel.0),
        };
        let (work, pack, turn, measure) = self
            .blocking(move || {
                let measure = work.measure(&pack, algorithm)?;
                Ok((work, pack, turn, measure))
            })
            .await?;
        let room = memory.room();
        let wanted = measure.wanted(room.lane.min(room.all).saturating_sub(LIST_BYTES));
        let memory = memory.acquire(lane, wanted, self.deadline).await?;
        let stored = self
            .blocking(move || {
                // Both are held until the work really ends, also when nobody waits for it any more.
                let _turn = turn;
                work.run(&pack, algorithm, &selected, (measure, memory))
            })
            .await;
        drop(cancel);
        stored
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
    ) -> Result<T, FetchError> {
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
            Err(FetchError::InvalidPack {
                url: self.request.url.to_string(),
                problem: error.to_string(),
            })
        })
    }

    fn unchanged(&self, selected: &Selected) -> Option<Fetched> {
        let known = self.request.asked.known.as_ref()?;
        let revision = select::write_revision(&self.request.reference, selected.name.as_deref(), &selected.commit);
        let same = known.facts.revision == revision
            && known.fingerprint == self.fingerprint
            && self.store.contains(&self.request.source, &known.facts.digest);
        same.then_some(Fetched::Unchanged { revision })
    }

    fn not_found(&self, close: Vec<String>) -> FetchError {
        FetchError::ReferenceNotFound {
            what: select::describe_reference(&self.request.reference),
            url: self.request.url.to_string(),
            close,
        }
    }
}

/// Stops the work on another thread when the fetch is given up.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is left to do when the pack is there; it blocks.
struct Work {
    request: GitRequest,
    limits: Limits,
    store: ArtifactStore,
    lane: String,
    trees: Room,
    fingerprint: String,
    cancelled: Arc<AtomicBool>,
}

impl Work {
    fn measure(&self, received: &Incoming, algorithm: Algorithm) -> Result<Measure, FetchError> {
        Measure::of(received.file(), algorithm, &self.limits, &self.cancelled).map_err(|error| self.pack_error(error))
    }

    fn run(
        &self,
        received: &Incoming,
        algorithm: Algorithm,
        selected: &Selected,
        (measure, memory): (Measure, Held),
    ) -> Result<Fetched, FetchError> {
        let measured = (&measure, memory.bytes());
        let mut memory = Growing::used(memory);
        let mut pack = Pack::index(received.file(), algorithm, &self.limits, &self.cancelled, measured)
            .map_err(|error| self.pack_error(error))?;
        let commit_id = self.peel(&mut pack, selected.want)?;
        let content = pack
            .read(&commit_id, ObjectKind::Commit)
            .map_err(|error| self.pack_error(error))?;
        let content = content.ok_or_else(|| FetchError::ReferenceNotFound {
            what: select::describe_reference(&self.request.reference),
            url: self.request.url.to_string(),
            close: Vec::new(),
        })?;
        let commit = object::read_commit(&content)
            .ok_or_else(|| self.pack_error(PackError::Malformed(format!("commit {commit_id} is malformed"))))?;
        let mut target = self.store.incoming_file(&self.lane)?;
        let written = archive::write_archive(
            &mut pack,
            commit.tree,
            self.request.asked.ignore.as_deref(),
            &self.limits,
            (&self.trees, &mut memory),
            target.writer(&self.store),
        )
        .map_err(|error| self.archive_error(error, &commit_id, target.path()))?;
        let path = self.store.keep(&self.request.source, target, &written.digest)?;
        let artifact = StoredArtifact {
            facts: ArtifactFacts {
                revision: select::write_revision(&self.request.reference, selected.name.as_deref(), &commit_id),
                digest: written.digest,
                origin_revision: None,
            },
            size: written.size,
            path,
            stored_at: Some(Timestamp::now()),
            ignore: self.request.asked.ignore.clone(),
            fingerprint: self.fingerprint.clone(),
            metadata: std::collections::BTreeMap::new(),
        };
        Ok(Fetched::Stored {
            artifact,
            subject: Some(commit.subject),
        })
    }

    /// Follows tag objects to the commit.
    fn peel(&self, pack: &mut Pack<'_>, from: Oid) -> Result<Oid, FetchError> {
        let mut at = from;
        for _ in 0..8 {
            if pack.kind(&at) != Some(ObjectKind::Tag) {
                return Ok(at);
            }
            let content = pack
                .read(&at, ObjectKind::Tag)
                .map_err(|error| self.pack_error(error))?;
            at = content
                .and_then(|content| object::read_tag_target(&content))
                .ok_or_else(|| self.pack_error(PackError::Malformed(format!("tag {at} is malformed"))))?;
        }
        Err(self.pack_error(PackError::Malformed(format!("tag {from} points to tags without end"))))
    }

    fn pack_error(&self, error: PackError) -> FetchError {
        let url = self.request.url.to_string();
        match error {
            PackError::Io(source) => StorageError::Io {
                action: "read",
                path: "the received pack".to_owned(),
                source,
            }
            .into(),
            PackError::Malformed(problem) => FetchError::InvalidPack { url, problem },
            PackError::TooLarge { what, limit } => too_large(what, limit),
            // Nobody waits for this any more; it is only seen if the clock and the fetch end together.
            PackError::Cancelled => FetchError::Timeout {
                url,
                timeout: self.request.asked.timeout,
            },
        }
    }

    fn archive_error(&self, error: ArchiveError, commit: &Oid, target: &std::path::Path) -> FetchError {
        match error {
            ArchiveError::Pack(error) => self.pack_error(error),
            ArchiveError::InvalidTree(problem) => FetchError::InvalidTree {
                commit: commit.to_string(),
                problem,
            },
            ArchiveError::TooLarge { what, limit } => too_large(what, limit),
            ArchiveError::OverBudget(refused) => refused.into(),
            ArchiveError::Write(source) if account::find_refusal(&source).is_some() => account::find_refusal(&source)
                .map_or_else(|| self.store.io("write", target, source).into(), FetchError::from),
            ArchiveError::Write(source) => self.store.io("write", target, source).into(),
        }
    }
}

fn too_large(what: &'static str, limit: String) -> FetchError {
    FetchError::TooLarge {
        what,
        limit,
        advice: "take files out of the repository, or ask an admin for a larger limit",
    }
}
