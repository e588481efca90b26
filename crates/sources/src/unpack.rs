//! Turns a received pack into a stored artifact. The work blocks, so it belongs on threads for blocking work. It needs no connection: all its input is on the disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::fetch::Fetched;

use crate::archive::{self, ArchiveError, Archived, LfsConfigFile, Selection, Submodules};
use crate::archive_writer::Written;
use crate::artifact::{ArtifactStore, IncomingFile};
use crate::budget::{BudgetLimits, HeldBytes};
use crate::error::{FetchError, StorageError};
use crate::fetch_budgets::{self, GrowingCharge};
use crate::git::measure::Measure;
use crate::git::object;
use crate::git::oid::{Algorithm, Oid};
use crate::git::pack::{ObjectKind, Pack, PackError};
use crate::git::pointer_list::PointerList;
use crate::lfs::{Contents, replace_pointers};
use crate::limits::Limits;
use crate::merge::{Part, merge_archives};
use crate::reference_selection::{self, SelectedReference};
use crate::request::GitRequest;
use crate::verify::{ReceivedTag, TrustedSigners};

/// The input of the blocking work after a pack was received: unpacking, merging and storing.
pub(crate) struct UnpackWork {
    pub(crate) request: GitRequest,
    /// The address of the pack's repository.
    pub(crate) url: String,
    pub(crate) limits: Limits,
    pub(crate) store: ArtifactStore,
    pub(crate) lane: String,
    pub(crate) trees: BudgetLimits,
    pub(crate) fingerprint: String,
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// The commit of a pack that becomes the archive.
pub(crate) enum WantedCommit {
    /// The target of the source's own reference.
    Own(SelectedReference),
    /// Exactly this commit of a submodule.
    Submodule(Oid),
}

/// The archive of an artifact in a temporary file, before it is stored.
pub(crate) struct PackedFiles {
    pub(crate) archive: IncomingFile,
    pub(crate) written: Written,
    /// The files in it whose content is in Git LFS. Empty for an archive that is merged with others.
    pub(crate) pointers: PointerList,
}

/// The archive of a commit, with the facts about the commit that later steps need.
pub(crate) struct Unpacked {
    pub(crate) files: PackedFiles,
    pub(crate) facts: CommitFacts,
    pub(crate) submodules: Submodules,
    pub(crate) lfs_config: LfsConfigFile,
}

/// The facts about a commit that go into the record of its artifact.
#[derive(Clone)]
pub(crate) struct CommitFacts {
    pub(crate) commit: Oid,
    subject: String,
    verified: Option<String>,
}

impl UnpackWork {
    /// Measures the memory and work that indexing the pack takes.
    pub(crate) fn measure_pack(&self, received: &IncomingFile, algorithm: Algorithm) -> Result<Measure, FetchError> {
        Measure::from_pack(received.file(), algorithm, &self.limits, &self.cancelled)
            .map_err(|error| self.pack_error(error))
    }

    /// Indexes the pack, and writes the archive of the wanted commit.
    pub(crate) fn unpack(
        &self,
        received: &IncomingFile,
        algorithm: Algorithm,
        wanted: &WantedCommit,
        (measure, memory): (Measure, HeldBytes),
    ) -> Result<Unpacked, FetchError> {
        let measured = (&measure, memory.bytes());
        let mut memory = GrowingCharge::new_used(memory);
        let mut pack = Pack::index(received.file(), algorithm, &self.limits, &self.cancelled, measured)
            .map_err(|error| self.pack_error(error))?;
        let (commit_id, tag) = match wanted {
            WantedCommit::Own(selected) => self.peel_tags(&mut pack, selected.want)?,
            WantedCommit::Submodule(commit) => (*commit, None),
        };
        let content = pack
            .read(&commit_id, ObjectKind::Commit)
            .map_err(|error| self.pack_error(error))?;
        let content = content.ok_or_else(|| self.explain_missing(wanted, pack.kind(&commit_id)))?;
        let commit = object::read_commit(&content)
            .ok_or_else(|| self.pack_error(PackError::Malformed(format!("commit {commit_id} is malformed"))))?;
        let asked = &self.request.asked;
        let (selection, verified) = match wanted {
            WantedCommit::Own(selected) => {
                let trusted = self.request.trusted.as_ref();
                let verified = trusted.map(|trusted| {
                    let now = Timestamp::now().as_second();
                    trusted.verify(selected.name.as_deref(), tag.as_ref(), (&commit_id, &content), now)
                });
                let selection = Selection {
                    sparse: &asked.sparse,
                    ignoring: Some(asked.ignore.as_deref()),
                    submodules: asked.submodules,
                };
                (selection, verified.transpose()?)
            }
            // Ignore patterns are applied later, to the merged whole.
            WantedCommit::Submodule(_) => {
                let selection = Selection {
                    sparse: &[],
                    ignoring: None,
                    submodules: true,
                };
                (selection, None)
            }
        };
        let mut archive = self.store.incoming_file(&self.lane)?;
        let room = (&self.trees, &mut memory);
        let out = archive.writer(&self.store);
        // An archive that is merged may lose files to the ignore patterns of the whole.
        let mut pointers = PointerList::default();
        let listed = (!self.merges_repositories()).then_some(&mut pointers);
        let made = archive::write_archive(&mut pack, commit.tree, selection, &self.limits, room, listed, out);
        let made = made.map_err(|error| self.archive_error(error, &commit_id, archive.path()))?;
        let Archived {
            written,
            submodules,
            lfs_config,
        } = made;
        archive.complete();
        Ok(Unpacked {
            files: PackedFiles {
                archive,
                written,
                pointers,
            },
            facts: CommitFacts {
                commit: commit_id,
                subject: commit.subject,
                verified,
            },
            submodules,
            lfs_config,
        })
    }

    /// Explains why the commit is missing. `kind`: the kind of the object with this id.
    fn explain_missing(&self, wanted: &WantedCommit, kind: Option<ObjectKind>) -> FetchError {
        let url = self.url.clone();
        let (name, what) = match wanted {
            WantedCommit::Own(selected) => {
                let what = reference_selection::describe_reference(&self.request.reference);
                (selected.name.clone().unwrap_or_else(|| what.clone()), what)
            }
            WantedCommit::Submodule(commit) => (format!("commit {commit}"), format!("commit {commit}")),
        };
        match kind {
            Some(kind) => FetchError::NoCommit {
                name,
                kind: kind.name(),
                url,
            },
            None => FetchError::ReferenceNotFound {
                what,
                url,
                close: Vec::new(),
            },
        }
    }

    /// Checks whether files of other repositories are merged.
    pub(crate) fn merges_repositories(&self) -> bool {
        self.request.asked.submodules || !self.request.asked.include.is_empty()
    }

    /// Stores the artifact of a commit.
    pub(crate) fn store_artifact(
        &self,
        own: CommitFacts,
        files: PackedFiles,
        selected: &SelectedReference,
    ) -> Result<Fetched, FetchError> {
        let asked = &self.request.asked;
        let written = files.written;
        let path = self
            .store
            .store_archive(&self.request.source, files.archive, &written.digest)?;
        let artifact = StoredArtifact {
            facts: ArtifactFacts {
                revision: reference_selection::write_revision(
                    &self.request.reference,
                    selected.name.as_deref(),
                    &own.commit,
                ),
                digest: written.digest,
                origin_revision: None,
            },
            size: written.size,
            path,
            stored_at: Some(Timestamp::now()),
            ignore: asked.ignore.clone(),
            fingerprint: self.fingerprint.clone(),
            verified: own.verified,
            included: asked.include.iter().map(|include| include.artifact.clone()).collect(),
            metadata: std::collections::BTreeMap::new(),
            chart: None,
        };
        Ok(Fetched::Stored {
            artifact,
            subject: Some(own.subject),
        })
    }

    /// Makes the archive again with the contents of files in Git LFS.
    pub(crate) fn replace_pointers(
        &self,
        files: &PackedFiles,
        contents: &Contents,
        commit: &Oid,
    ) -> Result<PackedFiles, FetchError> {
        let mut target = self.store.incoming_file(&self.lane)?;
        let contents = contents.find();
        let bounds = (&self.limits, &self.trees);
        let out = target.writer(&self.store);
        let written = replace_pointers(files.archive.file(), &contents, bounds, out, &self.cancelled);
        let written = written.map_err(|error| self.archive_error(error, commit, target.path()))?;
        target.complete();
        Ok(PackedFiles {
            archive: target,
            written,
            pointers: PointerList::default(),
        })
    }

    /// Merges the included parts with a commit's own files.
    pub(crate) fn merge_parts(
        &self,
        own: &PackedFiles,
        modules: &[(String, PackedFiles)],
        commit: &Oid,
        memory: HeldBytes,
    ) -> Result<PackedFiles, FetchError> {
        let mut memory = GrowingCharge::new_unused(memory);
        let reopen = |archive: &IncomingFile| {
            let file = archive.reopen();
            file.map_err(|error| self.store.io_error("read", archive.path(), error))
        };
        let mut parts = vec![Part {
            name: "the repository itself".to_owned(),
            file: reopen(&own.archive)?,
            from: String::new(),
            to: String::new(),
            repository: Some(0),
        }];
        for (index, (path, module)) in modules.iter().enumerate() {
            parts.push(Part {
                name: format!("the submodule {path:?}"),
                file: reopen(&module.archive)?,
                from: String::new(),
                to: path.clone(),
                repository: Some(index + 1),
            });
        }
        for (include, source) in self.request.asked.include.iter().zip(&self.request.included) {
            parts.push(Part {
                name: format!("the included repository {:?}", include.name),
                file: self.store.open_verified(source, &include.artifact.facts.digest)?,
                from: include.from.clone(),
                to: include.to.clone(),
                repository: None,
            });
        }
        let mut target = self.store.incoming_file(&self.lane)?;
        let ignore = self.request.asked.ignore.as_deref();
        let room = (&self.trees, &mut memory);
        let out = target.writer(&self.store);
        let merged = merge_archives(&mut parts, ignore, &self.limits, room, out, &self.cancelled);
        let (written, pointers) = merged.map_err(|error| self.archive_error(error, commit, target.path()))?;
        Ok(PackedFiles {
            archive: target,
            written,
            pointers,
        })
    }

    /// Follows tag objects to the commit. Also returns the first tag object if its signature has to be verified.
    fn peel_tags(&self, pack: &mut Pack<'_>, from: Oid) -> Result<(Oid, Option<ReceivedTag>), FetchError> {
        let mut at = from;
        let mut first = None;
        for _ in 0..8 {
            if pack.kind(&at) != Some(ObjectKind::Tag) {
                return Ok((at, first));
            }
            let content = pack
                .read(&at, ObjectKind::Tag)
                .map_err(|error| self.pack_error(error))?;
            if at == from && self.request.trusted.as_ref().is_some_and(TrustedSigners::needs_tag) {
                first = content.clone().map(|content| ReceivedTag { id: from, content });
            }
            at = content
                .and_then(|content| object::read_tag_target(&content))
                .ok_or_else(|| self.pack_error(PackError::Malformed(format!("tag {at} is malformed"))))?;
        }
        Err(self.pack_error(PackError::Malformed(format!("tag {from} points to tags without end"))))
    }

    fn pack_error(&self, error: PackError) -> FetchError {
        let url = self.url.clone();
        match error {
            PackError::Io(source) => StorageError::Io {
                action: "read",
                path: "the received pack".to_owned(),
                source,
            }
            .into(),
            PackError::Malformed(problem) => FetchError::InvalidPack { url, problem },
            PackError::TooLarge { what, limit } => too_large(what, limit),
            // The fetch was cancelled. This error is visible only if the timeout and the fetch end at the same moment.
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
            ArchiveError::MissingFolder(folder) => FetchError::MissingFolder {
                folder,
                commit: commit.to_string(),
            },
            ArchiveError::Misplaced(problem) => FetchError::Misplaced { problem },
            ArchiveError::TooLarge { what, limit } => too_large(what, limit),
            ArchiveError::OverBudget(refused) => refused.into(),
            ArchiveError::Write(source) if fetch_budgets::find_refusal(&source).is_some() => {
                fetch_budgets::find_refusal(&source)
                    .map_or_else(|| self.store.io_error("write", target, source).into(), FetchError::from)
            }
            ArchiveError::Write(source) => self.store.io_error("write", target, source).into(),
        }
    }
}

fn too_large(what: &'static str, limit: String) -> FetchError {
    FetchError::TooLarge {
        what,
        limit,
        advice: "fetch less with spec.sparseCheckout or spec.ignore, or ask an administrator for a larger limit",
    }
}
