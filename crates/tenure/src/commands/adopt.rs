//! `tenure adopt`: assigns existing namespaces to a Tenant. The module labels the namespaces first, then writes the Tenant's record, and prints each result.
//! `tenure_tenancy::adoption` decides which namespaces can be adopted. The user needs the verb `adopt` on the Tenant.

use std::process::ExitCode;

use clap::Args;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;
use tenure_admission_rules::Question;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::{ObjectView, Tenant};
use tenure_tenancy::adoption::{self, Adoption};
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::{Settings, TenancyFacts, TenantFacts};

use crate::connect::Connect;
use crate::failure::Failure;
use crate::{caller, output, resources};

/// The field manager of the writes.
const FIELD_MANAGER: &str = "tenure-adopt";
/// The number of writes of the Tenant's record, if other writers change the record at the same time.
const ATTEMPTS: u32 = 5;
/// The number of Tenants on a page.
const PAGE: u32 = 500;

/// Assign namespaces to a Tenant, with your rights: label them, and record them in the Tenant's status.
///
/// Use the command for existing namespaces, after a restore, and in a cluster without Tenure's admission. It removes ownerReferences to the Tenant: with one, the
/// garbage collector could delete the namespace.
#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// Name of the Tenant.
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// Names of the namespaces.
    #[arg(required = true, value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Show the changes, and write nothing. The API server checks them as a dry run.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

/// The client of the cluster, and its APIs of Tenants and namespaces.
struct Cluster {
    client: kube::Client,
    tenants: Api<DynamicObject>,
    namespaces: Api<DynamicObject>,
}

impl Adopt {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let cluster = Cluster::connect(&self.connect).await?;
        cluster.check_right(&self.tenant).await?;
        let (tenancy_facts, tenant) = self.read_tenants(&cluster).await?;
        let facts = TenantFacts::from(&tenant);
        let mut names = self.namespaces.clone();
        names.sort_unstable();
        names.dedup();
        // All namespaces are checked before the first write.
        let mut adoptions = Vec::new();
        for name in &names {
            let object = read_object(&cluster.namespaces, name).await?;
            let adoption = adoption::plan_adoption(&tenancy_facts, &facts, &object)
                .map_err(|denial| Failure::negative(denial.message))?;
            let uid = ObjectView::new(&object).read_text("/metadata/uid").to_owned();
            adoptions.push((adoption, uid));
        }
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            dry_run: self.dry_run,
            ..PatchParams::default()
        };
        // The record comes last, so a recorded namespace already names its Tenant.
        for (adoption, _) in &adoptions {
            if let Some(patch) = &adoption.patch {
                let patch = Patch::Merge(patch);
                cluster
                    .namespaces
                    .patch(&adoption.namespace, &parameters, &patch)
                    .await?;
            }
        }
        let recorded = adoptions
            .iter()
            .map(|(adoption, uid)| (adoption.namespace.clone(), uid.clone()));
        self.record(&cluster, tenant, &recorded.collect::<Vec<_>>(), &parameters)
            .await?;
        for (adoption, _) in &adoptions {
            self.print_adoption(adoption);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads all Tenants, and the named one.
    async fn read_tenants(&self, cluster: &Cluster) -> Result<(TenancyFacts, Tenant), Failure> {
        let mut tenancy_facts = TenancyFacts {
            settings: Settings {
                platform_namespace: PLATFORM_NAMESPACE.to_owned(),
                ..Settings::default()
            },
            ..TenancyFacts::default()
        };
        let mut named = None;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = cluster.tenants.list(&page).await?;
            for object in listed.items {
                let object = serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))?;
                // The namespaces of an unreadable Tenant are unknown, so the command fails.
                let tenant = read_tenant(object)?;
                tenancy_facts.tenants.push(TenantFacts::from(&tenant));
                if tenant.metadata.name.as_ref() == Some(&self.tenant) {
                    named = Some(tenant);
                }
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        let named = named.ok_or_else(|| {
            Failure::negative(format!("there is no Tenant {}", self.tenant)).hint("kubectl get tenants lists them")
        })?;
        Ok((tenancy_facts, named))
    }

    /// Adds the namespaces to the Tenant's record. If another writer changed the record since the read, reads the Tenant again and retries.
    async fn record(
        &self,
        cluster: &Cluster,
        mut tenant: Tenant,
        namespaces: &[(String, String)],
        parameters: &PatchParams,
    ) -> Result<(), Failure> {
        for attempt in 1.. {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let Some(patch) = adoption::write_record(&tenant, namespaces, &now) else {
                return Ok(());
            };
            let patched = cluster
                .tenants
                .patch_status(&self.tenant, parameters, &Patch::Merge(&patch))
                .await;
            match patched {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    let uid = tenant.metadata.uid.clone();
                    tenant = read_tenant(read_object(&cluster.tenants, &self.tenant).await?)?;
                    if tenant.metadata.uid != uid || tenant.metadata.deletion_timestamp.is_some() {
                        return Err(Failure::negative(format!("Tenant {} has gone meanwhile", self.tenant)));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn print_adoption(&self, adoption: &Adoption) {
        let is_changed = adoption.patch.is_some() || !adoption.is_recorded;
        let how = match (is_changed, self.dry_run) {
            (true, true) => " (dry run)",
            _ => "",
        };
        output::print_line(format!("namespace/{}: {}{how}", adoption.namespace, adoption.summary));
    }
}

impl Cluster {
    async fn connect(connect: &Connect) -> Result<Self, Failure> {
        let client = connect.client().await?;
        let served = resources::list_served(&client).await?;
        let api = |kind: &str| {
            resources::find_resource(&served, kind).map(|found| Api::all_with(client.clone(), &found.api()))
        };
        Ok(Self {
            tenants: api("tenants.capsule.clastix.io")?,
            namespaces: api("namespaces")?,
            client,
        })
    }

    /// Checks the right `adopt`. Without admission, no other component checks it, and the rights to patch namespaces and a Tenant's status are not meant to imply it.
    async fn check_right(&self, tenant: &str) -> Result<(), Failure> {
        let question = Question::about_tenant(ADOPT, tenant);
        if caller::has_right(&self.client, &question).await? {
            return Ok(());
        }
        Err(
            Failure::environment(format!("you may not {ADOPT} Tenant {tenant}")).hint(format!(
                "it takes the verb {ADOPT} on tenants.capsule.clastix.io/{tenant}, which cluster-admin has, and the rights to patch namespaces and tenants/status"
            )),
        )
    }
}

async fn read_object(api: &Api<DynamicObject>, name: &str) -> Result<Value, Failure> {
    serde_json::to_value(api.get(name).await?).map_err(|error| Failure::internal(error.to_string()))
}

fn read_tenant(object: Value) -> Result<Tenant, Failure> {
    let name = ObjectView::new(&object).read_text("/metadata/name").to_owned();
    serde_json::from_value(object).map_err(|error| {
        Failure::environment(format!("Tenant {name} can't be read: {error}"))
            .hint("kubectl get tenant -o yaml shows it")
    })
}
