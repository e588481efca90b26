//! One fetch of a chart: find its version, stop if nothing changed, else receive it, check it, and package it if its values or its version change.

use std::cell::RefCell;
use std::io::Seek as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::chart::{ChartFacts, PulledChart};
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::helm::ChartRequest;
use tokio::time::Instant;

use super::archive::{ARCHIVE_BYTES, ChartTree, UNPACKED_BYTES, check_archive, read_archive, read_metadata};
use super::error::ChartError;
use super::fetch_index::read_text;
use super::folder::{ChartReader, FoundChart};
use super::index::{self, ListedVersion};
use super::metadata::{Metadata, set_build_metadata};
use super::package::{FindValues, replace_values, write_package};
use super::repository::{HttpRepository, ReceivedFile};
use super::request::{ArtifactPlace, ChartFetch, Origin, write_fingerprint};
use crate::archive_writer::WriteError;
use crate::artifact::{ArtifactStore, IncomingFile, SourceKey};
use crate::budget::HeldBytes;
use crate::cancel::spawn_cancellable;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError};
use crate::fetch_budgets::{self, FetchBudgets, GrowingCharge};
use crate::limits::{Limits, describe_bytes};
use crate::oci::{self, OciRequest};

/// Bytes of the buffers of a connection, and of unpacking one archive and packing another.
const BUFFER_BYTES: u64 = 2 << 20;

/// Counts the bytes of memory that the files of the chart's source take; zero for a chart of a repository.
///
/// # Errors
/// [`StorageError::Missing`] when the artifact of the source is no longer stored, or another [`StorageError`].
pub fn count_files(request: &ChartFetch, store: &ArtifactStore) -> Result<u64, StorageError> {
    match &request.origin {
        Origin::Files(place) => store.loaded_size(&place.key, &place.digest),
        Origin::Index { .. } | Origin::Registry(_) => Ok(0),
    }
}

/// Fetches the chart of the request, if it isn't the known artifact already. `room` is the memory of [`count_files`].
///
/// Drop the future to cancel: connections close and work on other threads stops. Memory and disk are charged to the account and to the store; the fetch waits for memory.
///
/// # Errors
/// A [`ChartError`] that says what failed and what to do.
pub fn fetch_chart<'a>(
    request: &'a ChartFetch,
    room: Option<HeldBytes>,
    reach: impl Into<Connector>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
) -> BoxFuture<'a, Result<Fetched, ChartError>> {
    let reach = reach.into();
    Box::pin(async move {
        let timeout = request.asked.timeout;
        let fetching = Fetch {
            request,
            limits,
            store,
            account,
            // Waits for capacity end shortly before the timeout, so that the error names the missing capacity.
            deadline: Instant::now() + timeout.saturating_sub(Duration::from_secs(1).min(timeout / 10)),
        };
        let url = request.asked.chart.clone();
        let timed_out = || Err(ChartError::Fetch(FetchError::Timeout { url, timeout }));
        let result = tokio::time::timeout(timeout, fetching.run(room, reach)).await;
        result.unwrap_or_else(|_| timed_out())
    })
}

/// A fetch of a chart: the request, and the limits, store and budgets that it uses.
struct Fetch<'a> {
    request: &'a ChartFetch,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
    deadline: Instant,
}

/// The request and the limits for a thread that packages a chart.
struct Packaging {
    source: SourceKey,
    asked: ChartRequest,
    limits: Limits,
    store: ArtifactStore,
    account: FetchBudgets,
}

/// A chart that was packaged or checked, with its archive.
struct PackagedChart {
    file: IncomingFile,
    digest: String,
    size: u64,
    version: String,
    facts: ChartFacts,
}

/// The result of checking a stored archive.
enum CheckedChart {
    /// The chart was packaged with other values.
    Packaged(Box<PackagedChart>),
    /// The archive is used unchanged.
    Unchanged(Metadata),
}

/// The values files of a chart are in the chart itself.
struct ValuesInChart;

impl FindValues for ValuesInChart {
    fn find_values(&self, files: &ChartTree, path: &str) -> Option<Bytes> {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        files.get(&parts.join("/")).map(|file| file.content.clone())
    }
}

impl FindValues for ChartReader<'_> {
    fn find_values(&self, _files: &ChartTree, path: &str) -> Option<Bytes> {
        self.read_file(path)
    }
}

impl Fetch<'_> {
    async fn run(&self, room: Option<HeldBytes>, reach: Connector) -> Result<Fetched, ChartError> {
        match &self.request.origin {
            Origin::Index {
                repository,
                index,
                version,
            } => {
                let dialer = Dialer::new(reach, self.limits);
                let fetched = self.fetch_from_index(repository, (index, version), &dialer).await;
                // If the byte limit was reached, it is the cause of any error that the protocol reported.
                fetched.map_err(|error| {
                    dialer
                        .budget()
                        .limit_error()
                        .map_or(error, ChartError::from_chart_request)
                })
            }
            Origin::Registry(request) => self.fetch_from_registry(request, reach).await,
            Origin::Files(place) => self.package_files(place, room).await,
        }
    }

    async fn fetch_from_index(
        &self,
        repository: &HttpRepository,
        (index, version): (&ArtifactPlace, &str),
        dialer: &Dialer,
    ) -> Result<Fetched, ChartError> {
        let seen = PulledChart {
            revision: index.digest.clone(),
            fingerprint: write_fingerprint(&[("request", &self.request.fingerprint), ("range", version)]),
        };
        let known = self.request.known();
        let known = known.filter(|known| self.store.contains(&self.request.source, &known.facts.digest));
        // The same index gives the same chart: a large one is not read again at each interval.
        if let Some(known) = known
            && known.chart.as_ref().and_then(|chart| chart.pulled.as_ref()) == Some(&seen)
        {
            let revision = known.facts.revision.clone();
            return Ok(Fetched::Unchanged { revision });
        }
        let listed = self.find_version(index, version).await?;
        let name = &self.request.asked.chart;
        let address = listed.url.as_deref();
        let address = address.ok_or_else(|| ChartError::Pull(format!("chart '{name}' has no downloadable URLs")))?;
        let url = repository.resolve(address)?;
        let fingerprint = write_fingerprint(&[
            ("request", &self.request.fingerprint),
            ("version", &listed.version),
            ("url", address),
            ("digest", listed.digest.as_deref().unwrap_or_default()),
        ]);
        if let Some(known) = known.filter(|known| known.fingerprint == fingerprint) {
            let mut artifact = known.clone();
            if let Some(chart) = &mut artifact.chart {
                chart.pulled = Some(seen);
            }
            return Ok(Fetched::Stored {
                artifact,
                subject: None,
            });
        }
        let FetchBudgets { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, BUFFER_BYTES, self.deadline).await?;
        let bound = ("the chart", ARCHIVE_BYTES.min(self.limits.received_bytes));
        let received = repository
            .download(&url, (dialer, self.store, lane), bound)
            .await
            .map_err(ChartError::from_chart_request)?;
        if let Some(digest) = &listed.digest
            && received.digest != format!("sha256:{digest}")
        {
            return Err(ChartError::Pull(format!(
                "the archive of version '{}' has digest {}, and the index says sha256:{digest}: update the index of the repository",
                listed.version, received.digest
            )));
        }
        let packaging = self.prepare();
        let made = self.in_turn(move |cancelled| {
            let mut memory = GrowingCharge::new_used(held);
            packaging.finish_received(received, cancelled, &mut memory)
        });
        let mut made = made.await?;
        made.facts.pulled = Some(seen);
        self.store_chart(made, fingerprint)
    }

    /// Reads the index, and chooses the version.
    async fn find_version(&self, index: &ArtifactPlace, version: &str) -> Result<ListedVersion, ChartError> {
        let FetchBudgets { lane, memory, .. } = self.account;
        let bytes = index.size.saturating_mul(2);
        let memory = memory.acquire(lane, bytes, self.deadline).await?;
        let (store, index) = (self.store.clone(), index.clone());
        let (name, version) = (self.request.asked.chart.clone(), version.to_owned());
        self.in_turn(move |cancelled| {
            let _memory = memory;
            let text = read_text(&store.open_verified(&index.key, &index.digest)?)?;
            let read = index::read_index(&text, Some(&name), cancelled).map_err(ChartError::Index)?;
            drop(text);
            let refuse = |problem: String| {
                ChartError::Reference(format!("failed to get chart version for remote reference: {problem}"))
            };
            let versions = read
                .versions
                .ok_or_else(|| refuse(format!("no chart name found: '{name}'")))?;
            index::choose_version(&name, &versions, &version)
                .cloned()
                .map_err(refuse)
        })
        .await
    }

    async fn fetch_from_registry(&self, request: &OciRequest, reach: Connector) -> Result<Fetched, ChartError> {
        let fetched = oci::fetch_artifact(request, reach, self.limits, self.store, self.account).await;
        let pulled = match fetched.map_err(ChartError::from_registry)? {
            Fetched::Unchanged { .. } => {
                let known = self.request.known();
                let revision = known.map(|known| known.facts.revision.clone()).unwrap_or_default();
                return Ok(Fetched::Unchanged { revision });
            }
            Fetched::Stored { artifact, .. } => artifact,
        };
        let facts = PulledChart {
            revision: pulled.facts.revision.clone(),
            fingerprint: pulled.fingerprint.clone(),
        };
        let packaging = self.prepare();
        let digest = pulled.facts.digest.clone();
        let FetchBudgets { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, BUFFER_BYTES, self.deadline).await?;
        let checked = self.in_turn(move |cancelled| {
            let mut memory = GrowingCharge::new_used(held);
            packaging.check_stored((&digest, pulled.size), cancelled, &mut memory)
        });
        let fingerprint = self.request.fingerprint.clone();
        match checked.await? {
            CheckedChart::Packaged(mut made) => {
                made.facts.pulled = Some(facts);
                self.store_chart(*made, fingerprint)
            }
            CheckedChart::Unchanged(metadata) => Ok(Fetched::Stored {
                artifact: StoredArtifact {
                    facts: ArtifactFacts {
                        revision: metadata.version,
                        origin_revision: None,
                        ..pulled.facts
                    },
                    fingerprint,
                    metadata: std::collections::BTreeMap::new(),
                    chart: Some(ChartFacts {
                        name: metadata.name,
                        pulled: Some(facts),
                        ..ChartFacts::default()
                    }),
                    ..pulled
                },
                subject: None,
            }),
        }
    }

    async fn package_files(&self, place: &ArtifactPlace, room: Option<HeldBytes>) -> Result<Fetched, ChartError> {
        let FetchBudgets { lane, memory, .. } = self.account;
        let memory = memory.acquire(lane, BUFFER_BYTES, self.deadline).await?;
        let packaging = self.prepare();
        let (place, request_fingerprint) = (place.clone(), self.request.fingerprint.clone());
        let known = self.request.known().cloned();
        let known = known.filter(|known| self.store.contains(&self.request.source, &known.facts.digest));
        let made = self.in_turn(move |cancelled| {
            let _room = room;
            let tree = packaging.store.load(&place.key, &place.digest, &packaging.limits)?;
            let reader = ChartReader {
                tree: &tree,
                cancelled,
                memory: RefCell::new(GrowingCharge::new_used(memory)),
            };
            packaging.package_folder(&reader, |name, version| {
                let fingerprint =
                    write_fingerprint(&[("request", &request_fingerprint), ("name", name), ("version", version)]);
                let is_known = known.as_ref().is_some_and(|known| known.fingerprint == fingerprint);
                (!is_known).then_some(fingerprint)
            })
        });
        match made.await? {
            Some((made, fingerprint)) => self.store_chart(made, fingerprint),
            None => {
                let known = self.request.known();
                let revision = known.map(|known| known.facts.revision.clone()).unwrap_or_default();
                Ok(Fetched::Unchanged { revision })
            }
        }
    }

    fn prepare(&self) -> Packaging {
        Packaging {
            source: self.request.source.clone(),
            asked: self.request.asked.clone(),
            limits: *self.limits,
            store: self.store.clone(),
            account: self.account.clone(),
        }
    }

    fn store_chart(&self, made: PackagedChart, fingerprint: String) -> Result<Fetched, ChartError> {
        let known = self.request.known().filter(|known| known.facts.digest == made.digest);
        let stored_at = known.and_then(|known| known.stored_at);
        let path = self
            .store
            .store_archive(&self.request.source, made.file, &made.digest)?;
        let artifact = StoredArtifact {
            facts: ArtifactFacts {
                revision: made.version,
                digest: made.digest,
                origin_revision: None,
            },
            size: made.size,
            path,
            stored_at: stored_at.or_else(|| Some(Timestamp::now())),
            fingerprint,
            chart: Some(made.facts),
            ..StoredArtifact::default()
        };
        Ok(Fetched::Stored {
            artifact,
            subject: None,
        })
    }

    /// Runs work on a thread for blocking work in the lane's turn. The turn is held until the work really ends.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, ChartError> + Send + 'static,
    ) -> Result<T, ChartError> {
        let FetchBudgets { lane, unpacking, .. } = self.account;
        let turn = unpacking.acquire(lane, 1, self.deadline).await?;
        let done = spawn_cancellable(move |cancelled| {
            let _turn = turn;
            work(cancelled)
        });
        done.await.unwrap_or(Err(ChartError::Cancelled))
    }
}

impl Packaging {
    /// Checks a received archive, and packages the chart again if its values change. Blocks.
    fn finish_received(
        &self,
        received: ReceivedFile,
        cancelled: &AtomicBool,
        memory: &mut GrowingCharge,
    ) -> Result<PackagedChart, ChartError> {
        let ReceivedFile { file, digest, size } = received;
        let mut archive = file.file();
        archive.rewind().map_err(|error| self.explain_io(&file, error))?;
        if let Some(packaged) = self.package_archive(archive, cancelled, memory)? {
            return Ok(packaged);
        }
        archive.rewind().map_err(|error| self.explain_io(&file, error))?;
        let metadata = check_archive(archive, cancelled).map_err(ChartError::Pull)?;
        Ok(describe_unchanged(file, (digest, size), metadata))
    }

    /// Checks a stored archive, and packages the chart again if its values change. Blocks.
    fn check_stored(
        &self,
        (digest, size): (&str, u64),
        cancelled: &AtomicBool,
        memory: &mut GrowingCharge,
    ) -> Result<CheckedChart, ChartError> {
        if size > ARCHIVE_BYTES {
            let limit = describe_bytes(ARCHIVE_BYTES);
            return Err(ChartError::Pull(format!("the chart is larger than {limit}")));
        }
        let open = || {
            let mut file = self.store.open_verified(&self.source, digest)?;
            let rewound = file.rewind();
            rewound.map_err(|error| self.store.io_error("read", Path::new("the chart"), error))?;
            Ok::<_, StorageError>(file)
        };
        if let Some(packaged) = self.package_archive(&open()?, cancelled, memory)? {
            return Ok(CheckedChart::Packaged(Box::new(packaged)));
        }
        let metadata = check_archive(&open()?, cancelled).map_err(ChartError::Pull)?;
        Ok(CheckedChart::Unchanged(metadata))
    }

    /// Packages an archive with other values; `None` if they don't change. Blocks.
    fn package_archive(
        &self,
        archive: &std::fs::File,
        cancelled: &AtomicBool,
        memory: &mut GrowingCharge,
    ) -> Result<Option<PackagedChart>, ChartError> {
        if self.asked.values_files.is_empty() && self.asked.version_metadata.is_none() {
            return Ok(None);
        }
        let mut files = read_archive(archive, cancelled, memory).map_err(|error| error.explain(ChartError::Package))?;
        let metadata = read_metadata(&files).map_err(ChartError::Package)?;
        let version = self.write_version(&metadata)?;
        let used = self.merge_values(&mut files, &ValuesInChart)?;
        self.write(&files, &metadata, version, used).map(Some)
    }

    /// Packages a chart of another source. `begin` gets the name and the version, and returns the fingerprint if the chart has to be made. Blocks.
    fn package_folder(
        &self,
        reader: &ChartReader<'_>,
        begin: impl FnOnce(&str, &str) -> Option<String>,
    ) -> Result<Option<(PackagedChart, String)>, ChartError> {
        let (mut files, archive) = match reader.read_chart(&self.asked.chart)? {
            FoundChart::Archive(archive) => {
                let files = reader
                    .unpack(&archive)
                    .map_err(|error| error.explain(ChartError::Reference))?;
                (files, Some(archive))
            }
            FoundChart::Folder(files) => (files, None),
        };
        let metadata = read_metadata(&files).map_err(ChartError::Reference)?;
        let version = self.write_version(&metadata)?;
        let Some(fingerprint) = begin(&metadata.name, &version) else {
            return Ok(None);
        };
        let made = match archive {
            Some(archive) if self.asked.values_files.is_empty() && version == metadata.version => {
                self.copy_archive(&archive, metadata)?
            }
            is_archive => {
                let used = self.merge_values(&mut files, reader)?;
                if is_archive.is_none() {
                    reader.add_dependencies(&self.asked.chart, &mut files, &metadata)?;
                }
                self.write(&files, &metadata, version, used)?
            }
        };
        Ok(Some((made, fingerprint)))
    }

    fn write_version(&self, metadata: &Metadata) -> Result<String, ChartError> {
        match &self.asked.version_metadata {
            None => Ok(metadata.version.clone()),
            Some(build) => set_build_metadata(&metadata.version, build).map_err(ChartError::Version),
        }
    }

    fn merge_values(&self, files: &mut ChartTree, finder: &impl FindValues) -> Result<Vec<String>, ChartError> {
        let wanted = &self.asked.values_files;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        replace_values(files, wanted, self.asked.ignores_missing_values_files, finder)
    }

    /// Copies an archive of another source.
    fn copy_archive(&self, archive: &Bytes, metadata: Metadata) -> Result<PackagedChart, ChartError> {
        let mut file = self.store.incoming_file(&self.account.lane)?;
        let path = file.path().to_owned();
        let copied = std::io::copy(&mut archive.as_ref(), &mut file.writer(&self.store));
        copied.map_err(|error| self.explain_write(&path, error))?;
        file.complete();
        let hash = <sha2::Sha256 as sha2::Digest>::digest(archive);
        let digest = format!("sha256:{}", hex::encode(hash));
        Ok(describe_unchanged(file, (digest, archive.len() as u64), metadata))
    }

    fn write(
        &self,
        files: &ChartTree,
        metadata: &Metadata,
        version: String,
        values_files: Vec<String>,
    ) -> Result<PackagedChart, ChartError> {
        let mut file = self.store.incoming_file(&self.account.lane)?;
        let path = file.path().to_owned();
        let limits = Limits {
            unpacked_bytes: 2 * UNPACKED_BYTES,
            ..self.limits
        };
        let out = (file.writer(&self.store), &limits, &self.account.trees);
        let written = write_package(files, metadata, &version, out).map_err(|error| match error {
            WriteError::Invalid(problem) => ChartError::Package(problem),
            WriteError::TooLarge { what, limit } => ChartError::Package(format!("{what} exceed {limit}")),
            WriteError::OverBudget(refused) => ChartError::OverBudget(refused),
            WriteError::Io(error) => self.explain_write(&path, error),
        })?;
        file.complete();
        if written.size > ARCHIVE_BYTES {
            let limit = describe_bytes(ARCHIVE_BYTES);
            return Err(ChartError::Package(format!("the package is larger than {limit}")));
        }
        Ok(PackagedChart {
            file,
            digest: written.digest,
            size: written.size,
            version,
            facts: ChartFacts {
                name: metadata.name.clone(),
                is_packaged: true,
                values_files,
                pulled: None,
            },
        })
    }

    fn explain_io(&self, file: &IncomingFile, error: std::io::Error) -> ChartError {
        self.store.io_error("read", file.path(), error).into()
    }

    fn explain_write(&self, path: &Path, error: std::io::Error) -> ChartError {
        match fetch_budgets::find_refusal(&error) {
            Some(refused) => ChartError::OverBudget(refused),
            None => self.store.io_error("write", path, error).into(),
        }
    }
}

/// Describes an unchanged archive.
fn describe_unchanged(file: IncomingFile, (digest, size): (String, u64), metadata: Metadata) -> PackagedChart {
    PackagedChart {
        file,
        digest,
        size,
        version: metadata.version,
        facts: ChartFacts {
            name: metadata.name,
            ..ChartFacts::default()
        },
    }
}
