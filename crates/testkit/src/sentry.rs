//! The guard of an embedded cluster, which a test can disable. Objects written then are like those from before the
//! guard existed, or from a way around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tenure_admission::EmbeddedGuard;
use tenure_apiserver::{FollowedResource, Guard, GuardPlace, GuardQueries, GuardTarget, Membership, Review, Ruling};
use tenure_tenancy::Settings;

/// The guard of an embedded cluster, which checks nothing while a test has disabled it.
#[derive(Debug)]
pub(crate) struct Sentry {
    guard: EmbeddedGuard,
    is_away: Arc<AtomicBool>,
}

impl Sentry {
    /// Returns an enabled guard, and the flag that disables it.
    pub(crate) fn new_enabled(settings: Settings) -> (Self, Arc<AtomicBool>) {
        let is_away = Arc::<AtomicBool>::default();
        let sentry = Self {
            guard: EmbeddedGuard::new(settings),
            is_away: Arc::clone(&is_away),
        };
        (sentry, is_away)
    }
}

impl Guard for Sentry {
    fn follows(&self) -> &[FollowedResource] {
        self.guard.follows()
    }

    fn record_object(&self, resource: (&str, &str), place: GuardPlace<'_>, object: Option<&Value>) {
        self.guard.record_object(resource, place, object);
    }

    fn forget(&self) {
        self.guard.forget();
    }

    fn needs(&self, followed: FollowedResource) -> bool {
        self.guard.needs(followed)
    }

    fn forget_one(&self, followed: FollowedResource) {
        self.guard.forget_one(followed);
    }

    fn concerns(&self, asked: &GuardTarget<'_>) -> bool {
        !self.is_away.load(Ordering::Acquire) && self.guard.concerns(asked)
    }

    fn changes(&self, resource: (&str, &str)) -> bool {
        self.guard.changes(resource)
    }

    fn find_tenant(&self, user: &str, groups: &[String]) -> Membership {
        self.guard.find_tenant(user, groups)
    }

    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardQueries) -> Ruling {
        self.guard.judge(review, surroundings)
    }
}
