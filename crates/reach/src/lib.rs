//! The authority that a subject can reach on a Kubernetes cluster, transitively, as a graph.
//!
//! A [`Cluster`] is read from objects. [`Reach::search`] finds everything that a user, a group, a ServiceAccount or a tenant can become, each with a
//! shortest path of named edges, and what stops further edges. [`list_beyond`] keeps what no administrator granted to a tenant.
//!
//! Pure: objects come in, answers go out. Policies are evaluated; a webhook can only be named. What could not be read is unknown, never absent.

mod accounts;
mod admission;
mod beyond;
mod bindings;
mod cluster;
mod coverage;
mod escalate;
mod expand;
mod kinds;
mod node;
mod object;
mod powers;
mod report;
mod rules;
mod search;
mod subject;
mod writes;

pub use admission::{Judge, WhenDead};
pub use beyond::list_beyond;
pub use cluster::Cluster;
pub use coverage::{Coverage, name_source};
pub use kinds::{SOURCES, Source};
pub use node::{Identity, Node, Scope};
pub use report::{Access, Reach, Reached, Right, Step, Stopped, Target};
pub use rules::Rule;
pub use subject::Subject;
