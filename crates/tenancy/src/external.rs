//! The artifacts of other controllers that are accepted, and their addresses. A status names the address, and every writer of the status
//! could name any. So the address must be below an allowed one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_api::names::{NamespaceName, ObjectName};

/// Matches every name.
const ANY: &str = "*";
/// The greatest number of bytes of an address.
const LONGEST: usize = 2048;

/// The permission to use ExternalArtifacts of other controllers whose address is below this one: `NAMESPACE/NAME=URL`, where the name may be
/// `*`. Only an administrator sets one, in the settings of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalGrant {
    namespace: NamespaceName,
    /// The name. None matches every name.
    name: Option<ObjectName>,
    /// The address. It has a host, and ends with a slash.
    prefix: String,
}

impl ExternalGrant {
    /// Checks whether the permission is about an ExternalArtifact.
    #[must_use]
    pub fn names(&self, namespace: &str, name: &str) -> bool {
        let is_named = self.name.as_ref().is_none_or(|granted| granted.as_str() == name);
        is_named && self.namespace.as_str() == namespace
    }

    /// Returns the namespace of these ExternalArtifacts.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// Checks whether an address is below the allowed one: equal in all its parts, and followed by a plain path that leads nowhere else.
    #[must_use]
    pub fn covers(&self, url: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
        url.len() <= LONGEST
            && url.strip_prefix(self.prefix.as_str()).is_some_and(|rest| {
                let leads_on = rest.split('/').any(|part| matches!(part, "" | "." | ".."));
                rest.bytes().all(plain) && !leads_on
            })
    }
}

impl FromStr for ExternalGrant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "{text:?} is not NAMESPACE/NAME=URL, as in apps/*=http://builder.builder.svc.cluster.local/artifacts/"
            )
        };
        let (object, prefix) = text.split_once('=').ok_or_else(form)?;
        let (namespace, name) = object.split_once('/').ok_or_else(form)?;
        let wrong = |error: tenure_api::names::NameError| format!("{text:?}: {error}");
        let authority = ["http://", "https://"]
            .iter()
            .find_map(|scheme| prefix.strip_prefix(scheme));
        let (host, path) = authority.and_then(|rest| rest.split_once('/')).ok_or_else(form)?;
        let part_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let part_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
        let is_plain = !host.is_empty() && host.bytes().all(part_of_host) && path.bytes().all(part_of_path);
        if !is_plain || !prefix.ends_with('/') || path.split('/').any(|part| part == "..") || prefix.len() > LONGEST {
            return Err(format!(
                "{text:?}: the address must be http:// or https://, a host and a path that ends with /"
            ));
        }
        Ok(Self {
            namespace: NamespaceName::new(namespace).map_err(wrong)?,
            name: match name {
                ANY => None,
                name => Some(ObjectName::new(name).map_err(wrong)?),
            },
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for ExternalGrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or(ANY, ObjectName::as_str);
        write!(formatter, "{}/{name}={}", self.namespace, self.prefix)
    }
}

impl Serialize for ExternalGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExternalGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::ExternalGrant;

    #[test]
    fn a_grant_is_written_as_it_is_read() {
        for text in [
            "apps/*=http://builder.builder.svc/",
            "apps/web=https://10.0.0.1:8443/a/b/",
        ] {
            assert_eq!(text.parse::<ExternalGrant>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "apps",
            "apps/web",
            "apps/web=builder",
            "apps/web=http://builder",
            "apps/web=http://builder/a",
            "apps/web=http:///a/",
            "apps/web=ftp://builder/",
            "apps/web=http://user:password@builder/",
            "apps/web=http://builder/../",
            "apps/web=http://builder/?x=/",
            "*/web=http://builder/",
            "apps/=http://builder/",
        ] {
            text.parse::<ExternalGrant>().unwrap_err();
        }
    }

    #[test]
    fn external_grant_covers_only_addresses_below_its_own() {
        let grant: ExternalGrant = "apps/web=http://builder/artifacts/".parse().unwrap();
        assert!(grant.names("apps", "web") && !grant.names("apps", "other") && !grant.names("other", "web"));
        assert!(grant.covers("http://builder/artifacts/x/1.tar.gz"));
        for url in [
            "http://builder/artifacts/",
            "http://builder/artifacts/../other",
            "http://builder/artifacts/./x",
            "http://builder/artifacts/%2e%2e/x",
            "http://builder/artifacts//x",
            "http://builder/artifacts/x?y",
            "http://builder/artifacts/x#y",
            "http://builder/artifacts/x\\y",
            "http://builder.evil/artifacts/x",
            "http://builder@evil/artifacts/x",
            "https://builder/artifacts/x",
            "http://builder/other",
            "http://127.0.0.1/artifacts/x",
            "",
        ] {
            assert!(!grant.covers(url), "{url}");
        }
    }
}
