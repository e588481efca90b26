//! `tenure create tenant`.

use clap::{ArgGroup, Args};
use tenure_api::Tenant;
use tenure_api::tenant::{NamespaceOptions, TenantOwner, TenantSpec};

use super::{Common, NewObject};
use crate::failure::Failure;

/// Create a Tenant, or change it. You need the rights of an administrator.
///
/// The controllers create its home namespace, and bind its owners in each of its namespaces.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("owners").required(true).multiple(true).args(["users", "groups", "accounts"]))]
pub(super) struct TenantFlags {
    #[command(flatten)]
    pub(super) common: Common,
    /// User that owns the tenant. Can be repeated, and separated by commas.
    #[arg(long = "user", value_name = "NAME", value_delimiter = ',')]
    users: Vec<String>,
    /// Group whose members own the tenant. Can be repeated, and separated by commas.
    #[arg(long = "group", value_name = "NAME", value_delimiter = ',')]
    groups: Vec<String>,
    /// ServiceAccount that owns the tenant, as NAMESPACE:NAME. Can be repeated, and separated by commas.
    #[arg(long = "serviceaccount", value_name = "NAMESPACE:NAME", value_delimiter = ',')]
    accounts: Vec<String>,
    /// ClusterRole of the owners in each namespace of the tenant, in place of the default roles. Can be repeated, and separated by commas.
    #[arg(long = "cluster-role", value_name = "NAME", value_delimiter = ',')]
    cluster_roles: Vec<String>,
    /// Largest number of the tenant's namespaces.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(1..))]
    namespace_quota: Option<i32>,
}

impl TenantFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        let accounts: Vec<String> = self.accounts.iter().map(name_account).collect::<Result<_, _>>()?;
        let named = [
            ("User", &self.users),
            ("Group", &self.groups),
            ("ServiceAccount", &accounts),
        ];
        let owners = named.into_iter().flat_map(|(kind, names)| {
            names.iter().map(move |name| TenantOwner {
                kind: kind.to_owned(),
                name: name.clone(),
                cluster_roles: (!self.cluster_roles.is_empty()).then(|| self.cluster_roles.clone()),
                ..TenantOwner::default()
            })
        });
        let spec = TenantSpec {
            owners: owners.collect(),
            namespace_options: self.namespace_quota.map(|quota| NamespaceOptions {
                quota: Some(quota),
                ..NamespaceOptions::default()
            }),
            ..TenantSpec::default()
        };
        NewObject::write::<Tenant>(&self.common, None, &spec)
    }
}

/// Returns the user name of a ServiceAccount.
fn name_account(text: &String) -> Result<String, Failure> {
    match text.split_once(':') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => Err(
            Failure::usage(format!("--serviceaccount {text:?}: write NAMESPACE:NAME"))
                .hint("such as team-a-ci:deployer"),
        ),
    }
}
