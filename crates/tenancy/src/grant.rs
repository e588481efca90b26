//! Grants of an administrator for references to other namespaces, beyond those within one tenant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_api::names::{NamespaceName, ObjectName, TenantName};

/// Matches every namespace, or every name.
const ANY: &str = "*";
/// The prefix of a tenant's name.
const TENANT: &str = "tenant:";
/// The kinds that a grant may name.
const KINDS: [&str; 6] = [
    "GitRepository",
    "OCIRepository",
    "Bucket",
    "ExternalArtifact",
    "HelmChart",
    KUSTOMIZATION,
];
pub(crate) const KUSTOMIZATION: &str = "Kustomization";

/// The permission to refer to something in another namespace: `FROM=NAMESPACE/KIND/NAME`, where `FROM` is a namespace, `tenant:NAME` or `*`,
/// and the last name may be `*`. Only an administrator sets one, in the settings of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceGrant {
    from: GrantedTo,
    namespace: NamespaceName,
    kind: &'static str,
    /// The name. None matches every object of the kind.
    name: Option<ObjectName>,
}

/// The receiver of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GrantedTo {
    Everybody,
    Tenant(TenantName),
    Namespace(NamespaceName),
}

impl ReferenceGrant {
    /// Checks whether a referrer, as a namespace and its tenant, may refer to a target: a namespace, a kind and a name.
    pub(crate) fn covers(
        &self,
        (from, tenant): (&str, Option<&TenantName>),
        (namespace, kind, name): (&str, &str, &str),
    ) -> bool {
        let is_named = match &self.from {
            GrantedTo::Everybody => true,
            GrantedTo::Tenant(granted) => tenant == Some(granted),
            GrantedTo::Namespace(granted) => granted.as_str() == from,
        };
        let names_it = self.name.as_ref().is_none_or(|granted| granted.as_str() == name);
        is_named && names_it && self.kind == kind && self.namespace.as_str() == namespace
    }

    /// Checks whether a namespace receives the grant, or is its target. A grant to a tenant counts as the tenant's own.
    pub(crate) fn names_namespace(&self, namespace: &str, tenant: &str) -> bool {
        let from = match &self.from {
            GrantedTo::Namespace(granted) => granted.as_str() == namespace,
            GrantedTo::Everybody | GrantedTo::Tenant(_) => false,
        };
        let is_own = matches!(&self.from, GrantedTo::Tenant(granted) if granted.as_str() == tenant);
        from || (!is_own && self.namespace.as_str() == namespace)
    }

    /// Returns the target of the grant as `NAMESPACE/KIND/NAME`, if a namespace of a tenant receives it.
    pub fn find_target(&self, (from, tenant): (&str, &str)) -> Option<String> {
        let is_named = match &self.from {
            GrantedTo::Everybody => true,
            GrantedTo::Tenant(granted) => granted.as_str() == tenant,
            GrantedTo::Namespace(granted) => granted.as_str() == from,
        };
        let name = self.name.as_ref().map_or(ANY, ObjectName::as_str);
        is_named.then(|| format!("{}/{}/{name}", self.namespace, self.kind))
    }
}

impl FromStr for ReferenceGrant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            || format!("{text:?} is not FROM=NAMESPACE/KIND/NAME, as in team-a=flux-system/GitRepository/shared");
        let (from, to) = text.split_once('=').ok_or_else(form)?;
        let [namespace, kind, name] = to.split('/').collect::<Vec<_>>().try_into().map_err(|_| form())?;
        let wrong = |error: tenure_api::names::NameError| format!("{text:?}: {error}");
        let from = match (from, from.strip_prefix(TENANT)) {
            (ANY, _) => GrantedTo::Everybody,
            (_, Some(tenant)) => GrantedTo::Tenant(TenantName::new(tenant).map_err(wrong)?),
            (namespace, None) => GrantedTo::Namespace(NamespaceName::new(namespace).map_err(wrong)?),
        };
        let kind = KINDS.iter().find(|known| **known == kind);
        Ok(Self {
            from,
            namespace: NamespaceName::new(namespace).map_err(wrong)?,
            kind: kind.ok_or_else(|| format!("{text:?}: the kind must be one of {}", KINDS.join(", ")))?,
            name: match name {
                ANY => None,
                name => Some(ObjectName::new(name).map_err(wrong)?),
            },
        })
    }
}

impl fmt::Display for ReferenceGrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            GrantedTo::Everybody => formatter.write_str(ANY)?,
            GrantedTo::Tenant(tenant) => write!(formatter, "{TENANT}{tenant}")?,
            GrantedTo::Namespace(namespace) => namespace.fmt(formatter)?,
        }
        let name = self.name.as_ref().map_or(ANY, ObjectName::as_str);
        write!(formatter, "={}/{}/{name}", self.namespace, self.kind)
    }
}

impl Serialize for ReferenceGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReferenceGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_written_as_it_is_read() {
        for text in [
            "team-a=flux-system/GitRepository/shared",
            "tenant:blue=flux-system/OCIRepository/*",
            "*=flux-system/Kustomization/infra",
        ] {
            assert_eq!(text.parse::<ReferenceGrant>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "team-a",
            "team-a=flux-system",
            "team-a=flux-system/GitRepository",
            "team-a=flux-system/GitRepository/a/b",
            "team-a=*/GitRepository/a",
            "team-a=flux-system/Secret/a",
            "team-a=flux-system/*/a",
            "team-a=flux-system/GitRepository/",
            "team_a=flux-system/GitRepository/a",
            "tenant:=flux-system/GitRepository/a",
            "=flux-system/GitRepository/a",
        ] {
            text.parse::<ReferenceGrant>().unwrap_err();
        }
    }
}
