//! Whether an installation lets webhooks and policies enforce the rules of tenancy: by default, where the cluster can have them and Tenure reconciles Tenants.

use clap::Args;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_inspection::installation_check::{can_have_policies, can_have_webhooks};

use crate::failure::Failure;
use crate::{output, resources};

/// Flags about webhooks and policies.
#[derive(Debug, Clone, Args)]
pub(crate) struct Flags {
    /// Let the API server ask Tenure about writes before it stores them, by webhooks at the Service tenure-webhook. Default where the cluster can have them
    /// (Kubernetes 1.30), except with --without-deployment.
    ///
    /// Then owners create their own namespaces, and the API server refuses writes that a tenant may not make. `tenure run` writes the webhooks once it can
    /// answer them.
    #[arg(long, conflicts_with = "without_admission")]
    pub(crate) admission: bool,
    /// Install no admission webhooks.
    #[arg(long)]
    without_admission: bool,
    /// Enforce the tenancy rules by ValidatingAdmissionPolicies, which also hold while no process of Tenure answers. Default where the cluster can have them
    /// (Kubernetes 1.31), except with --without-deployment.
    ///
    /// The controllers create the policies once the namespaces have the facts that the policies read.
    #[arg(long, conflicts_with = "without_policies")]
    pub(crate) policies: bool,
    /// Install no policies of tenancy. The policies that bound Tenure's own accounts stay.
    #[arg(long)]
    without_policies: bool,
}

/// Whether webhooks and policies enforce the rules of tenancy after the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enforcing {
    pub(crate) admission: bool,
    pub(crate) policies: bool,
}

/// The means of enforcement that a cluster supports, by its version: webhooks and policies.
#[derive(Clone, Debug)]
pub(crate) struct Abilities {
    version: String,
    has_webhooks: bool,
    has_policies: bool,
    /// True if the cluster serves ValidatingAdmissionPolicies. They bound Tenure's own accounts, too.
    pub(crate) serves_policies: bool,
}

impl Abilities {
    /// Returns the abilities of a current cluster, for output that reads no cluster.
    pub(crate) fn whole() -> Self {
        Self {
            version: String::new(),
            has_webhooks: true,
            has_policies: true,
            serves_policies: true,
        }
    }

    /// Reads the abilities of a cluster.
    pub(crate) async fn read(client: &kube::Client) -> Result<Self, Failure> {
        let accept = "application/json";
        let version = resources::find_at(client, "/version", accept)
            .await?
            .unwrap_or_default();
        let version = ObjectView::new(&version).read_text("/gitVersion").to_owned();
        let served: Value = resources::find_at(client, "/apis/admissionregistration.k8s.io/v1", accept)
            .await?
            .unwrap_or_default();
        let mut kinds = ObjectView::new(&served).list_views("/resources");
        let serves_policies = kinds.any(|kind| kind.read_text("/name") == "validatingadmissionpolicies");
        Ok(Self {
            has_webhooks: can_have_webhooks(&version),
            has_policies: can_have_policies(&version, serves_policies),
            serves_policies,
            version,
        })
    }
}

impl Flags {
    /// Chooses the enforcers of the rules. `is_default`: the installation runs controllers that enforce them. `has_tenants`: Tenure reconciles Tenants, from which the rules
    /// follow. A flag counts in any case.
    pub(crate) fn choose(&self, is_default: bool, has_tenants: bool, abilities: &Abilities) -> Enforcing {
        let may = is_default && has_tenants;
        Enforcing {
            admission: self.admission || (may && !self.without_admission && abilities.has_webhooks),
            policies: self.policies || (may && !self.without_policies && abilities.has_policies),
        }
    }

    /// Reports the parts of the default that the cluster can't have, or that Tenants of another controller exclude.
    pub(crate) fn note_missing(&self, is_default: bool, has_tenants: bool, abilities: &Abilities) {
        if !is_default {
            return;
        }
        let chosen = self.choose(is_default, has_tenants, abilities);
        let wanted = [
            (
                "admission webhooks",
                !self.without_admission && !chosen.admission,
                "1.30",
            ),
            (
                "policies of tenancy",
                !self.without_policies && !chosen.policies,
                "1.31",
            ),
        ];
        for (part, is_missing, oldest) in wanted {
            if !is_missing {
                continue;
            }
            output::print_note(match has_tenants {
                true => format!(
                    "{part} are left out: they need Kubernetes {oldest}, and this is {}",
                    tenure_api::text::visible_line(&abilities.version)
                ),
                false => {
                    format!("{part} are left out: their rules follow from Tenants, and the controller tenant is off")
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(set: &str) -> Flags {
        Flags {
            admission: set == "admission",
            without_admission: set == "without-admission",
            policies: set == "policies",
            without_policies: set == "without-policies",
        }
    }

    #[test]
    fn webhooks_and_policies_default_to_abilities_of_cluster() {
        let cluster = |has_webhooks, has_policies| Abilities {
            version: "v1".to_owned(),
            has_webhooks,
            has_policies,
            serves_policies: has_policies,
        };
        let check = |set, is_default, has_tenants, abilities: &Abilities, expected| {
            let chosen = flags(set).choose(is_default, has_tenants, abilities);
            assert_eq!(
                (chosen.admission, chosen.policies),
                expected,
                "{set} {is_default} {has_tenants}"
            );
        };
        let whole = cluster(true, true);
        check("", true, true, &whole, (true, true));
        check("", true, true, &cluster(true, false), (true, false));
        check("", true, true, &cluster(false, false), (false, false));
        check("", true, false, &whole, (false, false));
        check("", false, true, &whole, (false, false));
        check("without-admission", true, true, &whole, (false, true));
        check("without-policies", true, true, &whole, (true, false));
        check("admission", false, true, &whole, (true, false));
        check("policies", false, true, &cluster(false, false), (false, true));
    }
}
