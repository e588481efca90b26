//! Which kinds are reconciled here, and which are left to somebody else. Owns how that is written; which kinds there are, and which of them
//! needs another, says the table ([`crate::kinds`]). What is not reconciled is watched all the same where another kind looks at it: whose a
//! namespace is, say, is told by Tenants that others keep.

use std::collections::BTreeSet;

/// The kinds that are left to somebody else: none by default.
///
/// Written as kube-controller-manager's `--controllers` is: names with commas between them, `*` for all, and `-name` for all but this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    off: BTreeSet<&'static str>,
}

/// What can't be read as kinds to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// There is no such kind here.
    #[error("{name:?} is no controller: there are {known}, * for all, and -NAME for one that is off")]
    Unknown {
        /// What was written.
        name: String,
        /// What could have been.
        known: String,
    },
    /// One needs another.
    #[error("{one} needs {other}: it works with what the same process keeps")]
    Without {
        /// What is on.
        one: String,
        /// What is not.
        other: String,
    },
    /// Nothing is left.
    #[error("no controller is left that could run")]
    Nothing,
}

impl Switches {
    /// Whether objects of a kind, `Tenant`, are reconciled here.
    #[must_use]
    pub fn is_on(&self, kind: &str) -> bool {
        !self.off.contains(kind)
    }

    /// As it is written, for whoever reads it with the same kinds.
    pub(crate) fn write(&self) -> String {
        let off = self.off.iter().map(|kind| format!(",-{kind}"));
        format!("*{}", off.collect::<String>())
    }

    /// Reads what is written about kinds of these names; in each pair of `needs` the first is nothing without the second.
    pub(crate) fn read(
        text: &str,
        known: &BTreeSet<&'static str>,
        needs: &[(&str, &str)],
    ) -> Result<Self, SwitchError> {
        let find = |name: &str| {
            let found = known.iter().find(|kind| kind.eq_ignore_ascii_case(name));
            found.copied().ok_or_else(|| SwitchError::Unknown {
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
            return Err(SwitchError::Without {
                one: one.to_lowercase(),
                other: other.to_lowercase(),
            });
        }
        if on.is_empty() {
            return Err(SwitchError::Nothing);
        }
        Ok(Self {
            off: known.difference(&on).copied().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is off.
    fn read(text: &str) -> Result<Vec<&'static str>, SwitchError> {
        let known = BTreeSet::from(["GitRepository", "Kustomization", "Surface", "Tenant"]);
        let needs = [("Kustomization", "GitRepository")];
        Switches::read(text, &known, &needs).map(|Switches { off }| off.into_iter().collect())
    }

    #[test]
    fn all_but_one_and_one_alone() {
        assert_eq!(read("*"), Ok(vec![]));
        assert_eq!(read("*,-tenant"), Ok(vec!["Tenant"]));
        assert_eq!(read("-Tenant, *"), Ok(vec!["Tenant"]));
        let off = Switches {
            off: BTreeSet::from(["Surface", "Tenant"]),
        };
        assert_eq!(read(&off.write()), Ok(vec!["Surface", "Tenant"]));
        assert_eq!(read("gitrepository,tenant"), Ok(vec!["Kustomization", "Surface"]));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let unknown = read("*,-helmrelease").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "\"helmrelease\" is no controller: there are gitrepository, kustomization, surface, tenant, * for all, and -NAME for one that is off"
        );
        let alone = read("*,-gitrepository").unwrap_err();
        assert_eq!(
            alone.to_string(),
            "kustomization needs gitrepository: it works with what the same process keeps"
        );
        assert_eq!(read("-tenant"), Err(SwitchError::Nothing));
        assert_eq!(read(""), Err(SwitchError::Nothing));
    }
}
