//! What runs Pods to their end. One file or folder a kind; refuses everything that several groups need.

mod cron_job;
mod job;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[&cron_job::CRON_JOB, &job::JOB];
