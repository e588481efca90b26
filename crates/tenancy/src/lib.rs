//! Decides who may do what in which tenant. No other code allows or denies, except Kubernetes' own RBAC.
//!
//! Data goes in, and a decision comes out: this crate reads no cluster, clock or file. Every denial has a message for the affected
//! person, which names the missing condition. Empty, unknown, ambiguous and contradictory values are denied.
//!
//! ```text
//! namespaces and Tenants ──[placement]──▶ Placement ──[identity]──▶ Identity   who acts
//!                                        │
//!                                        ├──[lane]───────▶ in which lane, and with which rights for bookkeeping?
//!                                        ├──[reference]──▶ may it name that source, that dependency?
//!                                        ├──[write_scope]──────▶ may it write that object?
//!                                        ├──[foreign_token]▶ which of its tokens may another cluster see?
//!                                        ├──[owner]──────▶ whose is an object that two want?
//!                                        └──[surface]────▶ which tier is a Surface here?
//!
//! Tenants and namespaces ──[facts]──▶ Facts ──[mentions]──▶ does an object outside the tenant name that namespace already?
//! ```
//!
//! `crates/admission-rules` decides with these facts whether a user may write an object, before it is stored.

pub mod access;
pub mod adoption;
pub mod bounds;
pub mod denial;
pub mod external;
pub mod facts;
pub mod flux_account;
pub mod foreign_token;
pub mod grant;
pub mod identity;
pub mod ingresses;
pub mod instance;
pub mod inventory;
pub mod lane;
pub mod membership;
pub mod mentions;
pub mod namespace_metadata;
pub mod owner;
pub mod owner_reference;
pub mod placement;
pub mod pod_security;
pub mod quotas;
pub mod record;
pub mod reference;
pub mod rights;
pub mod settings;
pub mod shared_minters;
pub mod surface;
pub mod termination;
pub mod write_scope;

pub use bounds::Bounds;
pub use denial::{Denial, DenialReason};
pub use external::ExternalGrant;
pub use facts::{AffectedObjects, FactIndex};
pub use foreign_token::{OwnAnswer, TokenClaims, TokenOrder};
pub use grant::ReferenceGrant;
pub use identity::{Controller, Identity, Installer, LaneAccount, RemoteClusterUser, SecretWriter, ServiceAccount};
pub use ingresses::{HostPath, IngressIndex, IngressRoutes};
pub use instance::{Instance, ShardAssignment, ShardName, ShardUnit};
pub use lane::Lane;
pub use membership::{Membership, find_membership};
pub use namespace_metadata::NamespaceMetadata;
pub use owner_reference::make_owner_reference;
pub use placement::{
    Holder, NamespaceFacts, Placement, TenancyFacts, TenancyIndex, TenantFacts, TenantOwnerFacts, TenantPlacement,
};
pub use pod_security::PodSecurityLevel;
pub use quotas::{QuotaItem, TenantQuotas, Usages};
pub use record::{RecordState, check_takeable};
pub use reference::Referrer;
pub use settings::{LEAST_INTERVAL, Settings};
pub use termination::Termination;
