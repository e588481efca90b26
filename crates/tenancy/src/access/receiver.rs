//! Decides which namespaces an entry may reach, by the entry's author.
//!
//! - An agent's configuration, and a FluxAccess in the platform namespace, reach the namespaces that an administrator gave the AccessProvider.
//! - A tenant's FluxAccess reaches the tenant's namespaces. Patterns of the AccessProvider don't limit it.
//! - Any other FluxAccess reaches its own namespace, if the AccessProvider has it.
//!
//! A pattern reaches namespaces without a tenant, and those of tenants that the AccessProvider lists by name. A tenant chooses its namespaces' names, and
//! `*` in the list of tenants says only that each tenant may ask for itself. A group's credential opens every project that is added to the group later. So
//! the receiving namespace must be listed, or labelled by an approver of the group: a pattern alone would give the credential to every creator of a
//! namespace with a matching name.
//!
//! In a cluster without admission, labels don't count.

use std::collections::BTreeMap;

use tenure_api::access::{GROUP_LABEL_PREFIX, name_target};

use super::pattern::NamespacePattern;
use crate::denial::Denial;
use crate::placement::{Holder, Placement};
use crate::settings::is_kubernetes_own;

/// The author of an entry.
#[derive(Clone, Copy, Debug)]
pub enum EntryAuthor<'a> {
    /// An agent's configuration. An administrator named the agent in the AccessProvider.
    Agent,
    /// A FluxAccess: its namespace, and the placement of this namespace.
    Object(&'a str, &'a Placement),
}

/// The namespaces and tenants that an administrator gave an AccessProvider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderReach {
    /// Its name.
    pub name: String,
    /// The namespaces that its agent reaches.
    pub namespaces: Vec<NamespacePattern>,
    /// The namespaces that may receive a group's credential.
    pub group_namespaces: Vec<String>,
    /// The tenants that may ask for themselves; `*` for all.
    pub tenants: Vec<String>,
}

/// A namespace that may receive a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivingNamespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// True while the namespace is being deleted.
    pub is_deleting: bool,
}

/// The facts about this installation of Tenure that decide about receivers.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// The platform namespace.
    pub platform: &'a str,
    /// True if admission checks writes ([`crate::Settings::judges_writes`]).
    pub judges_writes: bool,
}

/// Checks whether an entry may have its Secret in a namespace. `group` is the number of the group, if the entry asks for a
/// group's credential.
///
/// # Errors
/// The reason, and the person that can change it.
pub fn check_receiver(
    asker: EntryAuthor<'_>,
    provider: &ProviderReach,
    group: Option<u64>,
    (receiver, holder): (&ReceivingNamespace, &Holder),
    installation: Installation<'_>,
) -> Result<(), Denial> {
    let name = receiver.name.as_str();
    if receiver.is_deleting {
        return Err(Denial::access(format!(
            "namespace {name} is being deleted: nothing is delivered there any more"
        )));
    }
    if is_kubernetes_own(name) {
        return Err(Denial::access(format!(
            "namespace {name} belongs to Kubernetes: no credential is delivered there; name another one"
        )));
    }
    let by_provider = |whose: &str| {
        let fits = |pattern: &&NamespacePattern| pattern.matches(name, installation.platform);
        let mut fitting = provider.namespaces.iter().filter(fits).peekable();
        if fitting.peek().is_none() {
            return Err(Denial::access(format!(
                "no administrator listed namespace {name} for {whose}: ask an administrator to add it to spec.namespaces of AccessProvider {}, by its name if a platform lives in it",
                provider.name
            )));
        }
        // Only an administrator writes a whole name. A name that fits a pattern is chosen by the tenant that creates the namespace.
        if fitting.any(NamespacePattern::is_name) {
            return Ok(());
        }
        match holder {
            Holder::Nobody => Ok(()),
            Holder::Tenant(tenant) if names_tenant(provider, tenant) => Ok(()),
            Holder::Tenant(_) => Err(Denial::access(format!(
                "namespace {name} matches a pattern, but belongs to a tenant that AccessProvider {} does not list by name: an administrator adds the \
                 tenant to spec.tenants, or the namespace by its name to spec.namespaces",
                provider.name
            ))),
            Holder::Unknown => Err(Denial::access(format!(
                "namespace {name} matches a pattern, but its tenant isn't known yet: wait until its Tenant has recorded it, or ask an administrator to add it by its name to spec.namespaces of AccessProvider {}",
                provider.name
            ))),
        }
    };
    match asker {
        EntryAuthor::Agent => by_provider("the agent")?,
        EntryAuthor::Object(_, Placement::Platform { .. }) => by_provider("the platform namespace")?,
        EntryAuthor::Object(_, Placement::Tenant(tenant)) => {
            if !lists_tenant(provider, tenant.tenant.as_str()) {
                return Err(Denial::access(format!(
                    "tenant {} may not ask AccessProvider {} for anything: ask an administrator to add it to spec.tenants",
                    tenant.tenant, provider.name
                )));
            }
            if !tenant.namespaces.iter().any(|own| own.as_str() == name) {
                return Err(Denial::access(format!(
                    "namespace {name} does not belong to tenant {}: a tenant asks for its own namespaces only",
                    tenant.tenant
                )));
            }
        }
        EntryAuthor::Object(own, Placement::Unclaimed { .. }) => {
            if own != name {
                return Err(Denial::access(format!(
                    "namespace {name} is not {own}, which belongs to no tenant: a FluxAccess there asks for that namespace only"
                )));
            }
            by_provider("this namespace")?;
        }
        EntryAuthor::Object(own, Placement::Disputed { message }) => {
            return Err(Denial::access(format!(
                "a FluxAccess in namespace {own} has no identity: {message}"
            )));
        }
    }
    let Some(group) = group else {
        return Ok(());
    };
    let target = name_target(&provider.name, group);
    let label = format!("{GROUP_LABEL_PREFIX}{target}");
    let is_labelled = receiver.labels.contains_key(&label);
    if provider.group_namespaces.iter().any(|listed| listed == name) || (is_labelled && installation.judges_writes) {
        return Ok(());
    }
    Err(Denial::access(if is_labelled {
        format!(
            "namespace {name} has the label {label}, but no admission checks who sets labels in this cluster: turn admission on, or list the namespace in \
             spec.groupNamespaces of AccessProvider {}",
            provider.name
        )
    } else {
        format!(
            "a namespace must be marked for a group's credential: an approver for {target} sets the label {label} on \
             namespace {name}, or an administrator lists it in spec.groupNamespaces of AccessProvider {}",
            provider.name
        )
    }))
}

/// Checks whether an AccessProvider lets a tenant ask for its own namespaces, by name or by `*`.
fn lists_tenant(provider: &ProviderReach, tenant: &str) -> bool {
    provider.tenants.iter().any(|given| given == "*") || names_tenant(provider, tenant)
}

/// Checks whether an AccessProvider lists a tenant by its name. A `*` does not count.
fn names_tenant(provider: &ProviderReach, tenant: &str) -> bool {
    provider.tenants.iter().any(|given| given == tenant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{NamespaceFacts, TenancyFacts, TenantFacts, TenantOwnerReference};

    fn find_placement(namespace: &str) -> Placement {
        let own = |name: &str, tenant: &str| NamespaceFacts {
            name: name.to_owned(),
            uid: format!("u-{name}"),
            tenant_label: Some(tenant.to_owned()),
            tenant_owners: vec![TenantOwnerReference {
                name: tenant.to_owned(),
                uid: format!("t-{tenant}"),
            }],
            ..NamespaceFacts::default()
        };
        let tenant = |name: &str, namespaces: &[&str]| TenantFacts {
            name: name.to_owned(),
            uid: format!("t-{name}"),
            recorded: namespaces
                .iter()
                .map(|own| ((*own).to_owned(), format!("u-{own}")))
                .collect(),
            ..TenantFacts::default()
        };
        let tenancy = TenancyFacts {
            tenants: vec![tenant("blue", &["blue", "blue-dev"]), tenant("red", &["red"])],
            namespaces: vec![
                own("blue", "blue"),
                own("blue-dev", "blue"),
                own("red", "red"),
                own("claims-red", "red"),
                NamespaceFacts {
                    name: "free".to_owned(),
                    ..NamespaceFacts::default()
                },
                NamespaceFacts {
                    name: "tenure-system".to_owned(),
                    ..NamespaceFacts::default()
                },
            ],
            ..TenancyFacts::default()
        };
        tenancy.find_placement(namespace)
    }

    #[test]
    fn entry_reaches_only_namespaces_given_to_it() {
        let provider = ProviderReach {
            name: "work".to_owned(),
            namespaces: ["team-*", "free", "flux-system", "kube-system"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            group_namespaces: vec!["team-a".to_owned(), "red".to_owned()],
            tenants: vec!["blue".to_owned()],
        };
        let placements =
            ["tenure-system", "blue", "red", "free", "claims-red"].map(|name| (name, find_placement(name)));
        let label = "groups.access.tenure.dev/work-42";
        for (by, group, to, labels, judges, expected) in [
            ("agent", false, "team-a", "", true, Ok(())),
            ("agent", false, "flux-system", "", true, Ok(())),
            (
                "agent",
                false,
                "blue",
                "",
                true,
                Err("no administrator listed namespace blue for the agent"),
            ),
            ("agent", false, "kube-system", "", true, Err("belongs to Kubernetes")),
            (
                "agent",
                false,
                "tenure-system",
                "",
                true,
                Err("no administrator listed namespace tenure-system"),
            ),
            ("agent", false, "going", "", true, Err("is being deleted")),
            ("agent", true, "team-a", "", true, Ok(())),
            // A namespace whose name matches the pattern gets no group's credential.
            (
                "agent",
                true,
                "team-evil",
                "",
                true,
                Err("a namespace must be marked for a group's credential"),
            ),
            (
                "agent",
                true,
                "team-evil",
                "groups.access.tenure.dev/work-4",
                true,
                Err("sets the label groups.access.tenure.dev/work-42"),
            ),
            ("agent", true, "team-b", label, true, Ok(())),
            (
                "agent",
                true,
                "team-b",
                label,
                false,
                Err("no admission checks who sets labels"),
            ),
            ("tenure-system", false, "team-a", "", true, Ok(())),
            (
                "tenure-system",
                false,
                "red",
                "",
                true,
                Err("no administrator listed namespace red for the platform namespace"),
            ),
            ("blue", false, "blue-dev", "", true, Ok(())),
            ("blue", false, "red", "", true, Err("does not belong to tenant blue")),
            ("blue", false, "team-a", "", true, Err("does not belong to tenant blue")),
            ("blue", true, "blue", label, true, Ok(())),
            ("blue", true, "blue", "", true, Err("a group's credential")),
            (
                "red",
                false,
                "red",
                "",
                true,
                Err("tenant red may not ask AccessProvider work"),
            ),
            ("free", false, "free", "", true, Ok(())),
            ("free", false, "team-a", "", true, Err("asks for that namespace only")),
            // A namespace with a tenant's label that the Tenant has not recorded.
            (
                "claims-red",
                false,
                "claims-red",
                "",
                true,
                Err("a FluxAccess in namespace claims-red has no identity"),
            ),
        ] {
            let asker = match placements.iter().find(|(name, _)| *name == by) {
                Some((name, placement)) => EntryAuthor::Object(name, placement),
                None => EntryAuthor::Agent,
            };
            let receiver = ReceivingNamespace {
                name: to.to_owned(),
                labels: [(labels.to_owned(), "yes".to_owned())].into(),
                is_deleting: to == "going",
            };
            let installation = Installation {
                platform: "tenure-system",
                judges_writes: judges,
            };
            let answer = check_receiver(
                asker,
                &provider,
                group.then_some(42),
                (&receiver, &Holder::Nobody),
                installation,
            );
            match (answer, expected) {
                (Ok(()), Ok(())) => {}
                (Err(denial), Err(part)) if denial.message.contains(part) => {}
                (answer, _) => panic!("{by} to {to}: {answer:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_pattern_reaches_no_namespace_of_an_unlisted_tenant() {
        let list = |tenants: &[&str]| ProviderReach {
            name: "work".to_owned(),
            namespaces: ["shop-*", "shop-named"].map(|text| text.parse().unwrap()).to_vec(),
            tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
            ..ProviderReach::default()
        };
        // `*` lets each tenant ask for itself. It gives no tenant the credentials that the platform
        // asks for.
        let providers = [list(&["alpha"]), list(&["*", "alpha"])];
        let listed = Holder::Tenant("alpha".to_owned());
        let other = Holder::Tenant("beta".to_owned());
        let platform = find_placement("tenure-system");
        let askers = [EntryAuthor::Agent, EntryAuthor::Object("tenure-system", &platform)];
        for (provider, asker) in providers
            .iter()
            .flat_map(|provider| askers.map(|asker| (provider, asker)))
        {
            for (name, holder, expected) in [
                ("shop-a", &Holder::Nobody, None),
                ("shop-a", &listed, None),
                (
                    "shop-evil",
                    &other,
                    Some("belongs to a tenant that AccessProvider work does not list by name"),
                ),
                ("shop-evil", &Holder::Unknown, Some("its tenant isn't known yet")),
                ("shop-named", &other, None),
            ] {
                let receiver = ReceivingNamespace {
                    name: name.to_owned(),
                    ..ReceivingNamespace::default()
                };
                let installation = Installation {
                    platform: "tenure-system",
                    judges_writes: true,
                };
                let answer = check_receiver(asker, provider, None, (&receiver, holder), installation);
                let message = answer.err().map(|denial| denial.message);
                match expected {
                    None => assert_eq!(message, None, "{name} {holder:?}"),
                    Some(part) => assert!(message.unwrap().contains(part), "{name} {holder:?}"),
                }
            }
        }
    }
}
