//! The answers and the rendered objects of a waiting attempt, as text: parsed they take many times as much memory, and a wait may be long.

use std::collections::BTreeMap;

use tenure_api::ObjectId;
use tenure_planner::WriteAnswer;
use tenure_planner::kustomization::Attempt;

use super::stored_rendering::StoredRendering;
use crate::limits::object_memory::ObjectMemory;

/// The answers to the dry-runs, trials, applies or take-overs of an attempt, by object.
type Answers = BTreeMap<ObjectId, WriteAnswer>;

/// The answers and the rendered objects of a waiting attempt, as text. The attempt needs them to continue.
#[derive(Debug)]
pub(super) struct SuspendedAttempt {
    /// Answers to dry-runs, trials, applies and take-overs, in this order.
    answers: Vec<Vec<(ObjectId, Vec<u8>)>>,
    rendering: Option<StoredRendering>,
}

fn list_parts(attempt: &mut Attempt) -> [&mut Answers; 4] {
    [
        &mut attempt.dry_runs,
        &mut attempt.tried,
        &mut attempt.applied,
        &mut attempt.taken_over,
    ]
}

/// Drops the answers of an attempt.
pub(super) fn drop_answers(attempt: &mut Attempt) {
    for answers in list_parts(attempt) {
        answers.clear();
    }
}

impl SuspendedAttempt {
    /// Takes the answers and the rendered objects out of an attempt; `None` if the attempt has none. A failed rendering stays in the attempt: the failure
    /// is small, and the waiting attempt needs it as its answer.
    pub(super) fn take_from(attempt: &mut Attempt) -> Option<Self> {
        let answers = list_parts(attempt).map(|answers| {
            let answers = std::mem::take(answers).into_iter();
            answers
                .filter_map(|(id, answer)| Some((id, serde_json::to_vec(&answer).ok()?)))
                .collect::<Vec<_>>()
        });
        let made = attempt.rendered.take_if(|rendered| rendered.outcome.is_ok());
        let mut rendering = made.and_then(StoredRendering::from_success);
        if let Some(rendering) = &mut rendering {
            rendering.compact();
        }
        let is_empty = rendering.is_none() && answers.iter().all(Vec::is_empty);
        (!is_empty).then(|| Self {
            answers: answers.into(),
            rendering,
        })
    }

    /// Returns the size of the texts.
    pub(super) fn bytes(&self) -> usize {
        let answers = self.answers.iter().flatten().map(|(_, text)| text.len());
        answers.sum::<usize>() + self.rendering.as_ref().map_or(0, StoredRendering::bytes)
    }

    /// Returns the rendering for another attempt, which can't use the answers.
    pub(super) fn into_rendering(self) -> Option<StoredRendering> {
        self.rendering
    }

    /// Puts the answers and the rendered objects back into an attempt. Answers without memory for their objects become failures.
    pub(super) fn restore(self, attempt: &mut Attempt, object_memory: &ObjectMemory) {
        for (answers, texts) in list_parts(attempt).into_iter().zip(self.answers) {
            for (id, text) in texts {
                if let Ok(answer) = serde_json::from_slice(&text) {
                    answers.insert(id, object_memory.admit_written(answer));
                }
            }
        }
        if let Some(rendering) = self.rendering {
            attempt.rendered = rendering.restore();
        }
    }
}
