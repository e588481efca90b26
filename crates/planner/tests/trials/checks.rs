//! The invariants of every status that a plan requests.

use tenure_api::{Kustomization, KustomizationStatus, ObjectId, condition, reason};
use tenure_planner::WriteAnswer;
use tenure_planner::kustomization::{Attempt, Memory};

use crate::world::World;

/// Checks that its conditions agree, and that its history tells of them.
pub(crate) fn check_status(name: &str, kustomization: &Kustomization, status: &KustomizationStatus) {
    let stalled = condition::is_true(&status.conditions, condition::STALLED);
    let reconciling = condition::is_true(&status.conditions, condition::RECONCILING);
    let ready = condition::is_true(&status.conditions, condition::READY);
    assert!(!(stalled && reconciling), "{name}: stalled and reconciling at once");
    assert!(
        !(ready && (stalled || reconciling)),
        "{name}: ready and not ready at once"
    );
    assert!(status.history.len() <= 5);
    let why = condition::find(&status.conditions, condition::READY).map(|ready| (&*ready.reason, &*ready.message));
    let newest = status.history.first().map(|entry| &*entry.last_reconciled_status);
    let is_going = kustomization.metadata.deletion_timestamp.is_some();
    match why.filter(|_| !is_going) {
        // The revision was built, and then refused or not removed.
        Some((why @ reason::PRUNE_FAILED, _)) => assert_eq!(newest, Some(why), "{name}"),
        Some((why, message)) if message.contains("dry-run failed") => assert_eq!(newest, Some(why), "{name}"),
        Some((why @ reason::BUILD_FAILED, _)) => assert_ne!(newest, Some(why), "{name}: nothing was built"),
        _ => {}
    }
}

/// At the end of an attempt, every object that it deleted to recreate it exists again, unless a finalizer holds it or the API server refused it.
pub(crate) fn check_recreated(name: &str, memory: &Memory, attempt: &Attempt, world: &mut World) {
    let is_refused = |id: &ObjectId| {
        let answers = [attempt.applied.get(id), attempt.dry_runs.get(id)];
        let mut answers = answers.into_iter().flatten();
        answers.any(|answer| matches!(answer, WriteAnswer::Failed(_)))
    };
    for id in memory.recreating.iter().filter(|id| !is_refused(id)) {
        assert!(!world.read(id).is_gone(), "{name}: {id} was not recreated");
    }
}
