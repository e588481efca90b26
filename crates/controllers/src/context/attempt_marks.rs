//! Marks on disk of running reconciliations, so that a process that starts after a crash does not begin with the reconciliation that may have caused
//! it. This module has the marks and the turns. The planner decides how long a marked object waits (`tenure_planner::interrupted_attempts`).
//!
//! A mark is a small file that is written before an attempt and removed after it. It is not synced: it has to outlive the process, not the machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::digest::digest_bytes;
use tenure_planner::interrupted_attempts;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster_view::key::Key;

/// The longest time that marked objects wait for the first attempts of unmarked ones.
const OTHERS: Duration = Duration::from_secs(60);

/// The content of a mark's file: the object, and how often a process ended during its reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Mark {
    kind: String,
    namespace: String,
    name: String,
    /// The number of processes in a row that ended during its reconciliation.
    crashes: u32,
    /// True if the object was being reconciled; false if it only waited because of an earlier mark.
    begun: bool,
}

/// The marks on disk: of running attempts, and of attempts that ran when an earlier process ended.
#[derive(Debug)]
pub(crate) struct AttemptMarks {
    folder: PathBuf,
    /// The marks that an earlier process left, by file name.
    found: Mutex<HashMap<String, Mark>>,
    /// Has one permit, so that marked objects begin one after the other.
    turns: Arc<Semaphore>,
    /// The number of unmarked objects whose first attempt has not ended.
    others: watch::Sender<usize>,
}

impl AttemptMarks {
    /// Reads the marks of an earlier process. An unreadable or unwritable mark does not prevent the start.
    pub(crate) fn open(folder: PathBuf) -> Self {
        if let Err(error) = std::fs::create_dir_all(&folder) {
            tracing::warn!(%error, "attempts in progress can't be marked");
        }
        let mut found = HashMap::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // A mark that was being written counts as begun.
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
                "the controllers ended unexpectedly before: objects that were in progress wait for the others"
            );
        }
        Self {
            folder,
            found: Mutex::new(found),
            turns: Arc::new(Semaphore::new(1)),
            others: watch::Sender::new(0),
        }
    }

    /// Returns how many earlier processes in a row ended during the object's reconciliation; 0 for an unmarked object.
    pub(crate) fn count_crashes(&self, key: &Key) -> u32 {
        self.lock().get(&name_file(key)).map_or(0, |mark| mark.crashes)
    }

    /// Marks the beginning of an attempt. The attempt has ended when the returned value is dropped.
    pub(crate) fn mark_begin(&self, key: &Key) -> RunningAttempt<'_> {
        let name = name_file(key);
        let path = self.folder.join(&name);
        let mark = Mark {
            kind: key.kind.name.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            crashes: self.lock().get(&name).map_or(0, |mark| mark.crashes),
            begun: true,
        };
        write(&path, &mark);
        RunningAttempt {
            attempt_marks: self,
            name,
            path,
        }
    }

    /// Counts an unmarked object as being in its first attempt, until the returned value is dropped.
    pub(crate) fn begin_first_attempt(&self) -> FirstAttempt<'_> {
        self.others.send_modify(|count| *count += 1);
        FirstAttempt(self)
    }

    /// Waits for the first attempts of the unmarked objects, and then for a turn among the marked ones.
    pub(crate) async fn wait_for_marked_turn(&self) -> MarkedTurn {
        let mut others = self.others.subscribe();
        let _ = tokio::time::timeout(OTHERS, others.wait_for(|count| *count == 0)).await;
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // A long attempt blocks the next object only for a limited time.
        tokio::spawn(async move {
            let _ = tokio::time::timeout(interrupted_attempts::ALONE, ended.cancelled()).await;
            drop(permit);
        });
        MarkedTurn(guard)
    }

    /// Removes the marks of deleted objects.
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

/// The mark of a running attempt. Dropping this value removes the mark.
#[derive(Debug)]
pub(crate) struct RunningAttempt<'a> {
    attempt_marks: &'a AttemptMarks,
    name: String,
    path: PathBuf,
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        self.attempt_marks.lock().remove(&self.name);
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "a mark could not be removed");
        }
    }
}

/// Counts the first attempt of an unmarked object as running, until this value is dropped.
#[derive(Debug)]
pub(crate) struct FirstAttempt<'a>(&'a AttemptMarks);

impl Drop for FirstAttempt<'_> {
    fn drop(&mut self) {
        self.0.others.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The turn of one marked object. Dropping this value lets the next marked object begin.
#[derive(Debug)]
pub(crate) struct MarkedTurn(#[expect(dead_code, reason = "held until it is dropped")] DropGuard);

/// Returns the file name of an object's mark. Names of objects may be longer than file names.
fn name_file(key: &Key) -> String {
    digest_bytes(key.to_string().as_bytes()).replace(':', "-")
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
    use crate::reconcile_loop::reconciled::Reconciled as _;

    fn key(name: &str) -> Key {
        Key::new(tenure_api::Kustomization::KIND, "team", name)
    }

    /// Simulates a crash: a process that crashes drops nothing.
    fn crash(mark: RunningAttempt<'_>) {
        std::mem::forget(mark);
    }

    #[test]
    fn crash_counts_only_for_unfinished_attempts() {
        let folder = std::env::temp_dir().join(format!("tenure-under-way-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let open = || AttemptMarks::open(folder.clone());
        let first = open();
        drop(first.mark_begin(&key("ended")));
        crash(first.mark_begin(&key("culprit")));
        crash(first.mark_begin(&key("beside")));

        let second = open();
        let counts = |attempt_marks: &AttemptMarks| {
            ["ended", "culprit", "beside"].map(|name| attempt_marks.count_crashes(&key(name)))
        };
        assert_eq!(counts(&second), [0, 1, 1]);
        // The other object waits while this one ends the process again.
        crash(second.mark_begin(&key("culprit")));

        let third = open();
        assert_eq!(counts(&third), [0, 2, 1]);
        // An object whose attempt ends normally is like any other.
        drop(third.mark_begin(&key("beside")));
        assert_eq!(counts(&third), [0, 2, 0]);
        assert_eq!(counts(&open()), [0, 2, 0]);

        // A truncated mark counts as a mark.
        std::fs::write(folder.join(name_file(&key("torn"))), "{\"kin").unwrap();
        let fourth = open();
        assert_eq!(fourth.count_crashes(&key("torn")), 1);
        fourth.forget_gone(|kind, namespace, name| (kind, namespace, name) == ("Kustomization", "team", "beside"));
        assert_eq!(counts(&open()), [0, 0, 0]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn marked_objects_start_after_others_one_at_a_time() {
        let folder = std::env::temp_dir().join(format!("tenure-under-way-turns-{}", std::process::id()));
        let attempt_marks = AttemptMarks::open(folder.clone());
        let other = attempt_marks.begin_first_attempt();
        let waiting = attempt_marks.wait_for_marked_turn();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(other);
        let turn = waiting.await;
        let next = attempt_marks.wait_for_marked_turn();
        tokio::pin!(next);
        assert!(futures::poll!(&mut next).is_pending());
        drop(turn);
        drop(next.await);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
