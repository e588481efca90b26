//! The answers of an attempt that waits, as text: parsed they take many times as much, and a wait may be long.

use std::collections::BTreeMap;

use tenure_api::ObjectId;
use tenure_planner::WriteAnswer;
use tenure_planner::kustomization::Attempt;

use crate::looking::LookingRoom;

type Answers = BTreeMap<ObjectId, WriteAnswer>;

/// Answers to dry-runs, trials, applies and take-overs, in this order.
#[derive(Debug)]
pub(super) struct PutAway(Vec<Vec<(ObjectId, Vec<u8>)>>);

fn parts(attempt: &mut Attempt) -> [&mut Answers; 4] {
    [
        &mut attempt.dry_runs,
        &mut attempt.tried,
        &mut attempt.applied,
        &mut attempt.taken_over,
    ]
}

/// Forgets the answers of an attempt.
pub(super) fn drop_answers(attempt: &mut Attempt) {
    for answers in parts(attempt) {
        answers.clear();
    }
}

impl PutAway {
    /// Takes the answers out of an attempt; nothing when it has none.
    pub(super) fn take(attempt: &mut Attempt) -> Option<Self> {
        let put_away = parts(attempt).map(|answers| {
            let answers = std::mem::take(answers).into_iter();
            answers
                .filter_map(|(id, answer)| Some((id, serde_json::to_vec(&answer).ok()?)))
                .collect::<Vec<_>>()
        });
        put_away
            .iter()
            .any(|answers| !answers.is_empty())
            .then(|| Self(put_away.into()))
    }

    /// How long they are.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().flatten().map(|(_, text)| text.len()).sum()
    }

    /// Puts them back, as far as there is room for them.
    pub(super) fn bring_back(self, attempt: &mut Attempt, looking: &LookingRoom) {
        for (answers, texts) in parts(attempt).into_iter().zip(self.0) {
            for (id, text) in texts {
                if let Ok(answer) = serde_json::from_slice(&text) {
                    answers.insert(id, looking.admit_written(answer));
                }
            }
        }
    }
}
