//! The renewal of the admission webhook's certificate and of its authority, and the time from which each is used. The module decides every time span. It reads no
//! clock, and doesn't know the form of a certificate.
//!
//! An authority signs certificates, and the API server trusts the authorities in the webhook configurations. So a new authority is trusted first. It signs later, after
//! all API servers had time to learn of it. An old authority is trusted until no process can show its certificate any more. A certificate is valid from two days before
//! its creation. So a clock that is wrong by a day, here or at the API server, changes nothing.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
/// The validity of an authority, and the remaining validity at the time of its successor.
const AUTHORITY: i64 = 730 * DAY;
const AUTHORITY_LEFT: i64 = 200 * DAY;
/// The validity of a certificate, and the remaining validity at the time of its successor.
const SERVING: i64 = 90 * DAY;
const SERVING_LEFT: i64 = 30 * DAY;
/// The time before its creation from which an authority or a certificate is valid, for clocks that are behind.
const BACKDATED: i64 = 2 * DAY;
/// The time until others know a new object: until API servers trust a new authority, and until other processes show a new certificate.
const OVERLAP: i64 = 10 * MINUTE;
/// The longest time between two plans.
const LOOK: i64 = MINUTE;

/// The validity period of a certificate or of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The start of the period (`notBefore`).
    pub from: Timestamp,
    /// The end of the period (`notAfter`).
    pub until: Timestamp,
}

impl Validity {
    /// Returns the validity of an authority that is created now.
    #[must_use]
    pub fn of_authority(now: Timestamp) -> Self {
        Self::of_seconds(now, AUTHORITY)
    }

    /// Returns the validity of a serving certificate that is created now.
    #[must_use]
    pub fn of_serving(now: Timestamp) -> Self {
        Self::of_seconds(now, SERVING)
    }

    fn of_seconds(now: Timestamp, seconds: i64) -> Self {
        Self {
            from: add_seconds(now, -BACKDATED),
            until: add_seconds(now, seconds),
        }
    }

    fn is_valid(self, now: Timestamp) -> bool {
        self.from <= now && now <= self.until
    }

    /// Returns the time at which the certificate was created.
    fn find_start(self) -> Timestamp {
        add_seconds(self.from, BACKDATED)
    }

    fn has_left(self, now: Timestamp, seconds: i64) -> bool {
        now < add_seconds(self.until, -seconds)
    }
}

fn add_seconds(moment: Timestamp, seconds: i64) -> Timestamp {
    moment
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// The stored serving certificate of the admission webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The index in [`Snapshot::authorities`] of the authority that signed the certificate. Unset if that authority is no longer stored.
    pub authority: Option<usize>,
    /// The validity of the certificate.
    pub validity: Validity,
    /// Whether the certificate has all DNS names by which API servers call the webhook.
    pub is_for_names: bool,
}

/// The input of a plan: the stored certificates, and the trust in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The stored authorities, the oldest first. Only the key of the newest authority is stored.
    pub authorities: Vec<Validity>,
    /// The stored serving certificate, if there is one.
    pub serving: Option<ServingCertificate>,
    /// Whether all webhook configurations trust all of these authorities.
    pub is_published: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No step.
    Rest,
    /// Create an authority, which is trusted besides the others.
    MakeAuthority {
        /// Whether to create the new authority's certificate at once, because no usable certificate exists.
        and_certificate: bool,
    },
    /// Create a serving certificate, signed by the newest authority.
    MakeCertificate,
    /// Remove this many of the oldest authorities from the trusted ones.
    Forget(usize),
}

/// The next step for the stored certificates, and the time of the next plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The next step.
    pub step: Step,
    /// The problem with the stored certificates, as a message for users.
    pub problem: Option<String>,
    /// The time of the next plan.
    pub again: Timestamp,
}

/// Plans the next step.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let problem = describe_problem(snapshot, now);
    Plan {
        step: choose_step(snapshot, now),
        problem,
        again: add_seconds(now, LOOK),
    }
}

fn choose_step(snapshot: &Snapshot, now: Timestamp) -> Step {
    let usable = snapshot.serving.filter(|serving| {
        let authority = serving.authority.and_then(|at| snapshot.authorities.get(at));
        serving.is_for_names
            && serving.validity.is_valid(now)
            && authority.is_some_and(|authority| authority.is_valid(now))
    });
    let Some(newest) = snapshot.authorities.last().filter(|newest| newest.is_valid(now)) else {
        return Step::MakeAuthority {
            and_certificate: usable.is_none(),
        };
    };
    let Some(serving) = usable else {
        // No usable certificate exists, so a new one is created without a wait for trust.
        return Step::MakeCertificate;
    };
    if !newest.has_left(now, AUTHORITY_LEFT) {
        return Step::MakeAuthority { and_certificate: false };
    }
    let is_known = snapshot.is_published && add_seconds(newest.find_start(), OVERLAP) <= now;
    let last = snapshot.authorities.len().saturating_sub(1);
    let is_old = serving.authority != Some(last) || !serving.validity.has_left(now, SERVING_LEFT);
    if is_old && is_known {
        return Step::MakeCertificate;
    }
    // Other processes may show the previous certificate until they have received this one.
    let is_settled = serving.authority == Some(last) && add_seconds(serving.validity.find_start(), OVERLAP) <= now;
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
            "the certificate of the admission webhook holds from {from} on, and it is {now} here: this clock is wrong, or the clock of its maker was; set the clock right, another certificate is made meanwhile"
        ));
    }
    if until < now {
        return Some(format!(
            "the certificate of the admission webhook ended at {until}, and it is {now} here: no controller that could renew it has run since, or this clock is wrong; another one is made"
        ));
    }
    serving.authority.is_none().then(|| {
        "the certificate of the admission webhook is of no authority that is kept: the Secret was changed from outside; another one is made".to_owned()
    })
}

#[cfg(test)]
mod tests;
