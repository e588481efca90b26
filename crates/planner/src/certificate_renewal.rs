//! When the certificate of the admission webhook is made again, and its authority, and from when on which of them is shown. Owns every time
//! span of that; refuses to read a clock, and to know what a certificate looks like.
//!
//! An authority signs certificates, and the API server trusts the authorities that stand in the webhook configurations. So a new authority is
//! trusted first, and signs later, once everybody has had time to hear of it; and an old one is trusted until nobody can show its certificate
//! any more. A certificate begins two days before it is made: a clock that is wrong by a day, here or at the API server, changes nothing.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
/// How long an authority holds, and how much of that is left when the next one comes.
const AUTHORITY: i64 = 730 * DAY;
const AUTHORITY_LEFT: i64 = 200 * DAY;
/// How long a certificate holds, and how much of that is left when the next one comes.
const SERVING: i64 = 90 * DAY;
const SERVING_LEFT: i64 = 30 * DAY;
/// By how much each begins before it is made.
const BACKDATED: i64 = 2 * DAY;
/// How long everybody has to hear of what is new: the API server of an authority, another process of a certificate.
const OVERLAP: i64 = 10 * MINUTE;
/// How often it is looked, at the latest.
const LOOK: i64 = MINUTE;

/// From when to when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before that.
    pub from: Timestamp,
    /// Not after that.
    pub until: Timestamp,
}

impl Validity {
    /// That of an authority that is made now.
    #[must_use]
    pub fn of_authority(now: Timestamp) -> Self {
        Self::lasting(now, AUTHORITY)
    }

    /// That of a certificate that is made now.
    #[must_use]
    pub fn of_serving(now: Timestamp) -> Self {
        Self::lasting(now, SERVING)
    }

    fn lasting(now: Timestamp, seconds: i64) -> Self {
        Self {
            from: later(now, -BACKDATED),
            until: later(now, seconds),
        }
    }

    fn holds(self, now: Timestamp) -> bool {
        self.from <= now && now <= self.until
    }

    /// When it was made.
    fn made(self) -> Timestamp {
        later(self.from, BACKDATED)
    }

    fn has_left(self, now: Timestamp, seconds: i64) -> bool {
        now < later(self.until, -seconds)
    }
}

fn later(moment: Timestamp, seconds: i64) -> Timestamp {
    moment
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// The certificate that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Which of the authorities has signed it; none, if that is kept no more.
    pub authority: Option<usize>,
    /// When it holds.
    pub validity: Validity,
    /// Whether it is for the names that the webhook is called by.
    pub is_for_names: bool,
}

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The authorities that are kept, the oldest first; the key of the last one alone is kept.
    pub authorities: Vec<Validity>,
    /// The certificate.
    pub serving: Option<Serving>,
    /// Whether all configurations trust all of these authorities.
    pub is_published: bool,
}

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Another authority, which is trusted besides; and a certificate of it at once if that is said.
    MakeAuthority {
        /// Whether there is no other certificate that could be shown.
        and_certificate: bool,
    },
    /// A certificate of the newest authority.
    MakeCertificate,
    /// These of the oldest authorities aren't trusted any more.
    Forget(usize),
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is made.
    pub step: Step,
    /// What is wrong with what is kept, for people.
    pub problem: Option<String>,
    /// When to look again.
    pub again: Timestamp,
}

/// What to do next.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let problem = describe_problem(snapshot, now);
    Plan {
        step: choose(snapshot, now),
        problem,
        again: later(now, LOOK),
    }
}

fn choose(snapshot: &Snapshot, now: Timestamp) -> Step {
    let usable = snapshot.serving.filter(|serving| {
        let authority = serving.authority.and_then(|at| snapshot.authorities.get(at));
        serving.is_for_names && serving.validity.holds(now) && authority.is_some_and(|authority| authority.holds(now))
    });
    let Some(newest) = snapshot.authorities.last().filter(|newest| newest.holds(now)) else {
        return Step::MakeAuthority {
            and_certificate: usable.is_none(),
        };
    };
    let Some(serving) = usable else {
        // Nothing could be shown, so nothing is waited for.
        return Step::MakeCertificate;
    };
    if !newest.has_left(now, AUTHORITY_LEFT) {
        return Step::MakeAuthority { and_certificate: false };
    }
    let is_known = snapshot.is_published && later(newest.made(), OVERLAP) <= now;
    let last = snapshot.authorities.len().saturating_sub(1);
    let is_old = serving.authority != Some(last) || !serving.validity.has_left(now, SERVING_LEFT);
    if is_old && is_known {
        return Step::MakeCertificate;
    }
    // Others may show the certificate of before until they have heard of this one.
    let is_settled = serving.authority == Some(last) && later(serving.validity.made(), OVERLAP) <= now;
    match last {
        older @ 1.. if is_settled => Step::Forget(older),
        _ => Step::Rest,
    }
}

fn describe_problem(snapshot: &Snapshot, now: Timestamp) -> Option<String> {
    let serving = snapshot.serving?;
    let Validity { from, until } = serving.validity;
    if now < from {
        return Some(format!(
            "the certificate of the admission webhook holds from {from} on, and it is {now} here: this clock is wrong, or that of who made it was; \
             set the clock right, another certificate is made meanwhile"
        ));
    }
    if until < now {
        return Some(format!(
            "the certificate of the admission webhook ended at {until}, and it is {now} here: nobody who could renew it has run since, or this clock is \
             wrong; another one is made"
        ));
    }
    serving.authority.is_none().then(|| {
        "the certificate of the admission webhook is of no authority that is kept: somebody changed the Secret; another one is made".to_owned()
    })
}

#[cfg(test)]
mod tests;
