//! Bounds for another cluster's API server, which is untrusted: its answers may be endless.
//!
//! The module bounds the text that is read, stored and repeated. It never repeats the credentials of a request, even if the server quotes them.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_api::text::visible_line;

use crate::error::ClusterError;
use tenure_planner::refusal::{Cause, CauseKind, Reason};

/// The size from which an answer takes counted memory, and the size of the first counted piece.
const UNCOUNTED: usize = 64 << 10;
const FIRST_PIECE: usize = 192 << 10;
/// The longest message of an API server, the longest part of a message, and the largest number of parts.
const LONGEST_MESSAGE: usize = 2048;
const LONGEST_PART: usize = 300;
const MOST_PARTS: usize = 16;

/// Reserved memory, which is released when the value is dropped.
pub struct MemoryReservation(#[expect(dead_code, reason = "it is dropped")] Box<dyn Any + Send + Sync>);

impl MemoryReservation {
    /// Holds a value that releases the memory when it is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

/// A function that reserves this many bytes of memory, or returns the reason for a refusal.
pub type ReserveMemory = Arc<dyn Fn(usize) -> Result<MemoryReservation, String> + Send + Sync>;

/// Bounds for answers of an untrusted API server.
#[derive(Clone)]
pub struct RemoteClusterLimits {
    /// The longest answer and the longest event of a watch, in bytes.
    pub longest: usize,
    /// The largest number of objects in one list.
    pub most_objects: usize,
    /// Reserves the memory for long or stored texts.
    pub room: ReserveMemory,
    /// Whether a text contains a credential of the request.
    pub is_secret: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for RemoteClusterLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteClusterLimits")
            .field("longest", &self.longest)
            .field("most_objects", &self.most_objects)
            .finish_non_exhaustive()
    }
}

/// The memory reserved for a text that is being read. The reservation grows with the text.
#[derive(Default)]
pub(crate) struct TextReservation {
    held: Vec<MemoryReservation>,
    counted: usize,
}

impl TextReservation {
    /// Reserves memory for this many bytes in total; short texts need no reservation.
    pub(crate) fn grow_to(&mut self, bytes: usize, terms: Option<&RemoteClusterLimits>) -> Result<(), ClusterError> {
        let Some(terms) = terms else { return Ok(()) };
        while bytes > UNCOUNTED.saturating_add(self.counted) {
            // Each piece doubles the total, so a long answer needs few reservations.
            let piece = self.counted.max(FIRST_PIECE);
            self.held.push(take_room(terms, piece)?);
            self.counted += piece;
        }
        Ok(())
    }

    /// Releases all memory.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.counted = 0;
    }
}

/// Reserves memory for this many bytes.
fn take_room(terms: &RemoteClusterLimits, bytes: usize) -> Result<MemoryReservation, ClusterError> {
    (terms.room)(bytes).map_err(|problem| ClusterError::Unreachable { problem })
}

/// Reserves memory for this many bytes, in place of the previous reservation.
pub(crate) fn reserve_memory(
    held: &Mutex<Option<MemoryReservation>>,
    terms: Option<&RemoteClusterLimits>,
    bytes: usize,
) -> Result<(), ClusterError> {
    let Some(terms) = terms else { return Ok(()) };
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    *held = None;
    *held = Some(take_room(terms, bytes)?);
    Ok(())
}

impl RemoteClusterLimits {
    /// Returns one line of at most `longest` characters, or a placeholder if the text contains a credential of the request.
    fn limit_text(&self, text: &str, longest: usize) -> String {
        if (self.is_secret)(text) {
            return "the API server's message is not repeated, since it quotes the request".to_owned();
        }
        let cut: String = text.chars().take(longest).collect();
        visible_line(&cut).chars().take(longest).collect()
    }

    fn limit_causes(&self, causes: &[Cause]) -> Vec<Cause> {
        let limit_text = |cause: &Cause| Cause {
            kind: match &cause.kind {
                CauseKind::Other(word) => CauseKind::Other(self.limit_text(word, LONGEST_PART)),
                known => known.clone(),
            },
            message: self.limit_text(&cause.message, LONGEST_PART),
            field: self.limit_text(&cause.field, LONGEST_PART),
        };
        causes.iter().take(MOST_PARTS).map(limit_text).collect()
    }

    /// Makes an error safe to report: lines of bounded length, without credentials of the request.
    pub(crate) fn limit_error_text(&self, mut error: ClusterError) -> ClusterError {
        match &mut error {
            ClusterError::Forbidden { message, causes }
            | ClusterError::Conflict { message, causes }
            | ClusterError::ApplyConflict { message, causes }
            | ClusterError::Invalid { message, causes, .. } => {
                *message = self.limit_text(message, LONGEST_MESSAGE);
                // The caller checks whether all causes agree. An added empty cause prevents a conclusion from a cut list.
                let is_cut = causes.len() > MOST_PARTS;
                *causes = self.limit_causes(causes);
                if is_cut {
                    causes.push(Cause::default());
                }
            }
            ClusterError::Refused {
                message,
                causes,
                reason,
                ..
            } => {
                *message = self.limit_text(message, LONGEST_MESSAGE);
                *causes = self.limit_causes(causes);
                if let Reason::Other(word) = reason {
                    *word = self.limit_text(word, LONGEST_PART);
                }
            }
            ClusterError::Unauthorized { message, .. }
            | ClusterError::NotFound { message }
            | ClusterError::AlreadyExists { message }
            | ClusterError::Expired { message }
            | ClusterError::Throttled { message, .. } => *message = self.limit_text(message, LONGEST_MESSAGE),
            ClusterError::Decode { problem, .. } | ClusterError::Unreachable { problem } => {
                *problem = self.limit_text(problem, LONGEST_MESSAGE);
            }
            ClusterError::IdentityMissing { .. }
            | ClusterError::NoKindMatch { .. }
            | ClusterError::DiscoveryIncomplete { .. }
            | ClusterError::PathGone { .. }
            | ClusterError::Timeout { .. }
            | ClusterError::TooLong { .. }
            | ClusterError::Request { .. } => {}
        }
        error
    }

    /// Makes warnings safe to report.
    pub(crate) fn limit_warnings(&self, warnings: Vec<String>) -> Vec<String> {
        let reported = warnings.iter().take(MOST_PARTS);
        reported.map(|warning| self.limit_text(warning, LONGEST_PART)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> RemoteClusterLimits {
        RemoteClusterLimits {
            longest: 1 << 20,
            most_objects: 10,
            room: Arc::new(|bytes| {
                if bytes > 1 << 20 {
                    return Err("no room".to_owned());
                }
                Ok(MemoryReservation::new(()))
            }),
            is_secret: Arc::new(|text| text.contains("hunter2")),
        }
    }

    #[test]
    fn remote_error_text_is_bounded_and_quotes_no_credential() {
        let refused = |message: &str| ClusterError::Invalid {
            code: 422,
            message: message.to_owned(),
            causes: vec![
                Cause {
                    message: "a\u{1b}[31m".repeat(1000),
                    ..Cause::default()
                };
                1000
            ],
        };
        let error = terms().limit_error_text(refused(&"x\n".repeat(100_000)));
        assert!(error.to_string().len() <= LONGEST_MESSAGE && !error.to_string().contains('\n'));
        assert_eq!(error.causes().len(), MOST_PARTS + 1);
        let longest = error.causes().iter().map(|cause| cause.message.len()).max();
        assert!(longest <= Some(LONGEST_PART) && !error.causes()[0].message.contains('\u{1b}'));
        let error = terms().limit_error_text(refused("Bearer hunter2 is not allowed"));
        assert!(error.to_string().contains("not repeated") && !error.to_string().contains("hunter2"));
    }

    #[test]
    fn long_text_takes_room_as_it_grows() {
        let mut growing = TextReservation::default();
        growing.grow_to(UNCOUNTED, Some(&terms())).unwrap();
        assert!(growing.held.is_empty());
        growing.grow_to(1 << 20, Some(&terms())).unwrap();
        assert!(growing.counted >= (1 << 20) - UNCOUNTED);
        assert!(growing.grow_to(64 << 20, Some(&terms())).is_err());
        growing.clear();
        assert_eq!(growing.counted, 0);
        growing.grow_to(usize::MAX, None).unwrap();
    }
}
