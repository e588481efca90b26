//! Finds the ways to a Secret besides the accounts that an entry names.
//!
//! These rights are ways to a Secret:
//!
//! - to read Secrets,
//! - to make Pods that mount the Secret, or to enter Pods that do,
//! - to request tokens of an account that may read it, or to impersonate this account,
//! - to write objects that a controller reconciles as an account of the namespace, and that can name the Secret,
//! - to write rights.
//!
//! Kubernetes' rules list only what is granted, so the answer is a list of subjects and bindings. A role that could not be read may grant anything.

use serde::Deserialize;

use crate::denial::Denial;

/// The greatest number of reported ways to one Secret.
pub const MOST: usize = 100;
/// The kinds that create Pods, by group and plural name.
const WORKLOADS: [(&str, &str); 9] = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "podtemplates"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];
/// The subresources of Pods through which a user enters them.
const ENTRANCES: [&str; 3] = ["pods/exec", "pods/attach", "pods/ephemeralcontainers"];

/// The kinds that name a Secret, or a repository, and that a controller reconciles as an account of their namespace. A source or a Provider sends a Secret to an
/// address of the author's choice.
const RECONCILED: [(&str, &str); 15] = [
    ("tenure.dev", "surfaces"),
    ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    ("helm.toolkit.fluxcd.io", "helmreleases"),
    ("source.toolkit.fluxcd.io", "buckets"),
    ("source.toolkit.fluxcd.io", "gitrepositories"),
    ("source.toolkit.fluxcd.io", "helmcharts"),
    ("source.toolkit.fluxcd.io", "helmrepositories"),
    ("source.toolkit.fluxcd.io", "ocirepositories"),
    ("source.extensions.fluxcd.io", "artifactgenerators"),
    ("notification.toolkit.fluxcd.io", "alerts"),
    ("notification.toolkit.fluxcd.io", "providers"),
    ("notification.toolkit.fluxcd.io", "receivers"),
    ("image.toolkit.fluxcd.io", "imagepolicies"),
    ("image.toolkit.fluxcd.io", "imagerepositories"),
    ("image.toolkit.fluxcd.io", "imageupdateautomations"),
];

/// One rule of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleFacts {
    /// API groups; `*` for all.
    pub api_groups: Vec<String>,
    /// Plural names, with subresources; `*` for all.
    pub resources: Vec<String>,
    /// Names; all if empty.
    pub resource_names: Vec<String>,
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
}

impl RuleFacts {
    /// Checks whether the rule grants one of the verbs on a resource. Names of objects are not compared.
    fn gives(&self, verbs: &[&str], group: &str, resource: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|given| given == "*" || given == wanted);
        let part = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
        let is_about = has(&self.resources, resource) || part.is_some_and(|part| self.resources.contains(&part));
        verbs.iter().any(|verb| has(&self.verbs, verb)) && has(&self.api_groups, group) && is_about
    }

    /// Checks whether the rule covers an object with this name.
    fn names(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|given| given == name)
    }
}

/// A subject of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubjectFacts {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Namespace of a ServiceAccount.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl SubjectFacts {
    /// Returns the user name of a user or ServiceAccount, or `group NAME`.
    fn user(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => name_account(&self.namespace, &self.name),
            "Group" => format!("group {}", self.name),
            _ => self.name.clone(),
        }
    }
}

fn name_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// A RoleBinding of the namespace or a ClusterRoleBinding, with the rules of its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingFacts {
    /// Its name.
    pub name: String,
    /// The rules of its role. None if the role could not be read. A missing role has no rules.
    pub rules: Option<Vec<RuleFacts>>,
    /// Its subjects.
    pub subjects: Vec<SubjectFacts>,
}

/// A right by which a subject can get the content of a Secret besides the intended readers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessPath {
    /// Reads the Secret.
    Reads,
    /// Makes Pods, which can mount the Secret.
    MakesPods,
    /// Enters Pods, which may have the Secret.
    EntersPods,
    /// Requests tokens of an account that may read the Secret.
    TakesToken(String),
    /// Impersonates an account that may read the Secret.
    Impersonates(String),
    /// Writes objects that a controller reconciles as an account of the namespace.
    WritesReconciled,
    /// Can gain any right in the namespace by writing roles or bindings.
    WritesRights,
    /// The rules of the binding could not be read.
    Unknown,
}

impl std::fmt::Display for AccessPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reads => formatter.write_str("reads it"),
            Self::MakesPods => formatter.write_str("makes Pods, which can mount it"),
            Self::EntersPods => formatter.write_str("enters Pods, which may have it"),
            Self::TakesToken(account) => write!(formatter, "takes tokens of ServiceAccount {account}, which reads it"),
            Self::Impersonates(account) => {
                write!(formatter, "impersonates ServiceAccount {account}, which reads it")
            }
            Self::WritesReconciled => formatter.write_str("writes sources, Surfaces or the like, which can name it"),
            Self::WritesRights => formatter.write_str("gives itself any right there"),
            Self::Unknown => formatter.write_str("has rights that could not be read"),
        }
    }
}

/// A subject that can get the content of a Secret although it is no intended reader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherReader {
    /// A user name, or `group NAME`.
    pub who: String,
    /// The right by which the subject gets the content.
    pub way: AccessPath,
    /// The name of the binding.
    pub binding: String,
}

/// The Secret, and its intended readers.
#[derive(Clone, Copy, Debug)]
pub struct IntendedReaders<'a> {
    /// The Secret's namespace.
    pub namespace: &'a str,
    /// The Secret's name.
    pub secret: &'a str,
    /// The ServiceAccounts of the namespace that the entry names.
    pub accounts: &'a [String],
    /// Users that are intended, too: the writer of the Secret, and the accounts with which sources
    /// in its namespace read it.
    pub others: &'a [String],
}

/// Lists the unintended readers of a Secret by these bindings: at most [`MOST`]. The caller asks about RoleBindings of the namespace and
/// ClusterRoleBindings separately, as the owners of the namespace can change only the former.
#[must_use]
pub fn list_other_readers(meant: IntendedReaders<'_>, bindings: &[BindingFacts]) -> Vec<OtherReader> {
    list_others(meant, bindings, |_| true, |_, _| true)
}

/// Lists the subjects that can become an account by these bindings, at most [`MOST`]: by its tokens, by impersonation, by Pods that run as it, or by rights
/// that they can write. Authors of objects that are reconciled as the account are left out: the repository of such an object is the account's purpose. Users and
/// groups that may repair every Tenant are left out, too. Admission recognises them by the verb `adopt` on all Tenants. A program
/// with all rights is not left out.
#[must_use]
pub fn list_takers(namespace: &str, account: &str, bindings: &[BindingFacts]) -> Vec<OtherReader> {
    let accounts = [account.to_owned()];
    let meant = IntendedReaders {
        namespace,
        secret: "",
        accounts: &accounts,
        others: &[],
    };
    let takes = |way: &AccessPath| {
        !matches!(
            way,
            AccessPath::Reads | AccessPath::EntersPods | AccessPath::WritesReconciled
        )
    };
    let counts = |binding: &BindingFacts, subject: &SubjectFacts| {
        let mut rules = binding.rules.iter().flatten();
        let may_repair =
            rules.any(|rule| rule.gives(&["adopt"], "capsule.clastix.io", "tenants") && rule.resource_names.is_empty());
        subject.kind == "ServiceAccount" || !may_repair
    };
    list_others(meant, bindings, takes, counts)
}

/// Lists the unintended subjects with a right to the Secret. `takes` selects the rights, and `counts` the subjects.
fn list_others(
    meant: IntendedReaders<'_>,
    bindings: &[BindingFacts],
    takes: impl Fn(&AccessPath) -> bool,
    counts: impl Fn(&BindingFacts, &SubjectFacts) -> bool,
) -> Vec<OtherReader> {
    let is_meant = |user: &str| {
        let mut accounts = meant.accounts.iter();
        accounts.any(|account| name_account(meant.namespace, account) == user)
            || meant.others.iter().any(|other| other == user)
    };
    let mut found = Vec::new();
    for binding in bindings {
        let mut ways = list_ways(meant, binding);
        ways.retain(&takes);
        for subject in &binding.subjects {
            let who = subject.user();
            if ways.is_empty() || is_meant(&who) || !counts(binding, subject) {
                continue;
            }
            for way in &ways {
                if found.len() == MOST {
                    return found;
                }
                found.push(OtherReader {
                    who: who.clone(),
                    way: way.clone(),
                    binding: binding.name.clone(),
                });
            }
        }
    }
    found
}

/// Lists the rights to the Secret that one binding gives to its subjects.
fn list_ways(meant: IntendedReaders<'_>, binding: &BindingFacts) -> Vec<AccessPath> {
    let Some(rules) = &binding.rules else {
        return vec![AccessPath::Unknown];
    };
    let mut ways: Vec<AccessPath> = Vec::new();
    let mut add = |way: AccessPath| {
        if !ways.contains(&way) {
            ways.push(way);
        }
    };
    for rule in rules {
        if rule.gives(&["get", "list", "watch"], "", "secrets") && rule.names(meant.secret) {
            add(AccessPath::Reads);
        }
        let makes = ["create", "update", "patch"];
        if WORKLOADS
            .iter()
            .any(|(group, resource)| rule.gives(&makes, group, resource))
        {
            add(AccessPath::MakesPods);
        }
        if ENTRANCES
            .iter()
            .any(|part| rule.gives(&["get", "create", "update", "patch"], "", part))
        {
            add(AccessPath::EntersPods);
        }
        if RECONCILED
            .iter()
            .any(|(group, resource)| rule.gives(&makes, group, resource))
        {
            add(AccessPath::WritesReconciled);
        }
        for account in meant.accounts.iter().filter(|account| rule.names(account)) {
            if rule.gives(&["create"], "", "serviceaccounts/token") {
                add(AccessPath::TakesToken(account.clone()));
            }
            if rule.gives(&["impersonate"], "", "serviceaccounts") {
                add(AccessPath::Impersonates(account.clone()));
            }
            // In a RoleBinding this rule grants nothing. In a ClusterRoleBinding it allows to
            // impersonate the account.
            let user = name_account(meant.namespace, account);
            if rule.gives(&["impersonate"], "", "users") && rule.names(&user) {
                add(AccessPath::Impersonates(account.clone()));
            }
        }
        let rbac = "rbac.authorization.k8s.io";
        let raises = |resource: &str| rule.gives(&["escalate", "bind"], rbac, resource);
        if ["roles", "clusterroles"].into_iter().any(raises) {
            add(AccessPath::WritesRights);
        }
    }
    ways
}

/// Checks whether a strict Secret is delivered: only its intended readers may have a way to it by the bindings of the
/// namespace.
///
/// # Errors
/// The first unintended reader, and what to change.
pub fn check_strict(meant: IntendedReaders<'_>, others: &[OtherReader]) -> Result<(), Denial> {
    let Some(first) = others.first() else {
        return Ok(());
    };
    let more = match others.len() {
        1 => String::new(),
        count => format!(", and {} more ways", count - 1),
    };
    Err(Denial::access(format!(
        "Secret {}/{} is not delivered, as its entry is strict: {} {} (RoleBinding {}){more}; remove the right, name the ServiceAccount in service_accounts, or remove strict",
        meant.namespace, meant.secret, first.who, first.way, first.binding
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn bind(name: &str, subjects: &Value, rules: &Value) -> BindingFacts {
        BindingFacts {
            name: name.to_owned(),
            rules: serde_json::from_value(rules.clone()).unwrap(),
            subjects: serde_json::from_value(subjects.clone()).unwrap(),
        }
    }

    #[test]
    fn report_lists_every_way_to_a_secret() {
        let accounts = ["flux".to_owned()];
        let others = ["system:serviceaccount:tenure-system:writer".to_owned()];
        let meant = IntendedReaders {
            namespace: "team",
            secret: "git",
            accounts: &accounts,
            others: &others,
        };
        let user = json!([{ "kind": "User", "name": "mallory" }]);
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]| json!([{ "apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names }]);
        for (rules, expected) in [
            (rule(&[""], &["secrets"], &["get"], &[]), vec![AccessPath::Reads]),
            (rule(&["*"], &["*"], &["watch"], &[]), vec![AccessPath::Reads]),
            (rule(&[""], &["secrets"], &["list"], &["git"]), vec![AccessPath::Reads]),
            (rule(&[""], &["secrets"], &["get"], &["other"]), vec![]),
            (rule(&[""], &["secrets"], &["create", "delete"], &[]), vec![]),
            (
                rule(&["apps"], &["deployments"], &["patch"], &[]),
                vec![AccessPath::MakesPods],
            ),
            (rule(&["batch"], &["*"], &["create"], &[]), vec![AccessPath::MakesPods]),
            (rule(&[""], &["pods"], &["get", "delete"], &[]), vec![]),
            (
                rule(&["source.toolkit.fluxcd.io"], &["gitrepositories"], &["patch"], &[]),
                vec![AccessPath::WritesReconciled],
            ),
            (
                rule(&["tenure.dev"], &["surfaces"], &["create"], &[]),
                vec![AccessPath::WritesReconciled],
            ),
            (rule(&["tenure.dev"], &["surfaces"], &["get", "delete"], &[]), vec![]),
            (
                rule(&[""], &["pods/exec"], &["create"], &[]),
                vec![AccessPath::EntersPods],
            ),
            (rule(&[""], &["*/attach"], &["get"], &[]), vec![AccessPath::EntersPods]),
            (
                rule(&[""], &["serviceaccounts/token"], &["create"], &[]),
                vec![AccessPath::TakesToken("flux".to_owned())],
            ),
            (rule(&[""], &["serviceaccounts/token"], &["create"], &["other"]), vec![]),
            (
                rule(&[""], &["serviceaccounts"], &["impersonate"], &["flux"]),
                vec![AccessPath::Impersonates("flux".to_owned())],
            ),
            (
                rule(&["rbac.authorization.k8s.io"], &["roles"], &["bind"], &[]),
                vec![AccessPath::WritesRights],
            ),
            (
                rule(&["rbac.authorization.k8s.io"], &["rolebindings"], &["create"], &[]),
                vec![],
            ),
        ] {
            let found = list_other_readers(meant, &[bind("b", &user, &rules)]);
            let ways: Vec<AccessPath> = found.into_iter().map(|found| found.way).collect();
            assert_eq!(ways, expected, "{rules}");
        }
        // An intended reader counts as intended in each form of its name. An account with the same name elsewhere does not, and
        // neither does a group of the account.
        let subjects = json!([
            { "kind": "ServiceAccount", "namespace": "team", "name": "flux" },
            { "kind": "User", "name": "system:serviceaccount:team:flux" },
            { "kind": "ServiceAccount", "namespace": "tenure-system", "name": "writer" },
            { "kind": "ServiceAccount", "namespace": "elsewhere", "name": "flux" },
            { "kind": "Group", "name": "system:serviceaccounts:team" }
        ]);
        let reads = rule(&[""], &["secrets"], &["get"], &[]);
        let found = list_other_readers(meant, &[bind("readers", &subjects, &reads)]);
        let who: Vec<&str> = found.iter().map(|found| found.who.as_str()).collect();
        assert_eq!(
            who,
            [
                "system:serviceaccount:elsewhere:flux",
                "group system:serviceaccounts:team"
            ]
        );
        let denial = check_strict(meant, &found).unwrap_err().message;
        assert!(
            denial.contains("system:serviceaccount:elsewhere:flux reads it (RoleBinding readers), and 1 more ways"),
            "{denial}"
        );
        assert_eq!(check_strict(meant, &[]), Ok(()));
        // An unreadable role may grant anything.
        let unread = BindingFacts {
            rules: None,
            ..bind("hidden", &user, &reads)
        };
        assert_eq!(list_other_readers(meant, &[unread])[0].way, AccessPath::Unknown);
        // The list is bounded, however many bindings exist.
        let many = vec![bind("b", &user, &reads); 1_000];
        assert_eq!(list_other_readers(meant, &many).len(), MOST);
    }
}
