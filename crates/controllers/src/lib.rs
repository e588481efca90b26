//! Observe, execute and the loop: one folder a kind. Every decision is the planner's or tenancy's.
//!
//! ```text
//! watches of our kinds (as the controller) ─▶ caches ─┐
//! watches of applied objects (each as the identity ───┼─▶ mailbox ─▶ drive: one task an object, bounded by its lane
//!                             that applied them)      │                 │
//! artifacts ──────────────────────────────────────────┘     observe ─▶ plan ─▶ execute ─▶ write status, events
//! ```
//!
//! It refuses to choose: a step of a plan is executed as the identity that the plan names, or not at all. It serves nothing over a
//! network, and nothing that it writes with the controller's own rights comes out of a repository.

mod answers;
mod artifacts;
mod budgets;
mod cache;
mod config;
mod dependents;
mod drive;
mod entry;
mod execute;
mod git_repository;
mod inventories;
mod key;
mod kinds;
mod kustomization;
mod lanes;
mod live;
mod looking;
mod mailbox;
mod manager;
mod origin;
mod own;
mod realm;
mod reconciled;
mod render;
mod supervise;
mod surface;
mod tenant;
mod trees;
mod turnovers;
mod under_way;
mod world;

pub use budgets::{Budgets, Share};
pub use config::Config;
pub use manager::{RunError, run};
pub use origin::{OriginError, built_object};
pub use render::RenderLimits;
pub use tenure_planner::kustomization::Guards;
