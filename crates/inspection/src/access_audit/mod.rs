//! The credentials of sources, including those that Tenure did not make: for `tenure access audit`. The audit reports the form and age of each credential, the
//! hosts that see it, and its readers.
//!
//! The audit is a function of the references in objects ([`secret_uses`]), of the public facts of a Secret ([`Facts`]) and of RBAC ([`readers`]). It decides whether a
//! credential is too old or can't be judged. Data with nothing public are not read, and of other data only the public facts are kept.

pub mod readers;
pub mod secret_uses;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;

pub use readers::{Readers, find_other_readers, find_readers};
pub use secret_uses::{Inventory, NamedObject, SecretUse, Usage};
pub use tenure_git_access::secret_facts::{Contents, Facts, Form};

/// The result of reading a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRead {
    /// The Secret was read.
    Seen(Facts),
    /// The Secret is missing.
    Absent,
    /// The user may not read the Secret.
    Refused,
    /// The read failed, for this reason.
    Failed(String),
}

/// The judgement of a credential's age by the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The credential is younger than the limit.
    Young,
    /// The credential contains nothing secret, so its age doesn't matter.
    Public,
    /// The Secret is missing.
    Absent,
    /// The credential is older than the limit.
    Old,
    /// The certificate has expired.
    Ended,
    /// No verdict is possible, for this reason.
    Unjudged(String),
}

impl Verdict {
    /// Returns the verdict in one word, for programs.
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

    /// Checks whether a user should act.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        matches!(self, Self::Old | Self::Ended | Self::Unjudged(_))
    }
}

/// A row of the audit: a Secret, the objects that use it, its public facts and its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The Secret.
    pub secret: NamedObject,
    /// The uses of the Secret.
    pub usage: Usage,
    /// The result of reading the Secret.
    pub secret_read: SecretRead,
    /// The readers of the Secret.
    pub readers: Readers,
}

impl Row {
    /// Returns the forms of the Secret, if known.
    #[must_use]
    pub fn list_forms(&self) -> BTreeSet<Form> {
        match &self.secret_read {
            SecretRead::Seen(facts) => facts.list_forms(self.usage.is_shown),
            SecretRead::Absent | SecretRead::Refused | SecretRead::Failed(_) => BTreeSet::new(),
        }
    }

    /// Returns the minimum age of the data.
    #[must_use]
    pub fn find_age(&self, now: Timestamp) -> Option<SignedDuration> {
        match &self.secret_read {
            SecretRead::Seen(facts) => facts.written_at.map(|at| now.duration_since(at)),
            SecretRead::Absent | SecretRead::Refused | SecretRead::Failed(_) => None,
        }
    }

    /// Returns the fingerprint of the public half: from the Secret, else from the status of its Surface.
    #[must_use]
    pub fn find_fingerprint(&self) -> Option<&str> {
        let own = match &self.secret_read {
            SecretRead::Seen(facts) => facts.fingerprint.as_deref(),
            SecretRead::Absent | SecretRead::Refused | SecretRead::Failed(_) => None,
        };
        own.or(self.usage.fingerprint.as_deref())
    }

    /// Returns the verdict on the credential.
    #[must_use]
    pub fn judge_age(&self, older_than: Period, now: Timestamp) -> Verdict {
        let facts = match &self.secret_read {
            SecretRead::Seen(facts) => facts,
            SecretRead::Absent => return Verdict::Absent,
            SecretRead::Refused => return Verdict::Unjudged("you may not look into it".to_owned()),
            SecretRead::Failed(why) => return Verdict::Unjudged(why.clone()),
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
