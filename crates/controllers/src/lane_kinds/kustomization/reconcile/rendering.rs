//! The rendering of a Kustomization: requested, reused, and kept while memory is available.

use jiff::Timestamp;
use tenure_api::Kustomization;
use tenure_planner::Next;
use tenure_planner::kustomization::{RenderFailure, RenderRequest};

use super::super::referenced_objects::ReferencedObjects;
use super::KustomizationReconciler;
use crate::lane::Lane;
use crate::lane_kinds::kustomization::observe;
use crate::lane_kinds::kustomization::stored_rendering::StoredRendering;
use crate::rendering::renderer::{RenderedWithMemory, Renderer};

impl KustomizationReconciler {
    /// Checks whether the files of an artifact are the same as in the last rendering.
    pub(super) async fn is_same_in(&self, artifact_digest: &str, kustomization: &Kustomization) -> bool {
        let Some(seen) = &self.seen else { return false };
        let placement = self.shard.read_placement().await;
        let references = ReferencedObjects::new(&self.shard, &placement, &self.borrowed_objects);
        let Some((shard, source)) = observe::find_source(&self.shard, references, kustomization) else {
            return false;
        };
        let lane = self.shard.lane().await;
        Renderer::are_same(&shard.artifacts, (&source, artifact_digest), seen, &lane.limits).await
    }

    /// Puts the requested rendering into the attempt: the stored one if it has the same files and inputs, or else a new one.
    pub(super) async fn render(&mut self, request: &RenderRequest, kustomization: &Kustomization) {
        // The previous rendering frees its memory first, whether it is reused or not.
        let mut known = self.rendered.take().filter(|rendered| rendered.is_like(request));
        if let Some(rendered) = &mut known
            && !rendered.is_of(request)
        {
            if self.is_same_in(&request.artifact_digest, kustomization).await {
                rendered.set_artifact_digest(&request.artifact_digest);
            } else {
                known = None;
            }
        }
        let rendered = match known {
            Some(known) => {
                let turns = self.shard.lane().await.limits.turns.clone();
                turns.run(known.bytes(), || known.restore()).await
            }
            None => None,
        };
        let Some(snapshot) = &mut self.snapshot else { return };
        if let Some(rendered) = rendered {
            snapshot.take_rendered(rendered, Timestamp::now());
            return;
        }
        self.room = None;
        if let Some(begun) = self.begun.take().filter(|begun| !begun.is_of(request)) {
            // The attempt has already applied another rendering. The plan sees that and starts again.
            snapshot.attempt.rendered = Some(begun);
            return;
        }
        let placement = self.shard.read_placement().await;
        let references = ReferencedObjects::new(&self.shard, &placement, &self.borrowed_objects);
        let Some((shard, source)) = observe::find_source(&self.shard, references, kustomization) else {
            return;
        };
        let (lane, artifacts) = (self.shard.lane().await, &shard.artifacts);
        let renderer = &self.shard.context.renderer;
        let RenderedWithMemory { rendered, room, seen } =
            renderer.render(artifacts, &source, request, &lane.limits).await;
        (self.room, self.seen) = (room, seen);
        snapshot.take_rendered(rendered, Timestamp::now());
    }

    /// Keeps the rendering while no attempt works, if memory is available. Otherwise the next attempt renders again.
    pub(super) fn keep_rendered(&mut self, next: &Next, lane: &Lane) {
        let Some(snapshot) = &mut self.snapshot else { return };
        if matches!(next, Next::Done(_)) {
            let rendered = snapshot.attempt.rendered.take();
            if let Some(rendered) = rendered.and_then(StoredRendering::from_success) {
                self.rendered = Some(rendered);
            }
        }
        self.room = self.shard.context.renderer.reserve_kept(&lane.limits, self.room.take());
        if self.room.is_some() {
            return;
        }
        (self.rendered, self.seen) = (None, None);
        // A failure needs no memory, and a waiting attempt needs it as its answer.
        if let Some(rendered) = &mut snapshot.attempt.rendered
            && rendered.outcome.is_ok()
        {
            rendered.outcome = Err(RenderFailure {
                message: "the rendering is not cached".to_owned(),
                artifact_missing: false,
            });
            self.begun = snapshot.attempt.rendered.take();
        }
    }
}
