//! Capacity of a common budget for the processes of lanes: what a process requests from the hub and gives back, and which process is ended for keeping too much.
//!
//! A lane has a *share*: the capacity that the hub has granted to it. The lane requests the capacity that its work waits for, and some more in advance, since growing
//! data can't wait while it is received or processed. The lane gives unused capacity back, and all of it when another lane waits. The hub doesn't trust a lane with
//! much capacity to give it back. A lane that keeps more than its part of a budget while others wait for long is ended, and has nothing then.

use std::collections::BTreeMap;
use std::time::Duration;

/// The pause of requests in advance after the hub had no capacity.
const EMPTY: Duration = Duration::from_millis(250);

/// The time for which capacity counts as scarce after the hub wanted some back.
const SCARCE: Duration = Duration::from_secs(5);

/// The time for which a lane may keep more than its part of a budget while another lane waits without a break. Renderings end within a minute.
pub const HOLDING: Duration = Duration::from_secs(120);

/// The state of a lane's share of one budget, and the capacity that its work waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Bytes in the share.
    pub share: u64,
    /// Bytes of the share that are in use.
    pub held: u64,
    /// Bytes that the first waiter in the queue needs.
    pub first: Option<u64>,
    /// Further bytes for data that has begun to grow. Growing data waits only for the answer to its own request, and not in the queue.
    pub growing: u64,
}

/// The next action of a lane's process for its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityAction {
    /// Ask the hub for more.
    Ask {
        /// The requested bytes.
        bytes: u64,
        /// Further bytes, if they are available at once: data begins to grow before the answer to the next request.
        besides: u64,
        /// Whether the request waits for its turn if nothing is available now.
        waits: bool,
    },
    /// Give back the bytes that are neither in use nor kept.
    GiveBack {
        /// The unused bytes to keep.
        kept: u64,
    },
    /// Wait until this time, or until there is news.
    Wait(Option<Duration>),
}

/// An event about a lane's share of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityEvent {
    /// The hub was asked.
    Asked,
    /// The hub granted this many bytes; zero if nothing was available.
    Granted(u64),
    /// Another lane waits for capacity.
    WantedBack,
}

/// The rules of a lane for one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityLimits {
    /// Unused bytes that the lane keeps.
    pub kept: u64,
    /// The largest share.
    pub most: u64,
    /// Whether the lane keeps as many unused bytes as it uses, if these exceed `kept`. This is for short-lived data, and not for data that stays.
    pub doubles: bool,
}

/// The requests and the scarcity of one lane's share of one budget. Times count from any fixed moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareState {
    terms: CapacityLimits,
    is_asked: bool,
    /// Until then, unused capacity is given back at once.
    scarce_until: Duration,
    /// Until then, nothing is requested in advance.
    paused_until: Duration,
}

impl ShareState {
    /// Creates the record of a lane without a share.
    #[must_use]
    pub fn new(terms: CapacityLimits) -> Self {
        Self {
            terms,
            is_asked: false,
            scarce_until: Duration::ZERO,
            paused_until: Duration::ZERO,
        }
    }

    /// Takes a report.
    pub fn take_event(&mut self, fact: CapacityEvent, now: Duration) {
        match fact {
            CapacityEvent::Asked => self.is_asked = true,
            CapacityEvent::Granted(bytes) => {
                self.is_asked = false;
                if bytes == 0 {
                    self.paused_until = now.saturating_add(EMPTY);
                }
            }
            CapacityEvent::WantedBack => self.scarce_until = now.saturating_add(SCARCE),
        }
    }

    /// Decides the next action.
    #[must_use]
    pub fn decide_action(&self, demand: &Demand, now: Duration) -> CapacityAction {
        let spare = demand.share.saturating_sub(demand.held);
        let more = self.terms.most.saturating_sub(demand.share);
        let lacking = demand.first.map_or(0, |first| first.saturating_sub(spare));
        if lacking > 0 {
            // A request that doesn't fit beside the bytes in use waits for these, and not for the hub. The lane keeps its capacity meanwhile: a lane that gives its
            // part of the next request away each time never gets the whole.
            return if self.is_asked || lacking > more {
                CapacityAction::Wait(None)
            } else {
                CapacityAction::Ask {
                    bytes: lacking,
                    besides: self.terms.kept.max(demand.growing).min(more - lacking),
                    waits: true,
                }
            };
        }
        let is_scarce = now < self.scarce_until;
        let advance = match (is_scarce, demand.held) {
            (true, 0) => 0,
            // Growing data continues to grow: otherwise a lane that makes capacity scarce would stop the data of all lanes.
            (true, _) => self.terms.kept,
            // The lane keeps as much as it uses: so growing data needs few requests, however large it becomes.
            (false, held) if self.terms.doubles => self.terms.kept.max(held),
            (false, _) => self.terms.kept,
        };
        let allowed = if is_scarce { advance } else { advance.saturating_mul(2) };
        if spare > allowed && demand.first.is_none() && demand.growing == 0 {
            return CapacityAction::GiveBack { kept: advance };
        }
        let wanted = demand.growing.saturating_sub(spare);
        let is_short = (wanted > 0 || spare < advance.div_ceil(2)) && more > 0 && !self.is_asked;
        if is_short && now >= self.paused_until {
            return CapacityAction::Ask {
                bytes: advance.saturating_sub(spare).max(wanted).min(more),
                besides: 0,
                waits: false,
            };
        }
        let until = [(is_short, self.paused_until), (is_scarce, self.scarce_until)];
        CapacityAction::Wait(
            until
                .into_iter()
                .filter(|(waits, _)| *waits)
                .map(|(_, until)| until)
                .min(),
        )
    }
}

/// Returns the lane to end, if any. `least`: for each lane, the least bytes of the budget that it had while others waited for `waited` without a break. After
/// [`HOLDING`], the lane with the most bytes is ended if it has more than its part of `all`.
#[must_use]
pub fn find_holder(all: u64, waited: Duration, least: &BTreeMap<String, u64>) -> Option<&str> {
    if waited < HOLDING {
        return None;
    }
    // The waiting lane counts, too.
    let part = all / (least.len() as u64).saturating_add(1);
    let (lane, bytes) = least.iter().max_by_key(|(_, bytes)| **bytes)?;
    (*bytes > part).then_some(lane.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn time_at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn demand(share: u64, held: u64, first: Option<u64>) -> Demand {
        Demand {
            share,
            held,
            first,
            growing: 0,
        }
    }

    fn record() -> ShareState {
        record_up_to(64 * MB)
    }

    fn record_up_to(most: u64) -> ShareState {
        ShareState::new(CapacityLimits {
            kept: 4 * MB,
            most,
            doubles: true,
        })
    }

    fn ask(bytes: u64, waits: bool) -> CapacityAction {
        let besides = if waits { 4 * MB } else { 0 };
        CapacityAction::Ask { bytes, besides, waits }
    }

    #[test]
    fn capacity_action_follows_from_share_and_demand() {
        let record = record();
        let cases = [
            (
                "one that begins asks for what it keeps",
                demand(0, 0, None),
                ask(4 * MB, false),
            ),
            (
                "one that has that asks nothing",
                demand(4 * MB, 0, None),
                CapacityAction::Wait(None),
            ),
            (
                "who waits asks for what it lacks",
                demand(MB, 0, Some(3 * MB)),
                ask(2 * MB, true),
            ),
            (
                "the same beside what is held",
                demand(8 * MB, 8 * MB, Some(MB)),
                ask(MB, true),
            ),
            (
                "what never fits beside what is held waits for that",
                demand(60 * MB, 60 * MB, Some(8 * MB)),
                CapacityAction::Wait(None),
            ),
            ("some is asked for in advance", demand(MB, MB, None), ask(4 * MB, false)),
            (
                "the more the more is held",
                demand(20 * MB, 16 * MB, None),
                ask(12 * MB, false),
            ),
            (
                "never more than the most",
                demand(60 * MB, 56 * MB, None),
                ask(4 * MB, false),
            ),
            (
                "who has all there is asks nothing",
                demand(64 * MB, 64 * MB, None),
                CapacityAction::Wait(None),
            ),
            (
                "what is more than that is",
                demand(64 * MB, 0, None),
                CapacityAction::GiveBack { kept: 4 * MB },
            ),
            (
                "as much again as is held is kept",
                demand(64 * MB, 10 * MB, None),
                CapacityAction::GiveBack { kept: 10 * MB },
            ),
        ];
        for (what, demand, expected) in cases {
            assert_eq!(record.decide_action(&demand, time_at(0)), expected, "{what}");
        }
    }

    #[test]
    fn lane_waits_for_answer_before_asking_again() {
        let mut record = record();
        let waiting = demand(0, 0, Some(MB));
        assert_eq!(record.decide_action(&waiting, time_at(0)), ask(MB, true));
        record.take_event(CapacityEvent::Asked, time_at(0));
        assert_eq!(record.decide_action(&waiting, time_at(0)), CapacityAction::Wait(None));
        // The hub had nothing in time: a lane that still waits asks again at once.
        record.take_event(CapacityEvent::Granted(0), time_at(0));
        assert_eq!(record.decide_action(&waiting, time_at(0)), ask(MB, true));
        // For a while, the lane requests nothing in advance.
        let growing = demand(MB, MB, None);
        assert_eq!(
            record.decide_action(&growing, time_at(1)),
            CapacityAction::Wait(Some(time_at(250)))
        );
        assert_eq!(record.decide_action(&growing, time_at(250)), ask(4 * MB, false));
    }

    #[test]
    fn unused_capacity_is_given_back_when_wanted() {
        let mut record = record();
        record.take_event(CapacityEvent::WantedBack, time_at(0));
        let all = CapacityAction::GiveBack { kept: 0 };
        assert_eq!(record.decide_action(&demand(4 * MB, 0, None), time_at(0)), all);
        assert_eq!(
            record.decide_action(&demand(0, 0, None), time_at(0)),
            CapacityAction::Wait(Some(time_at(5000)))
        );
        // The lane keeps the bytes in use, and a few for growing data.
        let little = CapacityAction::GiveBack { kept: 4 * MB };
        assert_eq!(
            record.decide_action(&demand(19 * MB, 10 * MB, None), time_at(1)),
            little
        );
        assert_eq!(
            record.decide_action(&demand(14 * MB, 10 * MB, None), time_at(1)),
            CapacityAction::Wait(Some(time_at(5000)))
        );
        assert_eq!(
            record.decide_action(&demand(10 * MB, 10 * MB, None), time_at(1)),
            ask(4 * MB, false)
        );
        // Capacity counts as scarce until this moment.
        assert_eq!(record.decide_action(&demand(9 * MB, 0, None), time_at(4999)), all);
        assert_eq!(
            record.decide_action(&demand(8 * MB, 0, None), time_at(5000)),
            CapacityAction::Wait(None)
        );
        // A lane that waits for more itself keeps its capacity for that.
        assert_eq!(
            record.decide_action(&demand(9 * MB, 3 * MB, Some(8 * MB)), time_at(0)),
            ask(2 * MB, true)
        );
    }

    #[test]
    fn growing_data_asks_for_missing_capacity_at_once() {
        let mut record = record();
        let growing = |share, held, growing| Demand {
            growing,
            ..demand(share, held, None)
        };
        assert_eq!(
            record.decide_action(&growing(4 * MB, 4 * MB, MB), time_at(0)),
            ask(4 * MB, false)
        );
        assert_eq!(
            record.decide_action(&growing(4 * MB, 4 * MB, 9 * MB), time_at(0)),
            ask(9 * MB, false),
            "all that is wanted, where that is more than what is kept"
        );
        assert_eq!(
            record.decide_action(&growing(7 * MB, 4 * MB, 5 * MB), time_at(0)),
            ask(2 * MB, false),
            "though more than half of what is kept is there"
        );
        assert_eq!(
            record.decide_action(&growing(64 * MB, 4 * MB, MB), time_at(0)),
            CapacityAction::Wait(None),
            "nothing is given back that is just about to be used"
        );
        // Nothing was available: the lane asks again, as long as it needs the bytes.
        record.take_event(CapacityEvent::Asked, time_at(0));
        assert_eq!(
            record.decide_action(&growing(4 * MB, 4 * MB, MB), time_at(0)),
            CapacityAction::Wait(None)
        );
        record.take_event(CapacityEvent::Granted(0), time_at(0));
        assert_eq!(
            record.decide_action(&growing(4 * MB, 4 * MB, MB), time_at(0)),
            CapacityAction::Wait(Some(time_at(250)))
        );
        assert_eq!(
            record.decide_action(&growing(4 * MB, 4 * MB, MB), time_at(250)),
            ask(4 * MB, false)
        );
        // The lane also requests growth beside a request that waits for its turn.
        let waits = Demand {
            growing: 6 * MB,
            ..demand(MB, MB, Some(2 * MB))
        };
        let both = CapacityAction::Ask {
            bytes: 2 * MB,
            besides: 6 * MB,
            waits: true,
        };
        assert_eq!(record.decide_action(&waits, time_at(250)), both);
    }

    /// Data that stays is not doubled: other lanes would miss the capacity, and no work waits for it.
    #[test]
    fn lasting_data_reserves_little_capacity_in_advance() {
        let record = ShareState::new(CapacityLimits {
            kept: 4 * MB,
            most: 1024 * MB,
            doubles: false,
        });
        assert_eq!(
            record.decide_action(&demand(300 * MB, 299 * MB, None), time_at(0)),
            ask(3 * MB, false)
        );
        let back = CapacityAction::GiveBack { kept: 4 * MB };
        assert_eq!(
            record.decide_action(&demand(300 * MB, 200 * MB, None), time_at(0)),
            back
        );
    }

    /// Growing data needs few requests, however it grows, and the requested and returned bytes come out even.
    #[test]
    fn growing_data_needs_few_capacity_requests() {
        let mut record = record_up_to(1024 * MB);
        let (mut share, mut asked) = (0, 0);
        for step in 1..=4000 {
            let held = step * (MB / 4);
            loop {
                let need = (held > share).then_some(held - share.min(held));
                let demand = demand(share, held.min(share), need);
                let CapacityAction::Ask { bytes, .. } = record.decide_action(&demand, time_at(0)) else {
                    break;
                };
                record.take_event(CapacityEvent::Asked, time_at(0));
                record.take_event(CapacityEvent::Granted(bytes), time_at(0));
                share += bytes;
                asked += 1;
            }
            assert!(share >= held && share <= 1024 * MB, "{share} for {held}");
        }
        assert!(asked < 30, "{asked}");
    }

    #[test]
    fn lane_over_its_part_is_ended_while_others_wait() {
        let least = |lanes: &[(&str, u64)]| -> BTreeMap<String, u64> {
            lanes.iter().map(|(lane, bytes)| ((*lane).to_owned(), *bytes)).collect()
        };
        let two = least(&[("tenant/evil", 64 * MB), ("tenant/good", 10 * MB)]);
        assert_eq!(find_holder(160 * MB, time_at(119_000), &two), None, "not yet");
        assert_eq!(find_holder(160 * MB, HOLDING, &two), Some("tenant/evil"));
        // No lane has more than a part: then the budget is too small for all.
        let many = least(&[("a", 40 * MB), ("b", 39 * MB), ("c", 40 * MB)]);
        assert_eq!(find_holder(160 * MB, HOLDING, &many), None);
        assert_eq!(find_holder(160 * MB, HOLDING, &least(&[])), None);
        // If three lanes cooperate, they are ended one after the other.
        let three = least(&[("a", 64 * MB), ("b", 48 * MB), ("c", 48 * MB)]);
        assert_eq!(find_holder(160 * MB, HOLDING, &three), Some("a"));
    }
}
