//! The kinds that are reconciled here, and those that other controllers reconcile. This module has the text form. The table ([`crate::kind_table`])
//! has the kinds and their dependencies. A kind that is not reconciled is still watched if another kind reads it: for example, Tenants that another
//! controller reconciles decide the tenant of a namespace.

use std::collections::BTreeSet;

/// The selection of reconciled kinds, stored as the kinds that are off. By default all kinds are on.
///
/// The text form is that of kube-controller-manager's `--controllers`: names with commas between them, `*` for all, and `-name` for all but this
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnabledKinds {
    off: BTreeSet<&'static str>,
}

/// Why a list of kinds is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnabledKindsError {
    /// The kind does not exist here.
    #[error("{name:?} is not a controller: there are {known}, * for all, and -NAME to switch one off")]
    Unknown {
        /// The name in the list.
        name: String,
        /// The valid names.
        known: String,
    },
    /// One kind needs another.
    #[error("{one} needs {other}: it uses the data that the same process stores")]
    Without {
        /// The kind that is on.
        one: String,
        /// The needed kind that is off.
        other: String,
    },
    /// No kind is left.
    #[error("no controller is switched on")]
    Nothing,
}

impl EnabledKinds {
    /// Checks whether objects of a kind, for example `Tenant`, are reconciled here.
    #[must_use]
    pub fn is_on(&self, kind: &str) -> bool {
        !self.off.contains(kind)
    }

    /// Describes which controllers are on.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.off.is_empty() {
            return "all controllers are on".to_owned();
        }
        let off: Vec<&str> = self.off.iter().copied().collect();
        format!("all controllers are on, except {}", off.join(", "))
    }

    /// Returns the text form, for a reader with the same kinds.
    pub(crate) fn write(&self) -> String {
        let off = self.off.iter().map(|kind| format!(",-{kind}"));
        format!("*{}", off.collect::<String>())
    }

    /// Reads the text form for kinds of these names. In each pair of `needs`, the first kind needs the second.
    pub(crate) fn read(
        text: &str,
        known: &BTreeSet<&'static str>,
        needs: &[(&str, &str)],
    ) -> Result<Self, EnabledKindsError> {
        let find = |name: &str| {
            let found = known.iter().find(|kind| kind.eq_ignore_ascii_case(name));
            found.copied().ok_or_else(|| EnabledKindsError::Unknown {
                name: name.to_owned(),
                known: known.iter().copied().collect::<Vec<_>>().join(", ").to_lowercase(),
            })
        };
        let (mut on, mut off) = (BTreeSet::new(), BTreeSet::new());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.strip_prefix('-') {
                Some(name) => drop(off.insert(find(name)?)),
                None if word == "*" => on.clone_from(known),
                None => drop(on.insert(find(word)?)),
            }
        }
        on.retain(|kind| !off.contains(kind));
        if let Some((one, other)) = needs
            .iter()
            .find(|(one, other)| on.contains(one) && !on.contains(other))
        {
            return Err(EnabledKindsError::Without {
                one: one.to_lowercase(),
                other: other.to_lowercase(),
            });
        }
        if on.is_empty() {
            return Err(EnabledKindsError::Nothing);
        }
        Ok(Self {
            off: known.difference(&on).copied().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kinds that are off.
    fn read(text: &str) -> Result<Vec<&'static str>, EnabledKindsError> {
        let known = BTreeSet::from(["GitRepository", "Kustomization", "Surface", "Tenant"]);
        let needs = [("Kustomization", "GitRepository")];
        EnabledKinds::read(text, &known, &needs).map(|EnabledKinds { off }| off.into_iter().collect())
    }

    #[test]
    fn kinds_are_selected_by_name_or_by_exclusion() {
        assert_eq!(read("*"), Ok(vec![]));
        assert_eq!(read("*,-tenant"), Ok(vec!["Tenant"]));
        assert_eq!(read("-Tenant, *"), Ok(vec!["Tenant"]));
        let off = EnabledKinds {
            off: BTreeSet::from(["Surface", "Tenant"]),
        };
        assert_eq!(read(&off.write()), Ok(vec!["Surface", "Tenant"]));
        assert_eq!(read("gitrepository,tenant"), Ok(vec!["Kustomization", "Surface"]));
    }

    #[test]
    fn invalid_selections_are_refused() {
        let unknown = read("*,-helmrelease").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "\"helmrelease\" is not a controller: there are gitrepository, kustomization, surface, tenant, * for all, and -NAME to switch one off"
        );
        let alone = read("*,-gitrepository").unwrap_err();
        assert_eq!(
            alone.to_string(),
            "kustomization needs gitrepository: it uses the data that the same process stores"
        );
        assert_eq!(read("-tenant"), Err(EnabledKindsError::Nothing));
        assert_eq!(read(""), Err(EnabledKindsError::Nothing));
    }
}
