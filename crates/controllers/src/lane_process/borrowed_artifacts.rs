//! Artifacts that a lane's process borrows from other lanes. The process asks the hub, which answers only for references that an administrator
//! grants. The artifact of each source is stored in the process's own folder, within its own budget, while a Kustomization or an ArtifactGenerator
//! here names the source. An archive with a digest other than the announced one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_api::{ArtifactGenerator, Kustomization};
use tenure_planner::kustomization::{SourceFacts, find_source_namespace};
use tenure_remote_requests::artifact::ArtifactFacts;
use tenure_sources::SourceKey;

use super::hub_channel::HubChannel;
use super::hub_dialer::HubDialer;
use crate::artifacts::storage::ArtifactStorage;
use crate::cluster_view::key::Key;
use crate::lane::Shard;
use crate::lane::lane_references::{BorrowedObject, Reference, ReferenceAnswer};
use crate::lane_protocol::messages::{Answer, Question};

/// The key of the stored copy of one source's artifact, if a copy exists. The lock is held during a transfer.
type Place = Arc<tokio::sync::Mutex<Option<SourceKey>>>;

/// Borrows objects of other lanes through the hub, and stores copies of their artifacts in the lane's own folder.
#[derive(Debug)]
pub(super) struct ArtifactBorrower {
    line: Arc<HubChannel>,
    dialer: Arc<HubDialer>,
    artifact_storage: Arc<ArtifactStorage>,
    /// By the kind, namespace and name of a source.
    places: Mutex<BTreeMap<Key, Place>>,
}

impl ArtifactBorrower {
    pub(super) fn new(
        line: &Arc<HubChannel>,
        dialer: &Arc<HubDialer>,
        artifact_storage: &Arc<ArtifactStorage>,
    ) -> Self {
        Self {
            line: Arc::clone(line),
            dialer: Arc::clone(dialer),
            artifact_storage: Arc::clone(artifact_storage),
            places: Mutex::default(),
        }
    }

    fn lock_places(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the target of a namespace's reference. Its artifact is charged to `lane`.
    pub(super) async fn borrow(&self, from: &str, key: &Key, lane: &str) -> BorrowedObject {
        let reference = Reference {
            from: from.to_owned(),
            kind: key.kind.name.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        };
        let answer = match self.line.ask(Question::Loan(reference.clone())).await {
            Some(Answer::Loan(answer)) => *answer,
            _ => return BorrowedObject::Unknown("the controllers gave no answer about it".to_owned()),
        };
        match answer {
            ReferenceAnswer::Nothing => BorrowedObject::Nothing,
            ReferenceAnswer::Own => BorrowedObject::Unknown("its namespace has just come to this tenant".to_owned()),
            ReferenceAnswer::Unknown(why) => BorrowedObject::Unknown(why),
            ReferenceAnswer::Kustomization(object) => match serde_json::from_value::<Kustomization>(object) {
                Ok(kustomization) => BorrowedObject::Kustomization(Arc::new(kustomization)),
                Err(error) => BorrowedObject::Unknown(format!("it can't be read: {error}")),
            },
            ReferenceAnswer::Source {
                uid,
                artifact,
                conditions,
            } => {
                let source = match SourceKey::new(key.kind.name, &key.namespace, &key.name, &uid) {
                    Ok(source) => source,
                    Err(error) => return BorrowedObject::Unknown(error.to_string()),
                };
                if let Some(artifact) = &artifact
                    && let Err(problem) = self.fetch((key, &source), artifact, &reference, lane).await
                {
                    return BorrowedObject::Unknown(format!("its artifact can't be taken over: {problem}"));
                }
                BorrowedObject::Source {
                    source,
                    facts: SourceFacts::Found { artifact, conditions },
                }
            }
        }
    }

    /// Ensures that an archive is in the own store.
    async fn fetch(
        &self,
        (key, source): (&Key, &SourceKey),
        artifact: &ArtifactFacts,
        reference: &Reference,
        lane: &str,
    ) -> Result<(), String> {
        let place = Arc::clone(self.lock_places().entry(key.clone()).or_default());
        // Concurrent callers for the same source wait for the first.
        let mut kept = place.lock().await;
        if let Some(before) = kept.take_if(|before| *before != *source) {
            self.remove(&before);
        }
        *kept = Some(source.clone());
        let digest = artifact.digest.clone();
        if self.artifact_storage.store.contains(source, &digest) {
            return Ok(());
        }
        let file = self.dialer.open_artifact(reference, &digest).await;
        let file = file.map_err(|refusal| refusal.to_string())?;
        let (store, source, lane) = (self.artifact_storage.store.clone(), source.clone(), lane.to_owned());
        let importing = tokio::task::spawn_blocking(move || store.import(&source, &digest, &file, &lane)).await;
        importing
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }

    /// Removes artifacts that no object here names any more. An artifact whose source now belongs to the lane stays: it is no longer borrowed.
    pub(super) fn sweep(&self, shards: &[Arc<Shard>]) {
        if self.lock_places().is_empty() {
            return;
        }
        let own: BTreeSet<&str> = shards.iter().map(|shard| shard.namespace.as_str()).collect();
        let mut named: BTreeSet<(String, String, String)> = BTreeSet::new();
        for shard in shards {
            for generator in shard.caches.get::<ArtifactGenerator>().all() {
                for source in &generator.spec.sources {
                    let namespace = source.namespace.as_ref().unwrap_or(&shard.namespace);
                    named.insert((source.kind.clone(), namespace.clone(), source.name.clone()));
                }
            }
            for kustomization in shard.caches.get::<Kustomization>().all() {
                let source = &kustomization.spec.source_ref;
                let namespace = find_source_namespace(&kustomization).to_owned();
                named.insert((source.kind.clone(), namespace, source.name.clone()));
            }
        }
        let mut gone = Vec::new();
        self.lock_places().retain(|key, place| {
            let is_own = own.contains(key.namespace.as_str());
            let is_named = named.contains(&(key.kind.name.to_owned(), key.namespace.clone(), key.name.clone()));
            // An artifact in transfer is checked the next time.
            let Ok(mut kept) = place.try_lock() else { return true };
            if is_named && !is_own {
                return true;
            }
            gone.extend(kept.take().filter(|_| !is_own));
            false
        });
        gone.iter().for_each(|source| self.remove(source));
    }

    fn remove(&self, source: &SourceKey) {
        if let Err(error) = self.artifact_storage.store.remove(source) {
            tracing::warn!(%error, source = ?source, "an artifact that is no longer borrowed could not be removed");
        }
    }
}
