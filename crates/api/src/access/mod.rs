//! The kinds for requests and approvals of access to Git and registries: the administrator's configuration, the tenant's requests, the
//! controller's objects, and the approvers' answers.
//!
//! No field of them holds the value of a credential: a status has ids, times and SHA-256 fingerprints. `tenancy` decides about receivers of
//! credentials, and the planner about the next step.

pub mod flux_access;
pub mod grant;
pub mod period;
pub mod provider;
pub mod request;
pub mod standing_grant;
pub mod target;

pub use flux_access::{FluxAccess, FluxAccessSpec, FluxAccessStatus};
pub use grant::{FluxAccessGrant, FluxAccessGrantSpec, FluxAccessGrantStatus};
pub use period::{Period, PeriodError};
pub use provider::{AccessProvider, AccessProviderSpec, AccessProviderStatus};
pub use request::{FluxAccessRequest, FluxAccessRequestSpec, FluxAccessRequestStatus};
pub use standing_grant::{FluxAccessStandingGrant, FluxAccessStandingGrantSpec, FluxAccessStandingGrantStatus};
pub use target::{FluxAccessTarget, FluxAccessTargetSpec, FluxAccessTargetStatus};

/// The group of these kinds.
pub const GROUP: &str = "tenure.dev";
/// Plural name of AccessProviders.
pub const PROVIDERS: &str = "accessproviders";
/// The verb on AccessProviders by which a RoleBinding counts as an administrator's: the account that writes credentials holds it where an administrator
/// has bound the account. Owners lack the verb, so RBAC lets them bind no role that has it.
pub const WRITE_CREDENTIALS: &str = "write-credentials";
/// The plural name of [`FluxAccessTarget`]. Approvers hold their verb on this resource.
pub const TARGETS: &str = "fluxaccesstargets";
/// Annotation on a [`FluxAccess`]: the author of its spec. Admission writes it, and denies another name than the writer's.
pub const REQUESTED_BY: &str = "tenure.dev/requested-by";
/// The prefix of labels that allow a namespace to receive a group's credential. The name of the target follows, as in
/// `groups.access.tenure.dev/work-42`. Setting such a label needs the verb `approve` on that target.
pub const GROUP_LABEL_PREFIX: &str = "groups.access.tenure.dev/";
/// Label of a Secret that holds a credential: the name of its [`FluxAccessRequest`].
pub const REQUEST_LABEL: &str = "tenure.dev/access-request";
/// The prefix of annotations on a ServiceAccount that name the Secret that a [`FluxAccessRequest`] added to its `imagePullSecrets`. The request's name
/// follows, and the value is the Secret's name. Entries without such an annotation belong to others.
pub const PULL_PREFIX: &str = "pull-secrets.access.tenure.dev/";
/// Annotation on a [`FluxAccessRequest`]: an order to replace its credentials now, in all namespaces. Its value is another text for each order. The ledger of
/// each namespace has the last executed one (`handledOrder`). Setting, changing or removing an order needs the verb `approve` on the request's target. A new
/// one begins with the line `by: ` and the writer's name, behind [`LEAK_PREFIX`] if it has that.
pub const ROTATE: &str = "tenure.dev/rotate";
/// The prefix of annotations that order a replacement in one namespace, whose name follows.
pub const ROTATE_PREFIX: &str = "rotate.access.tenure.dev/";
/// The prefix of an order's value if the credentials have leaked: each is revoked as soon as its successor is in use.
pub const LEAK_PREFIX: &str = "leak/";
/// The longest order, in characters.
pub const LONGEST_ORDER: usize = 2048;
/// The default name of the Secret, as in GitLab's issue 389393.
pub const DEFAULT_SECRET_NAME: &str = "gitlab-flux-token";
/// The default role.
pub const DEFAULT_ROLE: &str = "read_registry";
/// The default period.
pub const DEFAULT_ROTATE: &str = "90d";

/// Returns the name of a target: the provider, and the host's own number. A provider's name may have hyphens, a number has
/// none.
#[must_use]
pub fn name_target(provider: &str, id: u64) -> String {
    format!("{provider}-{id}")
}
