//! One fetch of a Git repository: list the references, stop if nothing changed, else receive, verify and store.
//!
//! This module has the order of these phases and the name of each failure. Decisions are in `policy`, `reference_selection` and `ignore`; `git` reads the bytes of servers.

use std::time::Duration;

use futures::future::BoxFuture;
use tenure_remote_requests::fetch::Fetched;
use tokio::time::Instant;

use crate::artifact::ArtifactStore;
use crate::cancel::CancelOnDrop;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets::FetchBudgets;
use crate::fingerprint::write_fingerprint;
use crate::git::oid::Oid;
use crate::git::wire::PackRequest;
use crate::lfs::{self, Contents, LfsTransfer, Repository, plan_contents};
use crate::limits::{Limits, describe_bytes};
use crate::pack_transfer::{PackTransfer, ReceivedPack, RemoteRepository};
use crate::reference_selection::{self, SelectedReference};
use crate::request::{GitRequest, Reference};
use crate::submodules::{self, Module, PendingSubmodules};
use crate::unpack::{PackedFiles, UnpackWork, Unpacked, WantedCommit};

/// Bytes that merging archives begins with; the list of their files comes on top.
const MERGE_BYTES: u64 = 512 << 10;
/// Bytes that are reserved for the list of a commit's files, if the budget allows them beside the objects.
const LIST_BYTES: u64 = 16 << 20;

/// Fetches the reference of the request, if it isn't the known artifact already.
///
/// Drop the future to cancel: connections close and work on other threads stops. Memory and disk are charged to the account and to the store; the fetch waits for memory.
///
/// # Errors
/// A [`FetchError`] that says what failed and what to do. [`FetchError::reason`] is the condition's reason, and [`FetchError::is_transient`] says whether a retry may help.
pub fn fetch<'a>(
    request: &'a GitRequest,
    reach: impl Into<Connector>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
) -> BoxFuture<'a, Result<Fetched, FetchError>> {
    Box::pin(fetch_in_time(request, reach.into(), limits, store, account))
}

/// Runs a fetch, and ends it at the timeout of the request.
async fn fetch_in_time(
    request: &GitRequest,
    reach: Connector,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<Fetched, FetchError> {
    // Waits for capacity end shortly before the timeout, so that the error names the missing capacity.
    let spare = Duration::from_secs(1).min(request.asked.timeout / 10);
    let dialer = Dialer::new(reach, limits).with_proxy(request.proxy.as_ref(), request.tls.ca.as_deref());
    let mut fetching = Fetch {
        request,
        home: RemoteRepository {
            url: request.url.clone(),
            credentials: request.credentials.clone(),
            tls: request.tls.clone(),
        },
        dialer: &dialer,
        limits,
        store,
        account,
        deadline: Instant::now() + request.asked.timeout.saturating_sub(spare),
        fingerprint: write_fingerprint(request),
    };
    let fetched = async {
        // A commit never changes: a stored commit needs no server.
        if let Some(unchanged) = fetching.find_commit()? {
            return Ok(unchanged);
        }
        if let Some(app) = &request.app {
            let (source, tls) = (&request.source, &request.tls);
            fetching.home.credentials = app.log_in(source, &request.tokens, &dialer, tls).await?;
        }
        fetching.run().await
    };
    let result = match tokio::time::timeout(request.asked.timeout, fetched).await {
        Ok(result) => result,
        Err(_) => {
            return Err(FetchError::Timeout {
                url: request.url.to_string(),
                timeout: request.asked.timeout,
            });
        }
    };
    if matches!(result, Err(FetchError::Unauthorized { .. })) {
        // The token may have been revoked before its end.
        request.tokens.forget(&request.source);
    }
    // If the byte limit was reached, it is the cause of any error that the protocol reported.
    result.map_err(|error| dialer.budget().limit_error().unwrap_or(error))
}

/// A fetch of a Git repository: the request, and the limits, store and budgets that it uses.
struct Fetch<'a> {
    request: &'a GitRequest,
    /// The source's own repository.
    home: RemoteRepository,
    dialer: &'a Dialer,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
    deadline: Instant,
    fingerprint: String,
}

impl Fetch<'_> {
    /// Returns the commit that the request names, if it names one.
    fn read_commit(&self) -> Result<Option<SelectedReference>, FetchError> {
        let Reference::Commit { id, branch } = &self.request.reference else {
            return Ok(None);
        };
        let commit = Oid::from_hex(id.as_bytes()).ok_or_else(|| self.not_found(Vec::new()))?;
        Ok(Some(SelectedReference {
            name: branch.as_ref().map(|branch| format!("refs/heads/{branch}")),
            want: commit,
            commit,
        }))
    }

    /// Finds the stored artifact of the commit that the request names.
    fn find_commit(&self) -> Result<Option<Fetched>, FetchError> {
        Ok(self.read_commit()?.and_then(|selected| self.find_unchanged(&selected)))
    }

    /// Runs the phases of the fetch: list references, compare, receive and store.
    async fn run(&self) -> Result<Fetched, FetchError> {
        if let Some(selected) = self.read_commit()? {
            let receiving = self.make_transfer(&self.home);
            let received = receiving
                .receive_commit(selected.want, selected.name.as_deref())
                .await?;
            let received = received.ok_or_else(|| self.not_found(Vec::new()))?;
            return self.store_artifact(received, selected).await;
        }
        let receiving = self.make_transfer(&self.home);
        let mut memory = receiving.acquire_memory().await?;
        let (mut transport, advertisement) = receiving.connect(&mut memory).await?;
        let prefixes = reference_selection::list_prefixes(&self.request.reference);
        let references = receiving
            .list(&mut transport, &advertisement, prefixes, &mut memory)
            .await?;
        let Some(selected) = reference_selection::select_reference(&self.request.reference, &references) else {
            let neighbours = reference_selection::list_neighbours(&self.request.reference);
            let references = receiving
                .list(&mut transport, &advertisement, neighbours, &mut memory)
                .await?;
            return Err(self.not_found(reference_selection::find_close_names(
                &self.request.reference,
                &references,
            )));
        };
        if let Some(unchanged) = self.find_unchanged(&selected) {
            return Ok(unchanged);
        }
        let ask = PackRequest::new(&advertisement, &[selected.want], true);
        let pack = receiving.receive_explained(&mut transport, ask).await?;
        let algorithm = advertisement.algorithm();
        drop((transport, references, advertisement));
        drop(memory);
        self.store_artifact(ReceivedPack { pack, algorithm }, selected).await
    }

    fn make_transfer<'b>(&'b self, remote: &'b RemoteRepository) -> PackTransfer<'b> {
        PackTransfer {
            remote,
            dialer: self.dialer,
            limits: self.limits,
            store: self.store,
            account: self.account,
            deadline: self.deadline,
        }
    }

    /// Stores the artifact of the received pack, of its submodules, and of its files in Git LFS.
    async fn store_artifact(&self, received: ReceivedPack, selected: SelectedReference) -> Result<Fetched, FetchError> {
        let cancel = CancelOnDrop::default();
        let mut used = FetchTotals::default();
        let wanted = WantedCommit::Own(selected.clone());
        let own = self
            .unpack_pack(&self.home, received, wanted, (&cancel, &mut used))
            .await?;
        let modules = self.fetch_submodules(&own, (&cancel, &mut used)).await?;
        let mut repositories = vec![Repository {
            path: String::new(),
            remote: self.home.clone(),
            lfs_config: own.lfs_config,
        }];
        let mut parts = Vec::new();
        for (module, unpacked) in modules {
            parts.push((module.path.clone(), unpacked.files));
            repositories.push(Repository {
                path: module.path,
                remote: module.remote,
                lfs_config: unpacked.lfs_config,
            });
        }
        let mut files = own.files;
        let commit = own.facts.commit;
        if self.make_work(&self.home, &cancel).merges_repositories() {
            files = self.merge_files((files, parts), commit, &cancel).await?;
        }
        if !files.pointers.is_empty() {
            let contents = self.fetch_contents(&files, &repositories, &selected).await?;
            if !contents.is_empty() {
                files = self.replace_pointers((files, contents), commit, &cancel).await?;
            }
        }
        let work = self.make_work(&self.home, &cancel);
        let stored = self
            .run_blocking(move || work.store_artifact(own.facts, files, &selected))
            .await;
        drop(cancel);
        stored
    }

    /// Merges the files of a commit with those of its submodules and of included sources.
    async fn merge_files(
        &self,
        (own, modules): (PackedFiles, Vec<(String, PackedFiles)>),
        commit: Oid,
        cancel: &CancelOnDrop,
    ) -> Result<PackedFiles, FetchError> {
        let work = self.make_work(&self.home, cancel);
        let FetchBudgets { lane, memory, .. } = self.account;
        let turn = self.account.unpacking.acquire(lane, 1, self.deadline).await?;
        let memory = memory.acquire(lane, MERGE_BYTES, self.deadline).await?;
        self.run_blocking(move || {
            let _turn = turn;
            work.merge_parts(&own, &modules, &commit, memory)
        })
        .await
    }

    /// Fetches the contents of the files in Git LFS, each from the server of its repository.
    async fn fetch_contents(
        &self,
        files: &PackedFiles,
        repositories: &[Repository],
        selected: &SelectedReference,
    ) -> Result<Contents, FetchError> {
        let sizes = (files.written.unpacked, &self.account.trees);
        let wanted = plan_contents(&files.pointers, repositories, sizes, self.limits)?;
        let mut contents = Contents::default();
        for (index, (server, pointers)) in wanted {
            let Some(repository) = repositories.get(index) else {
                continue;
            };
            let transfer = LfsTransfer {
                remote: &repository.remote,
                reference: selected.name.as_deref().filter(|_| index == 0),
                dialer: self.dialer,
                store: self.store,
                account: self.account,
                deadline: self.deadline,
            };
            let fetched = transfer.fetch(server, &pointers, files.pointers.bytes(), &mut contents);
            fetched.await?;
        }
        Ok(contents)
    }

    /// Puts contents in place of pointers.
    async fn replace_pointers(
        &self,
        (files, contents): (PackedFiles, Contents),
        commit: Oid,
        cancel: &CancelOnDrop,
    ) -> Result<PackedFiles, FetchError> {
        let work = self.make_work(&self.home, cancel);
        let FetchBudgets { lane, memory, .. } = self.account;
        let turn = self.account.unpacking.acquire(lane, 1, self.deadline).await?;
        let needed = lfs::REPLACING_BYTES.saturating_add(files.pointers.bytes());
        let memory = memory.acquire(lane, needed, self.deadline).await?;
        self.run_blocking(move || {
            let _held = (turn, memory);
            work.replace_pointers(&files, &contents, &commit)
        })
        .await
    }

    /// Fetches the submodules of a commit, each at exactly the named commit, and their submodules.
    async fn fetch_submodules(
        &self,
        own: &Unpacked,
        (cancel, used): (&CancelOnDrop, &mut FetchTotals),
    ) -> Result<Vec<(Module, Unpacked)>, FetchError> {
        let mut modules = Vec::new();
        if !self.request.asked.submodules {
            return Ok(modules);
        }
        let mut pending = PendingSubmodules::new(&self.home, &own.submodules)?;
        while let Some(module) = pending.take_next() {
            let fail = |error| submodules::add_submodule_path(&module.path, error);
            let receiving = self.make_transfer(&module.remote);
            let received = receiving.receive_commit(module.commit, None).await.map_err(fail)?;
            let received = received.ok_or_else(|| {
                fail(FetchError::ReferenceNotFound {
                    what: format!("commit {}", module.commit),
                    url: module.remote.url.to_string(),
                    close: Vec::new(),
                })
            })?;
            let wanted = WantedCommit::Submodule(module.commit);
            let unpacked = self.unpack_pack(&module.remote, received, wanted, (cancel, used));
            let unpacked = unpacked.await.map_err(fail)?;
            pending.add_nested(&module, &unpacked.submodules)?;
            modules.push((module, unpacked));
        }
        Ok(modules)
    }

    /// Turns a pack into an archive, on threads for blocking work, in the lane's turn, after the budget has capacity for its memory.
    async fn unpack_pack(
        &self,
        remote: &RemoteRepository,
        received: ReceivedPack,
        wanted: WantedCommit,
        (cancel, used): (&CancelOnDrop, &mut FetchTotals),
    ) -> Result<Unpacked, FetchError> {
        let FetchBudgets {
            lane,
            memory,
            unpacking,
            ..
        } = self.account;
        let ReceivedPack { pack, algorithm } = received;
        let turn = unpacking.acquire(lane, 1, self.deadline).await?;
        let work = self.make_work(remote, cancel);
        let (work, pack, turn, measure) = self
            .run_blocking(move || {
                let measure = work.measure_pack(&pack, algorithm)?;
                Ok((work, pack, turn, measure))
            })
            .await?;
        used.add_objects(measure.total, self.limits)?;
        let room = memory.process_limits();
        let needed = measure.wanted_bytes(room.lane.min(room.all).saturating_sub(LIST_BYTES));
        let memory = memory.acquire(lane, needed, self.deadline).await?;
        let unpacked = self.run_blocking(move || {
            // The turn and the memory are held until the blocking work ends, even if the fetch was cancelled before.
            let _turn = turn;
            work.unpack(&pack, algorithm, &wanted, (measure, memory))
        });
        let unpacked = unpacked.await?;
        used.add_unpacked(unpacked.files.written.unpacked, self.limits)?;
        Ok(unpacked)
    }

    fn make_work(&self, remote: &RemoteRepository, cancel: &CancelOnDrop) -> UnpackWork {
        UnpackWork {
            request: self.request.clone(),
            url: remote.url.to_string(),
            limits: *self.limits,
            store: self.store.clone(),
            lane: self.account.lane.clone(),
            trees: self.account.trees,
            fingerprint: self.fingerprint.clone(),
            cancelled: cancel.share(),
        }
    }

    /// Runs work on a thread for blocking work. A panic of the work becomes an error.
    async fn run_blocking<T: Send + 'static>(
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

    /// Returns [`Fetched::Unchanged`] if the known artifact has this revision and the same other inputs, and is stored.
    fn find_unchanged(&self, selected: &SelectedReference) -> Option<Fetched> {
        let known = self.request.asked.known.as_ref()?;
        let revision =
            reference_selection::write_revision(&self.request.reference, selected.name.as_deref(), &selected.commit);
        let same = known.facts.revision == revision
            && known.fingerprint == self.fingerprint
            && self.store.contains(&self.request.source, &known.facts.digest);
        same.then_some(Fetched::Unchanged { revision })
    }

    fn not_found(&self, close: Vec<String>) -> FetchError {
        FetchError::ReferenceNotFound {
            what: reference_selection::describe_reference(&self.request.reference),
            url: self.request.url.to_string(),
            close,
        }
    }
}

/// The bytes of objects and of unpacked files in all repositories of a fetch. A repository with submodules has the same limits as one without.
#[derive(Default)]
struct FetchTotals {
    objects: u64,
    unpacked: u64,
}

impl FetchTotals {
    fn add_objects(&mut self, bytes: u64, limits: &Limits) -> Result<(), FetchError> {
        self.objects = self.objects.saturating_add(bytes);
        refuse_beyond("bytes of objects", self.objects, limits.object_bytes)
    }

    fn add_unpacked(&mut self, bytes: u64, limits: &Limits) -> Result<(), FetchError> {
        self.unpacked = self.unpacked.saturating_add(bytes);
        refuse_beyond("unpacked bytes", self.unpacked, limits.unpacked_bytes)
    }
}

/// Returns an error if the number of bytes exceeds the limit.
fn refuse_beyond(what: &'static str, bytes: u64, limit: u64) -> Result<(), FetchError> {
    if bytes > limit {
        return Err(FetchError::TooLarge {
            what,
            limit: describe_bytes(limit),
            advice: "take submodules out of the repository, or ask an administrator for a larger limit",
        });
    }
    Ok(())
}
