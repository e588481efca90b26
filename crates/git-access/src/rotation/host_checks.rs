//! Requests to the host with an outside cause: a probe of a credential, or a list after a source was refused. This module applies the limits of the host.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::HeldCredential;

use super::schedule::{self, add_duration};
use super::state_machine::{Next, StateMachine};
use super::{Answer, Step};

impl StateMachine<'_> {
    /// Probes a credential at the host, if the limits allow it now.
    pub(super) fn probe_at_host(&self, step: Step) -> Next {
        match self.seen.restraint.probe_from.filter(|from| *from > self.now) {
            Some(from) => Next::Wait(from),
            None => Next::Do(step),
        }
    }

    /// Returns the time to list the host because it refuses a source. None if the last list is newer than the refusal.
    pub(super) fn find_look(&self, held: Option<&HeldCredential>) -> Option<Timestamp> {
        let held = held.filter(|held| held.id.is_some() && self.seen.capabilities.listed)?;
        let running = self.seen.sources.iter().filter(|source| !source.is_suspended);
        let refused_at = running.filter_map(|source| source.refused_at).max()?;
        // Hosts may list new credentials a moment later. Times of conditions are in whole seconds.
        let settled = add_duration(held.begun_at.0, schedule::SETTLE);
        let needed = add_duration(refused_at, Duration::from_secs(1)).max(settled);
        let listed_at = self.seen.listing.as_ref().map(|listing| listing.asked_at);
        let is_known = listed_at.is_some_and(|at| at >= needed);
        if is_known || matches!(self.seen.answer, Some(Answer::Listed(Ok(_)))) {
            return None;
        }
        let from = listed_at.map_or(self.now, |at| add_duration(at, schedule::LEAST_BETWEEN_LOOKS));
        let from = from.max(settled);
        Some(from.max(self.seen.restraint.look_from.unwrap_or(from)))
    }
}
