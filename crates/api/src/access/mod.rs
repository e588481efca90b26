//! The kinds by which access to Git and registries is asked for, approved and kept: what an administrator configures, what a tenant asks, what the
//! controller makes of it, and what who may approve answers.
//!
//! Owns their fields, and the grammar of rotation periods. No field of them holds the value of a credential: a status has ids, times and SHA-256
//! fingerprints. Refuses to decide: who may receive what is `tenancy`'s, what is made next the planner's.

pub mod asked;
pub mod grant;
pub mod period;
pub mod provider;
pub mod request;
pub mod standing;
pub mod target;

pub use asked::{FluxAccess, FluxAccessSpec, FluxAccessStatus};
pub use grant::{FluxAccessGrant, FluxAccessGrantSpec, FluxAccessGrantStatus};
pub use period::{Period, PeriodError};
pub use provider::{AccessProvider, AccessProviderSpec, AccessProviderStatus};
pub use request::{FluxAccessRequest, FluxAccessRequestSpec, FluxAccessRequestStatus};
pub use standing::{FluxAccessStandingGrant, FluxAccessStandingGrantSpec, FluxAccessStandingGrantStatus};
pub use target::{FluxAccessTarget, FluxAccessTargetSpec, FluxAccessTargetStatus};

/// The group of these kinds.
pub const GROUP: &str = "tenure.dev";
/// Plural name of AccessProviders.
pub const PROVIDERS: &str = "accessproviders";
/// The verb on AccessProviders by which a RoleBinding is an administrator's: the account that writes credentials holds it where an administrator has bound
/// it. Owners lack the verb, so that RBAC lets them bind no role that has it.
pub const WRITE_CREDENTIALS: &str = "write-credentials";
/// The plural name of [`FluxAccessTarget`], on which the verb of who approves is asked.
pub const TARGETS: &str = "fluxaccesstargets";
/// Annotation on a [`FluxAccess`]: who wrote its spec. Admission puts it there, and refuses another name than the writer's.
pub const REQUESTED_BY: &str = "tenure.dev/requested-by";
/// How labels begin by which a namespace may receive a group's credential; behind it stands the name of the target, as in
/// `groups.access.tenure.dev/work-42`. Who sets one has to hold the verb `approve` on that target.
pub const GROUP_LABEL_PREFIX: &str = "groups.access.tenure.dev/";
/// Label of a Secret that holds a credential: the name of the [`FluxAccessRequest`] that it was made for.
pub const REQUEST_LABEL: &str = "tenure.dev/access-request";
/// How annotations on a ServiceAccount begin that say which Secret a [`FluxAccessRequest`] put among its `imagePullSecrets`: behind it stands the request's
/// name, and the value is the Secret's. What no such annotation names is somebody else's.
pub const PULL_PREFIX: &str = "pull-secrets.access.tenure.dev/";
/// Annotation on a [`FluxAccessRequest`]: an order to replace its credentials now, in all namespaces. Its value is another text for each order; the ledger of
/// each namespace says which was carried out last (`handledOrder`). Who sets, changes or removes one has to hold the verb `approve` on the request's target,
/// and a new one begins with the line `by: ` and his name, behind [`LEAK_PREFIX`] if it has that.
pub const ROTATE: &str = "tenure.dev/rotate";
/// How annotations begin that order the same in one namespace, whose name stands behind it.
pub const ROTATE_PREFIX: &str = "rotate.access.tenure.dev/";
/// How the value of such an order begins where others know the credentials: each is revoked as soon as its successor is in use.
pub const LEAK_PREFIX: &str = "leak/";
/// The longest order, in characters.
pub const LONGEST_ORDER: usize = 2048;
/// The Secret's name where nobody chose one, as GitLab's issue 389393 has it.
pub const DEFAULT_SECRET_NAME: &str = "gitlab-flux-token";
/// The role where nobody chose one.
pub const DEFAULT_ROLE: &str = "read_registry";
/// The period where nobody chose one.
pub const DEFAULT_ROTATE: &str = "90d";

/// The name of a target: of the provider, and the host's own number. A provider's name may have hyphens, a number has none.
#[must_use]
pub fn name_target(provider: &str, id: u64) -> String {
    format!("{provider}-{id}")
}
