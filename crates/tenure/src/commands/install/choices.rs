//! The choices of an installation, and the objects that follow from them. `tenure install` and `tenure bootstrap` have the same flags for them.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::Value;
use tenure_admission_rules::policy::is_bound;
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_api::workload::LanePods;
use tenure_cluster::Installation;
use tenure_controllers::EnabledKinds;
use tenure_inspection::installation_summary::Protection;
use tenure_tenancy::{Settings, ShardName};

use super::enforcing::{self, Abilities, Enforcing};
use super::image_reference;
use crate::commands::lane_location::LaneLocation;
use crate::commands::workload;
use crate::failure::Failure;
use crate::object_path::write_object_path;
use crate::{installation, output};

/// Flags that decide what is installed.
#[derive(Debug, Args)]
pub(crate) struct Choices {
    /// Leave out everything that runs the controllers, because you start `tenure run` in another way.
    #[arg(long, conflicts_with = "workload")]
    pub(crate) without_deployment: bool,
    /// Controllers to run, separated by commas, as for `tenure run`: `*` for all (the default), `-NAME` to switch one off. Only the rights that these need
    /// are granted.
    #[arg(
        long = "controllers",
        value_name = "NAMES",
        value_parser = parse_controllers,
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Option<String>,
    /// Name of a shard with controllers of its own. Can be repeated.
    ///
    /// The controllers of the shard reconcile the Tenants, and the namespaces without a tenant, that have the label sharding.fluxcd.io/key=NAME. The main
    /// controllers reconcile everything without a shard.
    #[arg(long = "shard", value_name = "NAME")]
    pub(crate) shards: Vec<ShardName>,
    #[command(flatten)]
    pub(crate) enforcing: enforcing::Flags,
    /// Where lanes run, as for `tenure run`.
    ///
    /// With `deployment`, the controllers write a Deployment for each lane in tenure-system, and get the right to do so. Not with --shard.
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(crate) lanes: Option<LaneLocation>,
    /// Also install the kinds Package, PackageSource and PackageValues (cozystack.io/v1alpha1).
    ///
    /// An existing definition of another program, such as Cozystack, stays unchanged. Packages are reconciled as the account that
    /// `-- --packages-service-account NAME` names, which the command then installs with its rights.
    #[arg(long)]
    pub(crate) packages: bool,
    #[command(flatten)]
    pub(crate) workload: workload::Flags,
    /// Flags of `tenure run` in the Pods, after --. Not with --without-deployment.
    #[arg(last = true, value_name = "FLAG")]
    pub(crate) arguments: Vec<String>,
}

/// The objects that an installation would write, with the choices behind them.
pub(super) struct PlannedInstallation {
    pub(crate) objects: Vec<Value>,
    /// The enabled controllers.
    pub(crate) switches: EnabledKinds,
    /// The enforcers of the rules of tenancy.
    pub(crate) enforcing: Enforcing,
    /// Notes for the installer.
    pub(crate) notes: Vec<String>,
}

/// An installation for one cluster: its objects in the order of their writes, and what enforces the rules of tenancy after it.
pub(crate) struct Prepared {
    pub(crate) objects: Vec<Value>,
    pub(crate) enforcing: Enforcing,
    pub(crate) abilities: Abilities,
}

impl Choices {
    /// Checks the combination of flags, and finds the digest of the image.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        // The parser's own message would end with a usage that allows both.
        if self.without_deployment && !self.arguments.is_empty() {
            let flags = self.arguments.join(" ");
            return Err(Failure::usage(format!(
                "--without-deployment installs no Pods that could get the flags: {flags}"
            ))
            .hint("leave out the flags after --, and give them to tenure run where you start it"));
        }
        if !self.without_deployment {
            let (image, is_unpinned) = (self.workload.image.as_deref(), self.workload.unpinned_image);
            self.workload.image = Some(image_reference::find_image(image, is_unpinned).await?);
        }
        Ok(())
    }

    /// Reads what the cluster can have, plans the installation, and prints the notes about it. Definitions of other programs are left out.
    pub(crate) async fn prepare(
        &self,
        client: &kube::Client,
        installation: &Installation,
    ) -> Result<Prepared, Failure> {
        let abilities = Abilities::read(client).await?;
        let PlannedInstallation {
            mut objects,
            switches,
            enforcing,
            notes,
        } = self.plan(&abilities)?;
        notes.iter().for_each(output::print_note);
        self.enforcing
            .note_missing(!self.without_deployment, switches.is_on("Tenant"), &abilities);
        if !enforcing.admission && !self.without_deployment {
            check_no_webhooks(client).await?;
        }
        if !abilities.serves_policies {
            objects.retain(|object| !is_bound(ObjectView::new(object).read_text("/metadata/name")));
            output::print_note(
                "this cluster has no ValidatingAdmissionPolicies (Kubernetes has them since 1.30). So nothing bounds these rights of the controllers' account: bindings in kube-* namespaces, deletion of Tenants, and Deployments in tenure-system where lanes have Pods. Nothing bounds the Secrets that tenure-secret-writer may write where an administrator binds it, or that a PackageValues may name in the namespace of its HelmRelease",
            );
        }
        let left = installation::leave_definition_of_tenants(installation, &switches, &mut objects).await?;
        if let Some(name) = left {
            output::print_note(format!(
                "{name} exists, and Tenants are left to another controller: it stays as it is"
            ));
        }
        if self.packages {
            let (own, others) = installation::select_packages(installation).await?;
            for name in others {
                output::print_note(format!("{name} exists and isn't Tenure's: it stays as it is"));
            }
            objects.extend(own);
        }
        Ok(Prepared {
            objects,
            enforcing,
            abilities,
        })
    }

    /// Returns the choices of this installation that decide which attacks it refuses.
    pub(super) fn describe_protection(&self, enforcing: Enforcing, abilities: &Abilities) -> Protection {
        Protection {
            has_webhooks: enforcing.admission,
            has_policies: enforcing.policies,
            has_bounds: abilities.serves_policies,
            has_lane_pods: self.has_lane_pods(),
            names_api_servers: self.workload.names_api_servers(),
        }
    }

    /// Returns the names of the shards, each once.
    fn list_shards(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.shards.iter().map(ShardName::as_str).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Plans the installation for a cluster with these abilities.
    pub(super) fn plan(&self, abilities: &Abilities) -> Result<PlannedInstallation, Failure> {
        let shards = self.list_shards();
        let mut planned = match self.without_deployment {
            true => self.plan_rights(&shards, abilities)?,
            false => self.plan_workload(&shards, abilities)?,
        };
        tenure_api::installation::put_bounds_before_rights(&mut planned.objects);
        Ok(planned)
    }

    /// Plans an installation whose controllers are started in another way.
    fn plan_rights(&self, shards: &[String], abilities: &Abilities) -> Result<PlannedInstallation, Failure> {
        let switches = self
            .controllers
            .as_deref()
            .map(tenure_controllers::read_switches)
            .transpose();
        let switches = switches
            .map_err(|error| Failure::usage(error.to_string()))?
            .unwrap_or_default();
        let enforcing = self.enforcing.choose(false, switches.is_on("Tenant"), abilities);
        let mut objects = installation::list_objects(&switches, shards, &Settings::default().protected_namespaces)?;
        objects.extend(list_admission(enforcing, &switches)?);
        // The workload's arguments hold the image of lanes and the address of the hub.
        objects.extend(self.list_lanes(&LanePods::default()));
        if enforcing.policies {
            installation::add_policing(&mut objects);
        }
        Ok(PlannedInstallation {
            objects,
            switches,
            enforcing,
            notes: Vec::new(),
        })
    }

    /// Plans an installation with its workload.
    fn plan_workload(&self, shards: &[String], abilities: &Abilities) -> Result<PlannedInstallation, Failure> {
        // The controllers decide whether policies are possible, and the policies are an argument of the controllers.
        let read = |with_policies| self.workload.read(&self.list_arguments(with_policies)?, shards);
        let has_tenants = read(self.enforcing.policies)?.switches.is_on("Tenant");
        let enforcing = self.enforcing.choose(true, has_tenants, abilities);
        let mut chosen = read(enforcing.policies)?;
        if chosen.workload.admission_client_secret.is_some() && !enforcing.admission {
            return Err(Failure::usage(
                "--admission-client-secret: the API server doesn't ask Tenure without --admission",
            )
            .hint("--admission lets the API server ask"));
        }
        chosen.workload.admission = enforcing.admission;
        chosen.workload.lanes = self.has_lane_pods();
        if chosen.workload.lanes && !shards.is_empty() {
            return Err(Failure::usage(
                "--lanes deployment with --shard: lanes connect to the main controllers, which don't know the lanes of a shard",
            )
            .hint("leave out one of them"));
        }
        let mut objects = installation::list_objects(&chosen.switches, shards, &chosen.protected_namespaces)?;
        objects.extend(list_admission(enforcing, &chosen.switches)?);
        objects.extend(self.list_lanes(&chosen.workload.describe_lane_pods()));
        // The authentication of clients needs the same rights for metrics and for artifacts.
        if chosen.workload.metrics_from.is_some() || chosen.workload.artifact_secret.is_some() {
            objects.push(tenure_api::installation::metrics_reviews());
        }
        if enforcing.policies {
            installation::add_policing(&mut objects);
        }
        objects.extend(installation::list_package_writer(chosen.package_account.as_deref()));
        objects.extend(tenure_api::workload::objects(&chosen.workload));
        Ok(PlannedInstallation {
            objects,
            switches: chosen.switches,
            enforcing,
            notes: chosen.notes,
        })
    }

    fn has_lane_pods(&self) -> bool {
        self.lanes == Some(LaneLocation::Deployment)
    }

    /// Returns the additional rights of controllers that make a Pod for each lane, and the policies that bound these rights.
    fn list_lanes(&self, pods: &LanePods) -> Vec<Value> {
        match self.has_lane_pods() {
            true => installation::list_lanes(pods),
            false => Vec::new(),
        }
    }

    /// Returns the arguments of `tenure run`. The enabled controllers are listed once; RBAC is derived from that list.
    fn list_arguments(&self, with_policies: bool) -> Result<Vec<String>, Failure> {
        if self.arguments.iter().any(|argument| argument == "--policies") {
            return Err(
                Failure::usage("--policies comes before --: rights are given for it, too")
                    .hint("tenure install passes it to tenure run"),
            );
        }
        let mut arguments = Vec::new();
        if with_policies {
            arguments.push("--policies".to_owned());
        }
        if let Some(lanes) = self.lanes {
            let is_lanes_flag = |argument: &String| argument == "--lanes" || argument.starts_with("--lanes=");
            if self.arguments.iter().any(is_lanes_flag) {
                return Err(
                    Failure::usage("--lanes is set twice: before -- and after it").hint("set it once, before it")
                );
            }
            match lanes {
                LaneLocation::Task => arguments.push("--lanes=task".to_owned()),
                LaneLocation::Process => arguments.push("--lanes=process".to_owned()),
                // The workload sets this mode itself, with its other flags.
                LaneLocation::Deployment => {}
            }
        }
        let Some(controllers) = &self.controllers else {
            arguments.extend(self.arguments.iter().cloned());
            return Ok(arguments);
        };
        let is_controllers_flag =
            |argument: &String| argument == "--controllers" || argument.starts_with("--controllers=");
        if self.arguments.iter().any(is_controllers_flag) {
            return Err(Failure::usage("--controllers is set twice: before -- and after it")
                .hint("set it once; the rights follow from it, and tenure install passes it to tenure run"));
        }
        arguments.push(format!("--controllers={controllers}"));
        arguments.extend(self.arguments.iter().cloned());
        Ok(arguments)
    }
}

/// Returns the objects for admission webhooks, if they are enabled.
fn list_admission(enforcing: Enforcing, switches: &EnabledKinds) -> Result<Vec<Value>, Failure> {
    match (enforcing.admission, switches.is_on("Tenant")) {
        (false, _) => Ok(Vec::new()),
        (true, true) => Ok(tenure_api::installation::admission()),
        (true, false) => Err(Failure::usage(
            "--admission: its rules follow from Tenants, and the controller tenant is off",
        )
        .hint("add tenant to --controllers, or leave out --admission")),
    }
}

/// For an installation without admission, checks that the cluster has none of Tenure's webhooks. The new controllers would not answer them, and the API server would
/// deny writes that only the webhooks allow.
async fn check_no_webhooks(client: &kube::Client) -> Result<(), Failure> {
    for configuration in configurations(&WebhookPlace::Service, "", Surroundings::default()) {
        let request = http::Request::get(write_object_path(&configuration)?).body(Vec::new());
        let request = request.map_err(|error| Failure::internal(error.to_string()))?;
        match client.request::<Value>(request).await {
            // A user without the right to read them has no right to install either, and gets that error later.
            Err(_) => {}
            Ok(found) if !installation::is_labelled_ours(&found) => {}
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} exists, and these controllers wouldn't answer it: the API server would refuse the writes that it covers",
                    installation::name_object(&configuration)
                ))
                .hint("say --admission; or take the webhooks away first, as docs/howto/admission-webhooks.md says"));
            }
        }
    }
    Ok(())
}

/// Checks the list of controllers, and returns it as written.
fn parse_controllers(text: &str) -> Result<String, String> {
    match tenure_controllers::read_switches(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
