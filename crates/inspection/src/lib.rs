//! Answers to users about a cluster, a repository or a log: what the commands of the program, and other views, compute and show.
//!
//! - [`tree`], [`tree_lines`], [`trace`], [`portable`]: the results of an object, its origin, and its form as a manifest. [`object_facts`] has what all of them need to know.
//! - [`ownership`]: fields with several owners or none, and their writers.
//! - [`field_origin`]: the file and line of a field.
//! - [`chart_layers`]: the values of a Package's components, and the layers that set them.
//! - [`check`]: findings about a change before its commit.
//! - [`deletion`]: what goes with a deleted object.
//! - [`installation_check`], [`installation_summary`]: whether an installation would work in a cluster, and what it then keeps.
//! - [`log_lines`]: lines of the controllers' log about an object.
//! - [`attestation`]: the attacks that a cluster has to stop, and the meaning of their answers.
//! - [`bootstrap`]: the steps from an empty cluster and a repository to a platform, and the files that the repository gets.
//! - [`object_table`], [`event_table`]: rows of objects and events for people; [`text_table`], [`ages`] and [`suggestions`] for all output.
//! - [`jsonpath`], [`custom_columns`]: the outputs that users describe, in kubectl's grammar.
//! - [`access_audit`], [`access_reports`]: credentials of sources, and the requests for them.
//!
//! Every report is a function of what was read. A part that could not be read is named, and never taken for absent.

pub mod access_audit;
pub mod access_reports;
pub mod ages;
pub mod attestation;
pub mod bootstrap;
pub mod chart_layers;
pub mod check;
pub mod custom_columns;
pub mod deletion;
pub mod event_table;
pub mod field_origin;
pub mod installation_check;
pub mod installation_summary;
pub mod jsonpath;
pub mod log_lines;
pub mod object_facts;
pub mod object_table;
pub mod ownership;
pub mod portable;
pub mod suggestions;
pub mod text_table;
pub mod trace;
pub mod tree;
pub mod tree_lines;
