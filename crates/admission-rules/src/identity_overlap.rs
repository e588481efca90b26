//! Decides whether two users can be one person. A user that can speak as another one counts as that one: by a token, by impersonation, or by a Pod
//! that runs as it. An approver who can speak as the requester approves a request of its own.

use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Question};

/// A right by which a user speaks as any ServiceAccount of a namespace, or as the named one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImpersonationRight {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// Plural name, and a subresource behind a slash.
    pub(super) resource: &'static str,
    /// True if the right is for the account by its name.
    pub(super) is_named: bool,
}

const fn make_named_right(verb: &'static str, resource: &'static str) -> ImpersonationRight {
    ImpersonationRight {
        verb,
        group: "",
        resource,
        is_named: true,
    }
}

/// Returns a right on all ServiceAccounts of a namespace.
const fn any(verb: &'static str, group: &'static str, resource: &'static str) -> ImpersonationRight {
    ImpersonationRight {
        verb,
        group,
        resource,
        is_named: false,
    }
}

/// Tokens, Secrets that hold tokens, Pods that run as the account, rights that users can grant themselves, and repositories. One policy asks about each list: a
/// policy may ask for a limited number of rights.
/// The last list has the objects whose content a controller applies as an account of their namespace, and the sources of this content.
pub(super) const WAYS: [&[ImpersonationRight]; 3] = [
    &[
        make_named_right("create", "serviceaccounts/token"),
        make_named_right("impersonate", "serviceaccounts"),
        any("get", "", "secrets"),
        any("list", "", "secrets"),
        any("create", "", "pods/exec"),
        any("get", "", "pods/exec"),
        any("create", "", "pods/attach"),
        any("get", "", "pods/attach"),
        any("create", "", "pods"),
        any("create", "", "replicationcontrollers"),
        any("create", "apps", "deployments"),
        any("create", "apps", "replicasets"),
        any("create", "apps", "statefulsets"),
        any("create", "apps", "daemonsets"),
        any("create", "batch", "jobs"),
        any("create", "batch", "cronjobs"),
        any("bind", "rbac.authorization.k8s.io", "roles"),
        any("escalate", "rbac.authorization.k8s.io", "roles"),
    ],
    &[
        any("patch", "", "pods/ephemeralcontainers"),
        any("update", "", "pods/ephemeralcontainers"),
        any("patch", "", "pods"),
        any("update", "", "pods"),
        any("patch", "", "replicationcontrollers"),
        any("update", "", "replicationcontrollers"),
        any("patch", "apps", "deployments"),
        any("update", "apps", "deployments"),
        any("patch", "apps", "replicasets"),
        any("update", "apps", "replicasets"),
        any("patch", "apps", "statefulsets"),
        any("update", "apps", "statefulsets"),
        any("patch", "apps", "daemonsets"),
        any("update", "apps", "daemonsets"),
        any("patch", "batch", "cronjobs"),
        any("update", "batch", "cronjobs"),
    ],
    &[
        any("create", "kustomize.toolkit.fluxcd.io", "kustomizations"),
        any("create", "helm.toolkit.fluxcd.io", "helmreleases"),
        any("create", "tenure.dev", "surfaces"),
        any("create", "source.toolkit.fluxcd.io", "gitrepositories"),
        any("create", "source.toolkit.fluxcd.io", "ocirepositories"),
        any("create", "source.toolkit.fluxcd.io", "buckets"),
        any("create", "source.toolkit.fluxcd.io", "helmrepositories"),
        any("create", "source.extensions.fluxcd.io", "artifactgenerators"),
        any("patch", "kustomize.toolkit.fluxcd.io", "kustomizations"),
        any("patch", "helm.toolkit.fluxcd.io", "helmreleases"),
        any("patch", "tenure.dev", "surfaces"),
        any("patch", "source.toolkit.fluxcd.io", "gitrepositories"),
        any("patch", "source.toolkit.fluxcd.io", "ocirepositories"),
        any("patch", "source.toolkit.fluxcd.io", "buckets"),
        any("patch", "source.toolkit.fluxcd.io", "helmrepositories"),
        any("patch", "source.extensions.fluxcd.io", "artifactgenerators"),
        any("update", "kustomize.toolkit.fluxcd.io", "kustomizations"),
        any("update", "helm.toolkit.fluxcd.io", "helmreleases"),
        any("update", "tenure.dev", "surfaces"),
        any("update", "source.toolkit.fluxcd.io", "gitrepositories"),
        any("update", "source.toolkit.fluxcd.io", "ocirepositories"),
        any("update", "source.toolkit.fluxcd.io", "buckets"),
        any("update", "source.toolkit.fluxcd.io", "helmrepositories"),
        any("update", "source.extensions.fluxcd.io", "artifactgenerators"),
    ],
];

/// The number of questions about two ServiceAccounts: each way to act as an account, in both directions.
pub const MOST_OVERLAP_QUESTIONS: usize = {
    let [accounts, workloads, repositories] = WAYS;
    2 * (accounts.len() + workloads.len() + repositories.len())
};

impl ImpersonationRight {
    /// Returns the question whether a user has this right on a ServiceAccount.
    fn ask<'a>(self, (namespace, name): (&'a str, &'a str)) -> Question<'a> {
        Question {
            verb: self.verb,
            group: self.group,
            resource: self.resource,
            namespace,
            name: if self.is_named { name } else { "" },
        }
    }
}

/// Returns the namespace and name of a ServiceAccount, if the user is one.
pub(super) fn read_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')
}

/// Returns the reason why the user that sent the request can be the same person as another one. An unknown
/// answer counts as yes.
pub(super) fn find_reason(case: Case<'_>, other: &str) -> Option<String> {
    let user = case.request.actor.user;
    let ways = || WAYS.iter().copied().flatten();
    match (read_account(user), read_account(other)) {
        (None, None) => {
            let question = Question {
                verb: "impersonate",
                group: "",
                resource: "users",
                namespace: "",
                name: other,
            };
            case.is_allowed(&question)
                .then(|| format!("{user} may impersonate {other}"))
        }
        (Some((one, _)), Some((another, _))) if one == another => Some(format!(
            "{user} and {other} are of one namespace: a user that creates Pods there is both"
        )),
        (own, Some(account)) => {
            // All rights are asked at once, so that a shell fetches the answers together.
            let found: Vec<_> = ways().filter(|way| case.is_allowed(&way.ask(account))).collect();
            if let Some(way) = found.first() {
                return Some(format!(
                    "{user} can speak as {other}: it may {} {} in namespace {}",
                    way.verb, way.resource, account.0
                ));
            }
            let own = own?;
            let back = |way: &&ImpersonationRight| case.surroundings.may_account(account, &way.ask(own));
            let found: Vec<_> = ways().filter(back).collect();
            let way = found.first()?;
            Some(format!(
                "{other} can speak as {user}: it may {} {} in namespace {}",
                way.verb, way.resource, own.0
            ))
        }
        // The rights of a user that did not send the request are unknown.
        (Some((namespace, _)), None) => {
            let is_platforms = namespace == case.facts.settings().platform_namespace;
            (!is_platforms)
                .then(|| format!("{user} is a ServiceAccount of namespace {namespace}, as which {other} might speak"))
        }
    }
}
