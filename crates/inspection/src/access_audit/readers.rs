//! The possible readers of a Secret, by RBAC. `tenancy::access::readers` judges the bindings.

use tenure_tenancy::access::bindings::Bindings;
use tenure_tenancy::access::readers::{AccessPath, IntendedReaders, OtherReader};

use super::NamedObject;

/// The maximum of ServiceAccounts whose tokens and names are considered.
const MOST_ACCOUNTS: usize = 64;

/// The possible readers of a Secret: by rights from its namespace, and by rights from the cluster. Either part may be unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Readers with RoleBindings.
    pub by_namespace: Result<Vec<OtherReader>, String>,
    /// Readers with ClusterRoleBindings.
    pub by_cluster: Result<Vec<OtherReader>, String>,
}

/// Finds the readers, and the subjects that can use the tokens or names of ServiceAccounts in the namespace that may read the Secret.
#[must_use]
pub fn find_readers(
    secret: &NamedObject,
    own: &Result<Bindings, String>,
    cluster: &Result<Bindings, String>,
) -> Readers {
    let find = |bindings: &Bindings, accounts: &[String]| {
        let meant = IntendedReaders {
            namespace: &secret.namespace,
            secret: &secret.name,
            accounts,
            others: &[],
        };
        bindings.list_other_readers(meant)
    };
    let prefix = format!("system:serviceaccount:{}:", secret.namespace);
    let mut accounts: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for bindings in [own, cluster] {
        let bindings = bindings.as_ref().map_err(Clone::clone);
        let readers = bindings.map(|bindings| (bindings, find(bindings, &[])));
        for reader in readers.iter().flat_map(|(_, readers)| readers) {
            let account = reader
                .who
                .strip_prefix(&prefix)
                .filter(|_| reader.way == AccessPath::Reads);
            if let Some(account) = account.filter(|_| accounts.len() < MOST_ACCOUNTS)
                && !accounts.iter().any(|known| known == account)
            {
                accounts.push(account.to_owned());
            }
        }
        found.push(readers);
    }
    let mut found = found.into_iter().map(|readers| {
        readers.map(|(bindings, mut readers)| {
            // This second search treats the accounts as intended, so its new results are the subjects that use these accounts.
            let others = find(bindings, &accounts).into_iter();
            readers.extend(
                others.filter(|other| matches!(other.way, AccessPath::TakesToken(_) | AccessPath::Impersonates(_))),
            );
            readers.sort_by(|one, other| (&one.way, one).cmp(&(&other.way, other)));
            readers.dedup();
            readers
        })
    });
    let nothing = || Ok(Vec::new());
    Readers {
        by_namespace: found.next().unwrap_or_else(nothing),
        by_cluster: found.next().unwrap_or_else(nothing),
    }
}

/// Finds the readers besides the intended ones: ServiceAccounts of the Secret's namespace, and other users.
#[must_use]
pub fn find_other_readers(
    secret: &NamedObject,
    (accounts, others): (&[String], &[String]),
    own: &Result<Bindings, String>,
    cluster: &Result<Bindings, String>,
) -> Readers {
    let meant = IntendedReaders {
        namespace: &secret.namespace,
        secret: &secret.name,
        accounts,
        others,
    };
    let find = |bindings: &Result<Bindings, String>| {
        let bindings = bindings.as_ref().map_err(Clone::clone);
        bindings.map(|bindings| bindings.list_other_readers(meant))
    };
    Readers {
        by_namespace: find(own),
        by_cluster: find(cluster),
    }
}
