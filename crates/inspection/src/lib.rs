//! Answers to users about a cluster, a repository or a log: what the commands of the program, and other views, compute and show.
//!
//! - [`tree`], [`trace`], [`portable`]: the results of an object, its origin, and its form as a manifest. [`object_facts`] has what all of them need to know.
//! - [`ownership`]: fields with several owners or none, and their writers.
//! - [`field_origin`]: the file and line of a field.
//! - [`check`]: findings about a change before its commit.
//! - [`deletion`]: what goes with a deleted object.
//! - [`installation_check`], [`installation_summary`]: whether an installation would work in a cluster, and what it then keeps.
//! - [`log_lines`]: lines of the controllers' log about an object.
//! - [`attestation`]: the attacks that a cluster has to stop, and the meaning of their answers.
//! - [`access_audit`], [`access_reports`]: credentials of sources, and the requests for them.
//!
//! Every report is a function of what was read. A part that could not be read is named, and never taken for absent.

pub mod access_audit;
pub mod access_reports;
pub mod attestation;
pub mod check;
pub mod deletion;
pub mod installation_check;
pub mod installation_summary;
pub mod log_lines;
pub mod field_origin;
pub mod object_facts;
pub mod ownership;
pub mod portable;
pub mod trace;
pub mod tree;
