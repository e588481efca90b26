//! Memory for the objects that an attempt reads: existing objects, and answers to requests.
//!
//! Objects are parsed while an attempt works, and parsed they take many times the size of their text. So each attempt takes memory from its lane
//! before it begins: as much as it needed the last time, and more as it needs more. An object without memory counts as an object that could not be
//! read. Between attempts there is only text.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tenure_planner::answer::{Answer, Reason};
use tenure_planner::{Failure, Live, WriteAnswer};
use tenure_sources::{BudgetLimits, ByteBudget, HeldBytes, OverBudget};
use tokio::time::Instant;

/// The first amount of an attempt, if it is not known to need more.
const LEAST: u64 = 64 << 10;
/// The step in which more is taken, so that not every object has to ask.
const STEP: u64 = 256 << 10;
/// The size of a map: maps of the standard library are trees, and their smallest node has space for eleven entries.
const MAP: u64 = 640;
/// The minimum number of entries in such a node, if a map has more than one node.
const ENTRIES: usize = 5;

/// Estimates the memory of a parsed value. The estimate is not too low.
pub(crate) fn estimate_memory(value: &Value) -> u64 {
    let own = size_of::<Value>() as u64;
    own + match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(estimate_memory).sum(),
        Value::Object(map) => {
            let pieces = map.len().div_ceil(ENTRIES) as u64;
            let entries = map.iter().map(|(key, value)| key.len() as u64 + estimate_memory(value));
            pieces * MAP + entries.sum::<u64>()
        }
        _ => 0,
    }
}

/// The memory that one reconciler's attempt takes from its lane's budget for the objects that it reads.
#[derive(Debug)]
pub(crate) struct ObjectMemory {
    budget: ByteBudget,
    taken: Mutex<Taken>,
}

/// The memory of the current attempt, in bytes.
#[derive(Debug, Default)]
struct Taken {
    /// Whether the attempt has asked for memory, with or without success.
    asked: bool,
    held: Option<HeldBytes>,
    /// The amount taken before the attempt began, also for later objects.
    first: u64,
    /// Memory of existing objects in the current round.
    live: u64,
    /// Memory of the answers to dry-runs and writes, which stay until the attempt ends.
    answers: u64,
    /// The most that an attempt needed or would have needed.
    needed: u64,
}

impl ObjectMemory {
    pub(crate) fn new(budget: ByteBudget) -> Self {
        Self {
            budget,
            taken: Mutex::default(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the attempt has already asked for memory. An attempt asks once, because its rounds also end without memory.
    pub(crate) fn is_asked(&self) -> bool {
        self.taken().asked
    }

    /// Returns the charged size of the objects.
    pub(crate) fn bytes(&self) -> u64 {
        let taken = self.taken();
        taken.live.saturating_add(taken.answers)
    }

    /// Takes memory for an attempt, and waits for it until the deadline. Without memory, every object is refused.
    pub(crate) async fn reserve_memory(&self, lane: &str, deadline: Instant) {
        let room = self.budget.process_limits();
        let bytes = self.taken().needed.max(LEAST).min(room.lane).min(room.all);
        let held = self.budget.acquire(lane, bytes, deadline).await.ok();
        let mut taken = self.taken();
        taken.first = held.as_ref().map_or(0, HeldBytes::bytes);
        (taken.asked, taken.held) = (true, held);
        taken.needed = 0;
    }

    /// Returns all memory: the objects are gone.
    pub(crate) fn give_back(&self) {
        let mut taken = self.taken();
        (taken.asked, taken.live, taken.answers) = (false, 0, 0);
        let held = taken.held.take();
        drop(taken);
        // Outside the lock: others get the memory immediately.
        drop(held);
    }

    /// Begins a round: the objects of the previous round are gone.
    pub(crate) fn begin_round(&self) {
        self.taken().live = 0;
    }

    /// Begins an attempt: the answers of the previous attempt are gone.
    pub(crate) fn begin_attempt(&self) {
        self.taken().answers = 0;
    }

    /// Returns an existing object, if memory for it is available.
    pub(crate) fn admit_live(&self, live: Live) -> Live {
        let Some(bytes) = live.object().map(estimate_memory) else {
            return live;
        };
        match self.charge(|taken| &mut taken.live, bytes) {
            Ok(()) => live,
            Err(over) => Live::Failed(make_failure(&over)),
        }
    }

    fn admit_now(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Live(id, live) => Answer::Live(id, self.admit_live(live)),
            Answer::DryRun(id, answer) => Answer::DryRun(id, self.admit_written(answer)),
            Answer::Tried(id, answer) => Answer::Tried(id, self.admit_written(answer)),
            Answer::Created(id, answer) => Answer::Created(id, self.admit_written(answer)),
            Answer::Applied(id, answer) => Answer::Applied(id, self.admit_written(answer)),
            Answer::TakenOver(id, answer) => Answer::TakenOver(id, self.admit_written(answer)),
            Answer::Released(id, answer) => Answer::Released(id, self.admit_written(answer)),
            Answer::Disowned(id, answer) => Answer::Disowned(id, self.admit_written(answer)),
            other @ (Answer::Kind(..) | Answer::Claims(..) | Answer::TriedDelete(..) | Answer::Deleted(..)) => other,
        }
    }

    /// Returns the answer to a write or a dry-run, if memory for it is available. A successful write without memory for its answer counts as a write
    /// without an answer: the next attempt sees the result.
    pub(crate) fn admit_written(&self, answer: WriteAnswer) -> WriteAnswer {
        let WriteAnswer::Done(object) = &answer else {
            return answer;
        };
        match self.charge(|taken| &mut taken.answers, estimate_memory(&object.0)) {
            Ok(()) => answer,
            Err(over) => WriteAnswer::Failed(make_failure(&over)),
        }
    }

    fn charge(&self, part: impl Fn(&mut Taken) -> &mut u64, bytes: u64) -> Result<(), OverBudget> {
        let mut taken = self.taken();
        let all = taken.live.saturating_add(taken.answers).saturating_add(bytes);
        taken.needed = taken.needed.max(all);
        let room = self.budget.process_limits();
        let Some(held) = &mut taken.held else {
            return Err(OverBudget::Full {
                what: room.what,
                needed: all,
                allowed: room.all,
                setting: room.all_setting,
                is_half: false,
                is_share: false,
            });
        };
        grow_reservation(held, all, &room)?;
        *part(&mut taken) += bytes;
        Ok(())
    }

    /// Waits for this much memory in addition, if this process has only a share and may get more, because the next step can't wait. Without memory,
    /// its objects are refused. If this process has the whole budget, this function does nothing: memory is taken when it is needed.
    pub(crate) async fn prepare(&self, bytes: u64) {
        if !self.budget.is_part() {
            return;
        }
        let room = self.budget.process_limits();
        let take = || {
            let mut taken = self.taken();
            let all = taken.live.saturating_add(taken.answers).saturating_add(bytes);
            let all = all.min(room.lane).min(room.all);
            taken
                .held
                .as_mut()
                .map_or(Ok(()), |held| grow_reservation(held, all, &room))
        };
        let _refused_then = self.budget.take_patiently(take).await;
    }

    /// Returns the memory that was prepared and not used, except the amount from before the attempt. Others may need it.
    pub(crate) fn release_unused(&self) {
        let mut taken = self.taken();
        let all = taken.live.saturating_add(taken.answers);
        let kept = all.checked_next_multiple_of(STEP).unwrap_or(all).max(taken.first);
        if let Some(held) = &mut taken.held {
            held.shrink_to(kept);
        }
    }

    /// Returns an answer, if memory for its object is available or becomes available.
    pub(crate) async fn admit(&self, answer: Answer) -> Answer {
        let object = match &answer {
            Answer::Live(_, live) => live.object(),
            Answer::DryRun(_, answer)
            | Answer::Tried(_, answer)
            | Answer::Created(_, answer)
            | Answer::Applied(_, answer)
            | Answer::TakenOver(_, answer)
            | Answer::Disowned(_, answer)
            | Answer::Released(_, answer) => match answer {
                WriteAnswer::Done(object) => Some(&object.0),
                _ => None,
            },
            Answer::Kind(..) | Answer::Claims(..) | Answer::TriedDelete(..) | Answer::Deleted(..) => None,
        };
        self.prepare(object.map_or(0, estimate_memory)).await;
        self.admit_now(answer)
    }
}

fn grow_reservation(held: &mut HeldBytes, all: u64, room: &BudgetLimits) -> Result<(), OverBudget> {
    if held.bytes() >= all {
        return Ok(());
    }
    let stepped = all.saturating_add(STEP).min(room.lane).min(room.all).max(all);
    held.try_grow_to(stepped).or_else(|_| held.try_grow_to(all))
}

fn make_failure(over: &OverBudget) -> Failure {
    Failure {
        reason: Reason::NoRoom,
        message: over.to_string(),
        ..Failure::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_planner::Object;
    use tenure_sources::BudgetLimits;

    use super::*;

    fn budget(lane: u64, all: u64) -> ByteBudget {
        ByteBudget::new(BudgetLimits {
            what: "objects that are looked at",
            lane,
            all,
            lane_setting: "--lane",
            all_setting: "--all",
            is_half: false,
        })
    }

    fn object(bytes: usize) -> Live {
        Live::Present(Object(json!({ "data": "x".repeat(bytes) })))
    }

    async fn make_memory(budget: &ByteBudget) -> ObjectMemory {
        let room = ObjectMemory::new(budget.clone());
        room.reserve_memory("team", Instant::now()).await;
        room
    }

    /// A lane's process prepares memory by an estimate, and in the end keeps what it uses. With the whole budget in one process, nothing is prepared.
    #[tokio::test]
    async fn unused_prepared_memory_is_given_back() {
        let part = budget(8 << 20, 16 << 20);
        part.follow_share(false);
        part.add_share(8 << 20);
        let room = ObjectMemory::new(part.clone());
        room.reserve_memory("one", Instant::now()).await;
        room.prepare(4 << 20).await;
        assert!(part.held() >= 4 << 20);
        assert!(room.admit_live(object(300_000)).object().is_some());
        room.release_unused();
        assert!((300_000..1 << 20).contains(&part.held()), "{}", part.held());
        let whole = budget(8 << 20, 16 << 20);
        let room = ObjectMemory::new(whole.clone());
        room.reserve_memory("one", Instant::now()).await;
        room.prepare(4 << 20).await;
        assert_eq!(whole.held(), LEAST);
    }

    #[tokio::test]
    async fn object_without_memory_counts_as_unread() {
        let budget = budget(1 << 20, 4 << 20);
        let room = make_memory(&budget).await;
        assert!(room.admit_live(object(700_000)).object().is_some());
        let Live::Failed(failure) = room.admit_live(object(700_000)) else {
            panic!("there is no room for two");
        };
        assert!(failure.is_transient());
        assert!(failure.message.ends_with("fit: --lane"), "{failure:?}");
        // Smaller objects fit in beside the first.
        assert!(room.admit_live(object(100_000)).object().is_some());
        assert!(budget.held() <= 1 << 20);
        // A new round frees the objects of the previous round, but not the answers.
        room.begin_round();
        let answer = WriteAnswer::Done(Object(json!("x".repeat(700_000))));
        assert!(matches!(room.admit_written(answer.clone()), WriteAnswer::Done(_)));
        room.begin_round();
        assert!(matches!(room.admit_written(answer), WriteAnswer::Failed(_)));
        room.give_back();
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn attempt_without_memory_waits_for_it_next_time() {
        let budget = budget(1 << 20, 1 << 20);
        let (first, second) = (make_memory(&budget).await, make_memory(&budget).await);
        assert!(first.admit_live(object(600_000)).object().is_some());
        assert!(second.admit_live(object(600_000)).object().is_none());
        second.give_back();
        let mut waiting =
            Box::pin(second.reserve_memory("team", Instant::now() + std::time::Duration::from_secs(3600)));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        first.give_back();
        waiting.await;
        assert!(second.admit_live(object(600_000)).object().is_some());
    }

    #[tokio::test]
    async fn no_object_is_admitted_without_memory() {
        let budget = budget(1 << 20, 1 << 20);
        let all = budget.try_acquire("other", 1 << 20).unwrap();
        let room = make_memory(&budget).await;
        assert!(room.is_asked());
        assert!(room.admit_live(object(1)).object().is_none());
        assert!(matches!(room.admit_live(Live::Absent), Live::Absent));
        drop(all);
    }

    /// A value that is small as text can be large when it is parsed.
    #[test]
    fn objects_are_charged_for_their_parsed_size() {
        let many = Value::Array(vec![json!({ "a": 1 }); 1000]);
        assert!(estimate_memory(&many) >= 1000 * 640, "{}", estimate_memory(&many));
        assert!(estimate_memory(&many) > 60 * many.to_string().len() as u64);
    }
}
