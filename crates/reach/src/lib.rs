//! The authority that a subject can reach on a Kubernetes cluster, transitively, as a graph.
//!
//! A [`Cluster`] is read from objects. [`Reach::search`] finds everything that a user, a group, a ServiceAccount or a tenant can become. Each result
//! has a shortest path of named edges, and stopped edges have the name of their obstacle. [`list_beyond`] keeps the results that no administrator
//! granted to a tenant.
//!
//! The crate is pure: objects come in, and answers go out. Policies are evaluated, and a webhook can only be named. An unreadable object is unknown,
//! never absent.

mod accounts;
mod admission;
mod attack_writes;
mod bindings;
mod cluster;
mod coverage;
mod deputies;
mod escalation;
mod graph_edges;
mod kinds;
mod node;
mod object;
mod pod_facts;
mod powers;
mod report;
mod rules;
mod search;
mod subject;
mod tenant_escapes;

pub use admission::{FailurePolicy, WriteCheck};
pub use cluster::Cluster;
pub use coverage::{Coverage, name_source};
pub use kinds::{ReadKind, SOURCES};
pub use node::{Identity, Node, Scope};
pub use report::{Access, Reach, Reached, Right, Step, Stopped, Target};
pub use rules::Rule;
pub use subject::Subject;
pub use tenant_escapes::list_beyond;
