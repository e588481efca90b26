//! The group `batch`: controllers that run Pods to completion. One file or folder for each kind; code for several groups is elsewhere.

mod cron_job;
mod job;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&cron_job::CRON_JOB, &job::JOB];
