//! The store's keys of objects: `/GROUP/PLURAL/NAMESPACE/NAME`, and `/GROUP/PLURAL/NAME` for cluster-scoped objects;
//! the core group is empty. Keys are created and parsed only here, so that a cluster can become part of them in one
//! place.

/// The prefix of all keys.
pub(crate) const ALL: &str = "/";

/// Returns the key prefix of all objects of a group.
pub(crate) fn group_prefix(group: &str) -> String {
    format!("/{group}/")
}

/// Returns the key prefix of all objects of a resource, in one namespace or everywhere.
pub(crate) fn resource_prefix(group: &str, plural: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/{group}/{plural}/{namespace}/"),
        None => format!("/{group}/{plural}/"),
    }
}

/// Returns the key of one object.
pub(crate) fn object_key(group: &str, plural: &str, namespace: Option<&str>, name: &str) -> String {
    let mut key = resource_prefix(group, plural, namespace);
    key.push_str(name);
    key
}

/// The parts of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
}

/// Parses the key of an object; `None` for other keys of the store.
pub(crate) fn read(key: &str) -> Option<Parts<'_>> {
    let mut parts = key.strip_prefix('/')?.split('/');
    let (group, plural, first) = (parts.next()?, parts.next()?, parts.next()?);
    let second = parts.next();
    if parts.next().is_some() {
        return None;
    }
    let (namespace, name) = match second {
        Some(name) => (Some(first), name),
        None => (None, first),
    };
    Some(Parts {
        group,
        plural,
        namespace,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_as_their_parts() {
        for (group, plural, namespace, name) in [
            ("", "configmaps", Some("shop"), "a"),
            ("", "namespaces", None, "shop"),
            ("apps", "deployments", Some("shop"), "a"),
        ] {
            let key = object_key(group, plural, namespace, name);
            let parts = Parts {
                group,
                plural,
                namespace,
                name,
            };
            assert_eq!(read(&key), Some(parts), "{key}");
            assert!(key.starts_with(&resource_prefix(group, plural, namespace)), "{key}");
            assert!(key.starts_with(&group_prefix(group)), "{key}");
            assert!(key.starts_with(ALL), "{key}");
        }
    }

    #[test]
    fn keys_of_no_object_are_not_read() {
        for key in ["/apps/deployments", "meta", "/a/b/c/d/e"] {
            assert_eq!(read(key), None, "{key}");
        }
    }
}
