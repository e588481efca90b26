//! The step from the answers of one plan to the Snapshot of the next.

use jiff::Timestamp;
use tenure_api::Kustomization;

use super::changes;
use super::object_action::find_version;
use super::step::RenderRequest;
use super::types::{Attempt, RenderFailure, Rendered, ServiceAccountFacts, Snapshot};
use crate::answer::{Answer, DeleteAnswer, ImpliedState, KindAnswer, Live, WriteAnswer};
use crate::object::RenderedObject;

impl Snapshot {
    /// Takes the answer to a step of this attempt.
    pub fn record_answer(&mut self, answer: Answer) -> ImpliedState {
        if let Answer::Applied(id, WriteAnswer::Done(_)) = &answer
            && id.kind == "CustomResourceDefinition"
        {
            // The cluster may serve an unknown kind now.
            self.kinds.retain(|_, answer| !matches!(answer, KindAnswer::Unknown));
        }
        if let Answer::DryRun(id, _) = &answer {
            // A second dry-run, after a read, is an answer about the read object.
            if self.live.contains_key(id) {
                self.attempt.unseen.remove(id);
            } else {
                self.attempt.unseen.insert(id.clone());
            }
        }
        match answer {
            Answer::Kind(kind, answer) => {
                self.kinds.insert(kind, answer);
                None
            }
            other => self.attempt.record_answer(other),
        }
    }

    /// Begins another attempt, for which the answers of the last one don't count. Returns the last rendering, since the next attempt may request the same one. A failed
    /// rendering is useless for it.
    pub fn restart(&mut self, now: Timestamp, kustomization: &Kustomization) -> Option<Rendered> {
        let rendered = self.attempt.rendered.take();
        changes::store_changes(&mut self.memory, &self.attempt);
        self.attempt = Attempt::new(now, kustomization);
        self.service_account = ServiceAccountFacts::NotLooked;
        // Asking again costs no request, and a definition may have gone.
        self.kinds.clear();
        rendered.filter(|rendered| rendered.outcome.is_ok())
    }

    /// Takes a rendering; the time of the first one is kept.
    pub fn take_rendered(&mut self, rendered: Rendered, now: Timestamp) {
        self.attempt.rendered = Some(rendered);
        self.attempt.rendered_at.get_or_insert(now);
    }
}

impl Attempt {
    /// Takes the answer to a step about one object.
    pub fn record_answer(&mut self, answer: Answer) -> ImpliedState {
        let (id, answer) = match answer {
            // Finalizers in a repository's objects stay.
            Answer::Kind(..) | Answer::Released(..) | Answer::Disowned(..) => return None,
            Answer::Live(id, answer) => {
                DeleteAnswer::look_again(&mut self.deleted, &id);
                return Some((id, answer));
            }
            Answer::Deleted(id, answer) => {
                DeleteAnswer::insert_counted(&mut self.deleted, id, answer);
                return None;
            }
            Answer::DryRun(id, answer) => {
                let absent = is_creation(&answer).then(|| (id.clone(), Live::Absent));
                self.dry_runs.insert(id, answer);
                return absent;
            }
            Answer::Tried(id, answer) => {
                self.tried.insert(id, answer);
                return None;
            }
            Answer::Created(id, answer) => {
                self.created.insert(id, answer);
                return None;
            }
            Answer::Claims(namespace, answer) => {
                self.claims.insert(namespace, answer);
                return None;
            }
            Answer::TriedDelete(id, answer) => {
                self.tried_deletes.insert(id, answer);
                return None;
            }
            Answer::Applied(id, answer) => {
                self.applied.insert(id.clone(), answer.clone());
                (id, answer)
            }
            Answer::TakenOver(id, answer) => {
                self.taken_over.insert(id.clone(), answer.clone());
                (id, answer)
            }
        };
        match answer {
            WriteAnswer::Done(object) => Some((id, Live::Present(object))),
            WriteAnswer::Failed(_) => None,
        }
    }
}

/// Checks whether a dry-run shows that the object would be created. The answer then has no version: only stored objects have one, and a dry-run stores nothing.
fn is_creation(answer: &WriteAnswer) -> bool {
    match answer {
        WriteAnswer::Done(object) => find_version(&object.0).is_none(),
        WriteAnswer::Failed(_) => false,
    }
}

impl Rendered {
    /// Makes the result of a request: the objects or the failure, and the encrypted files that were changed afterwards.
    #[must_use]
    pub fn new(
        request: &RenderRequest,
        outcome: Result<Vec<RenderedObject>, RenderFailure>,
        changed_files: Vec<String>,
    ) -> Self {
        Self {
            artifact_digest: request.artifact_digest.clone(),
            path: request.path.clone(),
            overlay: request.overlay.clone(),
            inputs: request.inputs.digest().clone(),
            changed_files,
            outcome,
        }
    }

    /// Checks whether the result was rendered from the requested artifact and inputs.
    #[must_use]
    pub fn is_of(&self, request: &RenderRequest) -> bool {
        self.artifact_digest == request.artifact_digest && self.is_like(request)
    }

    /// Checks whether the result has the requested path, overlay and inputs. Then it also fits another artifact with equal files in the rendered part.
    #[must_use]
    pub fn is_like(&self, request: &RenderRequest) -> bool {
        self.path == request.path && self.overlay == request.overlay && self.inputs == *request.inputs.digest()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::render_inputs::{RenderInputs, Variable};

    #[test]
    fn only_changed_inputs_are_rendered_again() {
        let request = |value: &str| {
            let variable = Variable::new(value.as_bytes().to_vec(), true);
            RenderRequest {
                artifact_digest: "sha256:1".to_owned(),
                revision: "main@sha1:1".to_owned(),
                path: ".".to_owned(),
                overlay: crate::Overlay::default(),
                inputs: RenderInputs::with_variables(BTreeMap::from([("v".to_owned(), variable)])),
            }
        };
        let rendered = Rendered::new(&request("a"), Ok(Vec::new()), Vec::new());
        assert!(rendered.is_of(&request("a")));
        assert!(rendered.is_of(&request("a\n")), "line feeds are taken out");
        assert!(!rendered.is_of(&request("b")));
        let mut without = request("a");
        without.inputs = RenderInputs::default();
        assert!(!rendered.is_of(&without));
        let mut elsewhere = request("a");
        elsewhere.artifact_digest = "sha256:2".to_owned();
        assert!(rendered.is_like(&elsewhere) && !rendered.is_of(&elsewhere));
        assert!(!rendered.is_like(&request("b")), "whatever its files are");
    }
}
