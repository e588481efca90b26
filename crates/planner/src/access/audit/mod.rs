//! The credentials that sources use, whoever made them: of what form and how old each is, to whom it is shown, and who may read it, for `tenure access
//! audit`.
//!
//! A function of what objects name ([`uses`]), of what may be said of a Secret ([`contents`]) and of RBAC ([`readers`]). Owns what counts as too old, and what
//! can't be judged. Refuses values: what tells nothing but a value isn't asked for, and of the rest public facts alone are kept.

pub mod contents;
pub mod readers;
pub mod uses;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;

pub use contents::{Contents, Facts, Form};
pub use readers::{Bindings, Readers, Roles, find_other_readers, find_readers};
pub use uses::{Inventory, Named, Usage, Use};

/// What came of a look at a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It may be looked at.
    Seen(Facts),
    /// It isn't there.
    Absent,
    /// Who asks may not look into it.
    Refused,
    /// It could not be looked at, and why.
    Failed(String),
}

/// How a credential stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is younger than asked.
    Young,
    /// Nothing of it is secret, so that its age says nothing.
    Public,
    /// The Secret isn't there.
    Absent,
    /// It is older than asked.
    Old,
    /// Its certificate has ended.
    Ended,
    /// It can't be told, and why.
    Unjudged(String),
}

impl Verdict {
    /// In a word, for programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Young => "young",
            Self::Public => "public",
            Self::Absent => "absent",
            Self::Old => "old",
            Self::Ended => "ended",
            Self::Unjudged(_) => "unjudged",
        }
    }

    /// Whether somebody should see to it.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        matches!(self, Self::Old | Self::Ended | Self::Unjudged(_))
    }
}

/// A Secret, with all that is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub secret: Named,
    /// What uses it.
    pub usage: Usage,
    /// What may be said of it.
    pub look: Look,
    /// Who may read it.
    pub readers: Readers,
}

impl Row {
    /// Of what forms it is, where that can be told.
    #[must_use]
    pub fn list_forms(&self) -> BTreeSet<Form> {
        match &self.look {
            Look::Seen(facts) => facts.list_forms(self.usage.is_shown),
            Look::Absent | Look::Refused | Look::Failed(_) => BTreeSet::new(),
        }
    }

    /// How long its data have been as they are, at least.
    #[must_use]
    pub fn find_age(&self, now: Timestamp) -> Option<SignedDuration> {
        match &self.look {
            Look::Seen(facts) => facts.written_at.map(|at| now.duration_since(at)),
            Look::Absent | Look::Refused | Look::Failed(_) => None,
        }
    }

    /// The fingerprint of its public half: its own, else that of the Surface it is for.
    #[must_use]
    pub fn find_fingerprint(&self) -> Option<&str> {
        let own = match &self.look {
            Look::Seen(facts) => facts.fingerprint.as_deref(),
            Look::Absent | Look::Refused | Look::Failed(_) => None,
        };
        own.or(self.usage.fingerprint.as_deref())
    }

    /// How it stands.
    #[must_use]
    pub fn judge(&self, older_than: Period, now: Timestamp) -> Verdict {
        let facts = match &self.look {
            Look::Seen(facts) => facts,
            Look::Absent => return Verdict::Absent,
            Look::Refused => return Verdict::Unjudged("you may not look into it".to_owned()),
            Look::Failed(why) => return Verdict::Unjudged(why.clone()),
        };
        if facts.ends_at.is_some_and(|end| end <= now) {
            return Verdict::Ended;
        }
        let is_public = |form: &Form| matches!(form, Form::Authorities | Form::PublicKeys);
        if self.list_forms().iter().all(is_public) {
            return Verdict::Public;
        }
        let limit = SignedDuration::try_from(older_than.duration()).unwrap_or(SignedDuration::MAX);
        match self.find_age(now) {
            None => Verdict::Unjudged("nothing says since when it has been as it is".to_owned()),
            Some(age) if age > limit => Verdict::Old,
            Some(_) => Verdict::Young,
        }
    }
}
