//! `tenure adopt`: an administrator says that namespaces are a Tenant's. Owns the order in which that is written, and what is told of it;
//! which namespaces, is `tenancy`'s to decide, and whether somebody may, the API server's.

use std::process::ExitCode;

use clap::Args;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::{ObjectView, Tenant};
use tenure_tenancy::admission::Question;
use tenure_tenancy::admission::rights::ADOPT;
use tenure_tenancy::adoption::{self, Adoption};
use tenure_tenancy::{Realm, Settings, TenantFacts};

use crate::connect::Connect;
use crate::failure::Failure;
use crate::{caller, output, resources};

/// Who writes, as managedFields will show it.
const FIELD_MANAGER: &str = "tenure-adopt";
/// How often the record is written again after it has changed meanwhile.
const ATTEMPTS: u32 = 5;
/// How many Tenants are read at a time.
const PAGE: u32 = 500;

/// Make namespaces a Tenant's: label them, let the Tenant own them, and record them in its status, as you. For namespaces that nothing else says
/// are its: of a cluster where nobody judges what is written, after a restore, or ones that were there before.
#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// The Tenant.
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// The namespaces.
    #[arg(required = true, value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Say what would happen, and write nothing. The API server is asked, and judges it as it would be.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What is written with, and as whom.
struct Cluster {
    client: kube::Client,
    tenants: Api<DynamicObject>,
    namespaces: Api<DynamicObject>,
}

impl Adopt {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let cluster = Cluster::connect(&self.connect).await?;
        cluster.check_right(&self.tenant).await?;
        let (realm, tenant) = self.read_realm(&cluster).await?;
        let facts = TenantFacts::from(&tenant);
        let mut names = self.namespaces.clone();
        names.sort_unstable();
        names.dedup();
        // All of them are looked at before one is written.
        let mut adoptions = Vec::new();
        for name in &names {
            let object = read(&cluster.namespaces, name).await?;
            let adoption =
                adoption::decide(&realm, &facts, &object).map_err(|denial| Failure::negative(denial.message))?;
            let uid = ObjectView::of(&object).read_text("/metadata/uid").to_owned();
            adoptions.push((adoption, uid));
        }
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            dry_run: self.dry_run,
            ..PatchParams::default()
        };
        // The record comes last: what is recorded names its Tenant already.
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
            self.tell(adoption);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// All Tenants, and the one that is named.
    async fn read_realm(&self, cluster: &Cluster) -> Result<(Realm, Tenant), Failure> {
        let mut realm = Realm {
            settings: Settings {
                platform_namespace: PLATFORM_NAMESPACE.to_owned(),
                ..Settings::default()
            },
            ..Realm::default()
        };
        let mut named = None;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = cluster.tenants.list(&page).await?;
            for object in listed.items {
                let object = serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))?;
                // Of one that can't be read it isn't known what is its.
                let tenant = read_tenant(object)?;
                realm.tenants.push(TenantFacts::from(&tenant));
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
        Ok((realm, named))
    }

    /// Writes the record over what was seen of it; somebody else may be writing it, too.
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
                    tenant = read_tenant(read(&cluster.tenants, &self.tenant).await?)?;
                    if tenant.metadata.uid != uid || tenant.metadata.deletion_timestamp.is_some() {
                        return Err(Failure::negative(format!("Tenant {} has gone meanwhile", self.tenant)));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn tell(&self, adoption: &Adoption) {
        let is_changed = adoption.patch.is_some() || !adoption.is_recorded;
        let how = match (is_changed, self.dry_run) {
            (true, true) => " (dry run)",
            _ => "",
        };
        output::print_line(format!("namespace/{}: {}{how}", adoption.namespace, adoption.says));
    }
}

impl Cluster {
    async fn connect(connect: &Connect) -> Result<Self, Failure> {
        let client = connect.client().await?;
        let served = resources::served(&client).await?;
        let api = |kind: &str| resources::find(&served, kind).map(|found| Api::all_with(client.clone(), &found.api()));
        Ok(Self {
            tenants: api("tenants.capsule.clastix.io")?,
            namespaces: api("namespaces")?,
            client,
        })
    }

    /// Where nobody judges what is written, nobody else asks for this right: whoever may patch namespaces and a Tenant's status isn't meant by that alone.
    async fn check_right(&self, tenant: &str) -> Result<(), Failure> {
        let question = Question::about_tenant(ADOPT, tenant);
        if caller::may(&self.client, &question).await? {
            return Ok(());
        }
        Err(
            Failure::environment(format!("you may not {ADOPT} Tenant {tenant}")).hint(format!(
                "it takes the verb {ADOPT} on tenants.capsule.clastix.io/{tenant}, which cluster-admin has, and the rights to patch namespaces and tenants/status"
            )),
        )
    }
}

async fn read(api: &Api<DynamicObject>, name: &str) -> Result<Value, Failure> {
    serde_json::to_value(api.get(name).await?).map_err(|error| Failure::internal(error.to_string()))
}

fn read_tenant(object: Value) -> Result<Tenant, Failure> {
    let name = ObjectView::of(&object).read_text("/metadata/name").to_owned();
    serde_json::from_value(object).map_err(|error| {
        Failure::environment(format!("Tenant {name} can't be read: {error}"))
            .hint("kubectl get tenant -o yaml shows it")
    })
}
