//! Marks on disk of what is being reconciled, so that a process which is started after one that ended in the midst of it doesn't begin
//! with just that again. Owns the marks and the turns; how long somebody waits is the planner's (`tenure_planner::restart`).
//!
//! A mark is a small file that is written before an attempt and removed after it. It is not synced: it has to outlive the process,
//! not the machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_planner::{digest, restart};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::key::Key;

/// How long those that were not under way may keep the others waiting.
const OTHERS: Duration = Duration::from_secs(60);

/// What a mark says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Mark {
    kind: String,
    namespace: String,
    name: String,
    /// How often the process has ended in the midst of it, one after the other.
    crashes: u32,
    /// Whether it is being worked on, or only waits because of the marks of earlier ones.
    begun: bool,
}

/// What is being reconciled, and what was when an earlier process ended.
#[derive(Debug)]
pub(crate) struct UnderWay {
    folder: PathBuf,
    /// How often a process ended in the midst of it, by the name of the mark.
    found: Mutex<HashMap<String, Mark>>,
    turns: Arc<Semaphore>,
    /// How many that have no mark have not ended their first attempt.
    others: watch::Sender<usize>,
}

impl UnderWay {
    /// Reads the marks that an earlier process left. What can't be read or written is no reason not to start.
    pub(crate) fn open(folder: PathBuf) -> Self {
        if let Err(error) = std::fs::create_dir_all(&folder) {
            tracing::warn!(%error, "what is under way can't be marked");
        }
        let mut found = HashMap::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // One that was being written counts as begun.
            let read = std::fs::read(entry.path()).ok();
            let read = read.and_then(|bytes| serde_json::from_slice::<Mark>(&bytes).ok());
            let mut mark = read.unwrap_or(Mark {
                begun: true,
                ..Mark::default()
            });
            if mark.begun {
                mark.begun = false;
                mark.crashes = mark.crashes.saturating_add(1);
                write(&entry.path(), &mark);
            }
            found.insert(name, mark);
        }
        if !found.is_empty() {
            tracing::warn!(
                count = found.len(),
                "the controllers ended unexpectedly before: what was under way waits for what was not"
            );
        }
        Self {
            folder,
            found: Mutex::new(found),
            turns: Arc::new(Semaphore::new(1)),
            others: watch::Sender::new(0),
        }
    }

    /// How often an earlier process ended in the midst of this one; 0 for most.
    pub(crate) fn crashes(&self, key: &Key) -> u32 {
        self.lock().get(&file(key)).map_or(0, |mark| mark.crashes)
    }

    /// Marks that an attempt begins; it has ended when the answer is dropped.
    pub(crate) fn begin(&self, key: &Key) -> Marked<'_> {
        let name = file(key);
        let path = self.folder.join(&name);
        let mark = Mark {
            kind: key.kind.name.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            crashes: self.lock().get(&name).map_or(0, |mark| mark.crashes),
            begun: true,
        };
        write(&path, &mark);
        Marked {
            under_way: self,
            name,
            path,
        }
    }

    /// Counts one that has no mark as not having ended its first attempt, until the answer is dropped.
    pub(crate) fn first(&self) -> First<'_> {
        self.others.send_modify(|count| *count += 1);
        First(self)
    }

    /// Waits until those that have no mark have ended their first attempt, and for one's own turn among the others.
    pub(crate) async fn turn(&self) -> Turn {
        let mut others = self.others.subscribe();
        let _ = tokio::time::timeout(OTHERS, others.wait_for(|count| *count == 0)).await;
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // One that takes long keeps the next waiting for a while only.
        tokio::spawn(async move {
            let _ = tokio::time::timeout(restart::ALONE, ended.cancelled()).await;
            drop(permit);
        });
        Turn(guard)
    }

    /// Forgets the marks of objects that are gone.
    pub(crate) fn forget_gone(&self, exists: impl Fn(&str, &str, &str) -> bool) {
        self.lock().retain(|name, mark| {
            let stays = exists(&mark.kind, &mark.namespace, &mark.name);
            if !stays {
                let _ = std::fs::remove_file(self.folder.join(name));
            }
            stays
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Mark>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attempt that is under way.
#[derive(Debug)]
pub(crate) struct Marked<'a> {
    under_way: &'a UnderWay,
    name: String,
    path: PathBuf,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.name);
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "a mark could not be removed");
        }
    }
}

/// A first attempt that has not ended.
#[derive(Debug)]
pub(crate) struct First<'a>(&'a UnderWay);

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.others.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// One's own turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held until it is dropped")] DropGuard);

/// The name of an object's mark: names of objects may be longer than those of files.
fn file(key: &Key) -> String {
    digest::digest_bytes(key.to_string().as_bytes()).replace(':', "-")
}

fn write(path: &Path, mark: &Mark) {
    let written = serde_json::to_vec(mark)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(path, text));
    if let Err(error) = written {
        tracing::debug!(%error, "a mark could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciled::Reconciled as _;

    fn key(name: &str) -> Key {
        Key::new(tenure_api::Kustomization::KIND, "team", name)
    }

    /// A process that ends without being told to drops nothing.
    fn crash(mark: Marked<'_>) {
        std::mem::forget(mark);
    }

    #[test]
    fn only_what_was_begun_counts() {
        let folder = std::env::temp_dir().join(format!("tenure-under-way-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let open = || UnderWay::open(folder.clone());
        let first = open();
        drop(first.begin(&key("ended")));
        crash(first.begin(&key("culprit")));
        crash(first.begin(&key("beside")));

        let second = open();
        let counts = |under_way: &UnderWay| ["ended", "culprit", "beside"].map(|name| under_way.crashes(&key(name)));
        assert_eq!(counts(&second), [0, 1, 1]);
        // The other waits while it ends the process again.
        crash(second.begin(&key("culprit")));

        let third = open();
        assert_eq!(counts(&third), [0, 2, 1]);
        // One that ends well is like any other.
        drop(third.begin(&key("beside")));
        assert_eq!(counts(&third), [0, 2, 0]);
        assert_eq!(counts(&open()), [0, 2, 0]);

        // A mark cut short is one.
        std::fs::write(folder.join(file(&key("torn"))), "{\"kin").unwrap();
        let fourth = open();
        assert_eq!(fourth.crashes(&key("torn")), 1);
        fourth.forget_gone(|kind, namespace, name| (kind, namespace, name) == ("Kustomization", "team", "beside"));
        assert_eq!(counts(&open()), [0, 0, 0]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn they_begin_after_the_others_and_one_at_a_time() {
        let folder = std::env::temp_dir().join(format!("tenure-under-way-turns-{}", std::process::id()));
        let under_way = UnderWay::open(folder.clone());
        let other = under_way.first();
        let waiting = under_way.turn();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(other);
        let turn = waiting.await;
        let next = under_way.turn();
        tokio::pin!(next);
        assert!(futures::poll!(&mut next).is_pending());
        drop(turn);
        drop(next.await);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
