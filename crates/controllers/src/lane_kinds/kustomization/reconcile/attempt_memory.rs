//! Memory for the objects that an attempt of a Kustomization reads: taken before it, and returned after it.

use std::time::Duration;

use tenure_sources::HeldBytes;
use tokio::time::Instant;

use super::KustomizationReconciler;
use crate::lane_kinds::kustomization::observed_objects;
use crate::lane_kinds::kustomization::suspended_attempt::{self, SuspendedAttempt};
use crate::limits::object_memory::ObjectMemory;

/// How long an attempt waits for memory for the objects that it reads.
const MEMORY_WAIT: Duration = Duration::from_secs(60);

impl KustomizationReconciler {
    /// Takes memory for an attempt's objects, and parses its stored answers again.
    pub(super) async fn reserve_memory(&mut self) {
        if self.object_memory.is_asked() {
            return;
        }
        let lane = self.shard.lane().await;
        let targets_remote_cluster = self.targets_remote_cluster();
        if self.uses_remote_memory != targets_remote_cluster {
            self.uses_remote_memory = targets_remote_cluster;
            self.object_memory = if targets_remote_cluster {
                self.shard.context.remote_clusters.object_memory()
            } else {
                ObjectMemory::new(self.shard.context.object_memory.clone())
            };
        }
        self.object_memory
            .reserve_memory(&lane.limits.name, Instant::now() + MEMORY_WAIT)
            .await;
        if let (Some(snapshot), Some(answers)) = (&mut self.snapshot, self.suspended.take()) {
            let bytes = answers.bytes();
            let restore = || answers.restore(&mut snapshot.attempt, &self.object_memory);
            lane.limits.turns.run(bytes, restore).await;
        }
    }

    /// Returns the text size of the attempt's work: the objects that it reads, and its rendered objects.
    pub(super) fn bytes(&self) -> usize {
        let rendered = self.room.as_ref().map_or(0, HeldBytes::bytes);
        observed_objects::estimate_text_bytes(self.object_memory.bytes().saturating_add(rendered))
    }

    /// Ends the use of parsed objects until the next round: only texts stay.
    pub(super) async fn release_memory(&mut self, is_done: bool) {
        if is_done {
            // The next attempt begins with the objects of the watches, and reads the others again.
            self.answered.clear();
        }
        let lane = self.shard.lane().await;
        let bytes = self.bytes();
        if let Some(snapshot) = &mut self.snapshot {
            let (attempt, live) = (&mut snapshot.attempt, &mut snapshot.live);
            let rendered = self.rendered.as_mut();
            let suspended = || {
                live.clear();
                if is_done {
                    // Another attempt gets its own answers.
                    suspended_attempt::drop_answers(attempt);
                    if let Some(rendered) = rendered {
                        rendered.compact();
                    }
                    return None;
                }
                SuspendedAttempt::take_from(attempt)
            };
            self.suspended = lane.limits.turns.run(bytes, suspended).await;
        }
        self.object_memory.give_back();
    }
}
