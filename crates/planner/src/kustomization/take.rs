//! How the answers to a plan's steps become part of what the next plan is made of.

use jiff::Timestamp;
use tenure_api::Kustomization;

use super::changes;
use super::step::RenderRequest;
use super::todo::find_version;
use super::types::{Attempt, RenderFailure, Rendered, ServiceAccountFacts, Snapshot};
use crate::answer::{Answer, DeleteAnswer, KindAnswer, Live, Told, WriteAnswer};
use crate::object::RenderedObject;

impl Snapshot {
    /// Takes the answer to a step of this attempt.
    pub fn take(&mut self, answer: Answer) -> Told {
        if let Answer::Applied(id, WriteAnswer::Done(_)) = &answer
            && id.kind == "CustomResourceDefinition"
        {
            // What was unknown may be served now.
            self.kinds.retain(|_, answer| !matches!(answer, KindAnswer::Unknown));
        }
        if let Answer::DryRun(id, _) = &answer {
            // Once more, after a look, it is an answer about what was looked at.
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
            other => self.attempt.take(other),
        }
    }

    /// Begins another attempt, to which the answers of the last one say nothing. Returns what was rendered in that one: the next may ask
    /// for the same. A failure is nothing that it could use.
    pub fn restart(&mut self, now: Timestamp, kustomization: &Kustomization) -> Option<Rendered> {
        let rendered = self.attempt.rendered.take();
        changes::keep(&mut self.memory, &self.attempt);
        self.attempt = Attempt::begin(now, kustomization);
        self.service_account = ServiceAccountFacts::NotLooked;
        // Asking again costs no request, and a definition may have gone.
        self.kinds.clear();
        rendered.filter(|rendered| rendered.outcome.is_ok())
    }

    /// Takes what was rendered; when the first of it was there is kept.
    pub fn take_rendered(&mut self, rendered: Rendered, now: Timestamp) {
        self.attempt.rendered = Some(rendered);
        self.attempt.rendered_at.get_or_insert(now);
    }
}

impl Attempt {
    /// Takes the answer to a step about one object.
    pub fn take(&mut self, answer: Answer) -> Told {
        let (id, answer) = match answer {
            // Finalizers of what a repository holds are its own.
            Answer::Kind(..) | Answer::Released(..) | Answer::Disowned(..) => return None,
            Answer::Live(id, answer) => {
                DeleteAnswer::look_again(&mut self.deleted, &id);
                return Some((id, answer));
            }
            Answer::Deleted(id, answer) => {
                DeleteAnswer::put(&mut self.deleted, id, answer);
                return None;
            }
            Answer::DryRun(id, answer) => {
                let told = is_creation(&answer).then(|| (id.clone(), Live::Absent));
                self.dry_runs.insert(id, answer);
                return told;
            }
            Answer::Tried(id, answer) => {
                self.tried.insert(id, answer);
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

/// Whether a dry-run says that the object would be made, and so that it wasn't there: a dry-run stores nothing, and what is not stored has no version.
fn is_creation(answer: &WriteAnswer) -> bool {
    match answer {
        WriteAnswer::Done(object) => find_version(&object.0).is_none(),
        WriteAnswer::Failed(_) => false,
    }
}

impl Rendered {
    /// What came of a request: the objects or why there are none, and the encrypted files that were changed afterwards.
    #[must_use]
    pub fn of(
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

    /// Whether it was rendered from what is asked for.
    #[must_use]
    pub fn is_of(&self, request: &RenderRequest) -> bool {
        self.artifact_digest == request.artifact_digest && self.is_like(request)
    }

    /// Whether it is what is asked for as well where another artifact holds the same files, as far as it was rendered from them.
    #[must_use]
    pub fn is_like(&self, request: &RenderRequest) -> bool {
        self.path == request.path && self.overlay == request.overlay && self.inputs == *request.inputs.digest()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inputs::{RenderInputs, Variable};

    #[test]
    fn a_changed_variable_is_rendered_anew_and_an_unchanged_one_is_not() {
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
        let rendered = Rendered::of(&request("a"), Ok(Vec::new()), Vec::new());
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
