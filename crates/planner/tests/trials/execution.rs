//! Carries out the steps of a plan in the small cluster, and gives the answers to the attempt.

use tenure_planner::Request;
use tenure_planner::answer::Answer;
use tenure_planner::kustomization::{Step, Survey};

use crate::scenarios::Player;

impl Player {
    pub(crate) fn execute_step(&mut self, step: &Step) {
        match step {
            Step::Ask(Request::ResolveKinds(kinds)) => {
                for kind in kinds {
                    let answer = self.world.find_kind(kind);
                    self.snapshot.record_answer(Answer::Kind(kind.clone(), answer));
                }
            }
            Step::Render(request) => {
                let revision = request.revision.strip_prefix("main@sha1:").unwrap();
                self.snapshot.attempt.rendered = Some(self.revisions.get(revision).unwrap().render(request));
            }
            Step::Ask(Request::Read(target)) => {
                let live = self.world.read(&target.id);
                let implied = self.snapshot.record_answer(Answer::Live(target.id.clone(), live));
                self.snapshot.live.extend(implied);
            }
            Step::Ask(Request::DryRun(apply)) => {
                let answer = self.world.dry_run(apply);
                let implied = self.snapshot.record_answer(Answer::DryRun(apply.id.clone(), answer));
                self.snapshot.live.extend(implied);
            }
            Step::Ask(Request::Try(apply)) => {
                let answer = self.world.try_creation(apply);
                self.snapshot.record_answer(Answer::Tried(apply.id.clone(), answer));
            }
            Step::Ask(Request::Create(apply)) => {
                let answer = self.world.create(apply, self.now);
                self.snapshot.record_answer(Answer::Created(apply.id.clone(), answer));
                self.watch_objects();
            }
            Step::Ask(Request::Apply(apply)) => {
                let answer = self.world.apply(apply, self.now);
                // The answer goes to the attempt alone: in a scenario, no shell looks up kinds again before the next attempt.
                self.snapshot
                    .attempt
                    .record_answer(Answer::Applied(apply.id.clone(), answer));
                self.watch_objects();
            }
            Step::Ask(Request::TakeOver(take_over)) => {
                let answer = self
                    .world
                    .take_over(&take_over.target.id, &take_over.from, &take_over.patch, self.now);
                self.snapshot
                    .record_answer(Answer::TakenOver(take_over.target.id.clone(), answer));
                self.watch_objects();
            }
            Step::Ask(Request::FindClaims(namespace)) => {
                let answer = self.world.find_claims(namespace);
                self.snapshot.record_answer(Answer::Claims(namespace.clone(), answer));
            }
            Step::Ask(Request::TryDelete(delete)) => {
                let answer = self.world.try_deletion(delete);
                self.snapshot
                    .record_answer(Answer::TriedDelete(delete.target.id.clone(), answer));
            }
            Step::Ask(Request::Delete(delete)) => {
                let answer = self.world.delete(delete);
                self.snapshot
                    .record_answer(Answer::Deleted(delete.target.id.clone(), answer));
                self.watch_objects();
            }
            Step::Ask(Request::Release(_) | Request::Disown(_)) => panic!("no step of a Kustomization: {step}"),
            Step::ReadHere(target) => {
                let live = self.read_here(&target.id);
                self.snapshot.here.insert(target.id.clone(), live);
            }
            Step::OrderToken(order) => {
                self.snapshot.attempt.token = Some((order.clone(), self.token.clone()));
            }
            Step::Survey(request) => {
                self.snapshot.survey = Some(Survey {
                    asked: request.ids.clone(),
                    ..self.siblings.clone()
                });
            }
        }
    }
}
