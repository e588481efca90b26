//! The loop that reconciles one object of any kind: observe, plan, execute, write.
//!
//! - `cluster_answers`: translates answers of the API server into facts for the planner.
//! - `kind_entry`: a kind as an entry in the table of kinds.
//! - `object_loop`: attempts and waits of one object.
//! - `object_writer`: writes finalizer, status and events of the reconciled object.
//! - `reconciled`: the trait of a reconciled kind.
//! - `step_executor`: sends the requests of a plan, as the plan's identity.
//! - `supervisor`: starts a reconciler again after a panic.

pub(crate) mod cluster_answers;
pub(crate) mod kind_entry;
pub(crate) mod object_loop;
pub(crate) mod object_writer;
pub(crate) mod reconciled;
pub(crate) mod step_executor;
pub(crate) mod supervisor;
