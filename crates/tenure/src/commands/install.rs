//! `tenure install`: installs the objects that the controllers need in an existing cluster, and the workload that runs them there.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tenure_admission_rules::policy::is_bound;
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_api::workload::LanePods;
use tenure_cluster::Installation;
use tenure_controllers::EnabledKinds;
use tenure_tenancy::{Settings, ShardName, identity};

use super::diff::print_comparison;
use super::lane_location::LaneLocation;
use super::workload;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::installation::Effect;
use crate::object_path::write_object_path;
use crate::uninstallation::Uninstallation;
use crate::{installation, lane_grants, output};

/// Install the controllers in a cluster: the kinds, the platform namespace, their ServiceAccount and its rights, and a Deployment.
///
/// You can repeat the command: it writes only objects that differ. `tenure uninstall` removes the controllers.
#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    connect: Connect,
    /// Print the objects as YAML and write nothing.
    #[arg(long)]
    export: bool,
    /// Show the objects that the command would create and change, and write nothing.
    #[arg(long, conflicts_with = "export")]
    dry_run: bool,
    /// Leave out everything that runs the controllers, because you start `tenure run` in another way.
    #[arg(long, conflicts_with = "workload")]
    without_deployment: bool,
    /// Controllers to run, separated by commas, as for `tenure run`: `*` for all (the default), `-NAME` to switch one off. Only the rights that these need
    /// are granted.
    #[arg(
        long = "controllers",
        value_name = "NAMES",
        value_parser = parse_controllers,
        allow_hyphen_values = true
    )]
    controllers: Option<String>,
    /// Name of a shard with controllers of its own. Can be repeated.
    ///
    /// The controllers of the shard reconcile the Tenants, and the namespaces without a tenant, that have the label sharding.fluxcd.io/key=NAME. The main
    /// controllers reconcile everything without a shard.
    #[arg(long = "shard", value_name = "NAME")]
    shards: Vec<ShardName>,
    /// Let the API server ask Tenure about writes before it stores them, by webhooks at the Service tenure-webhook.
    ///
    /// Then owners create their own namespaces, and the API server refuses writes that a tenant may not make. `tenure run` writes the webhooks once it can
    /// answer them.
    #[arg(long)]
    admission: bool,
    /// Enforce the tenancy rules by ValidatingAdmissionPolicies, which also hold while no process of Tenure answers.
    ///
    /// The controllers create the policies once the namespaces have the facts that the policies read.
    #[arg(long)]
    policies: bool,
    /// Where lanes run, as for `tenure run`.
    ///
    /// With `deployment`, the controllers write a Deployment for each lane in tenure-system, and get the right to do so. Not with --shard.
    #[arg(long, value_name = "WHERE", value_enum)]
    lanes: Option<LaneLocation>,
    /// Also install the kinds Package, PackageSource and PackageValues (cozystack.io/v1alpha1). No controller reconciles them yet.
    ///
    /// An existing definition of another program, such as Cozystack, stays unchanged.
    #[arg(long)]
    packages: bool,
    #[command(flatten)]
    workload: workload::Flags,
    /// Flags of `tenure run` in the Pods, after --.
    #[arg(last = true, value_name = "FLAG", conflicts_with = "without_deployment")]
    arguments: Vec<String>,
}

impl Install {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let (mut objects, switches) = self.list_objects()?;
        tenure_api::installation::put_bounds_before_rights(&mut objects);
        if self.export {
            if self.packages {
                objects.extend(installation::list_packages()?);
            }
            for object in &objects {
                output::print_line("---");
                output::print_written(|out| std::io::Write::write_all(out, kustomize::to_yaml(object).as_bytes()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let client = self.connect.client().await?;
        if !self.admission && !self.without_deployment {
            check_nobody_asks(&client).await?;
        }
        if !serves_policies(&client).await? {
            objects.retain(|object| !is_bound(ObjectView::of(object).read_text("/metadata/name")));
            output::print_note(
                "this cluster has no ValidatingAdmissionPolicies (Kubernetes has them since 1.30): nothing bounds what the controllers' account may bind in kube-* namespaces, which Tenants it may delete, which Deployments it may write in tenure-system where lanes have Pods, and which Secrets tenure-secret-writer may write where an administrator binds it",
            );
        }
        let installation = Installation::new(client.clone(), identity::use_for_installation());
        let tell = |name| output::print_line(format!("applied {name}"));
        let left = installation::leave_definition_of_tenants(&installation, &switches, &mut objects).await?;
        if let Some(name) = left {
            output::print_note(format!(
                "{name} exists, and Tenants are left to another controller: it stays as it is"
            ));
        }
        if self.packages {
            let (own, others) = installation::select_packages(&installation).await?;
            for name in others {
                output::print_note(format!("{name} exists and isn't Tenure's: it stays as it is"));
            }
            objects.extend(own);
        }
        if self.dry_run {
            return show_effects(installation::preview(&installation, &objects).await?);
        }
        installation::apply_in_order(&installation, &objects, tell).await?;
        for shared in lane_grants::find(&client).await? {
            output::print_note(shared.to_string());
        }
        if self.policies {
            let cluster = Uninstallation::new(client, identity::use_for_installation(), <[String; 2]>::default());
            cluster.delete_left_over(|said| output::print_line(said)).await?;
        }
        if !self.without_deployment {
            output::print_note(format!(
                "kubectl -n {} rollout status deployment/{} says when they run",
                tenure_api::metadata::PLATFORM_NAMESPACE,
                tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the names of the shards, each once.
    fn list_shards(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.shards.iter().map(ShardName::as_str).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Returns the objects of the installation, and its controllers.
    fn list_objects(&self) -> Result<(Vec<Value>, EnabledKinds), Failure> {
        let shards = self.list_shards();
        if self.without_deployment {
            let switches = self
                .controllers
                .as_deref()
                .map(tenure_controllers::read_switches)
                .transpose();
            let switches = switches
                .map_err(|error| Failure::usage(error.to_string()))?
                .unwrap_or_default();
            let mut objects =
                installation::list_objects(&switches, &shards, &Settings::default().protected_namespaces)?;
            objects.extend(self.list_admission(&switches)?);
            // The workload's arguments hold the image of lanes and the address of the hub.
            objects.extend(self.list_lanes(&LanePods::default()));
            if self.policies {
                objects.extend(installation::list_policing());
            }
            return Ok((objects, switches));
        }
        let mut chosen = self.workload.read(&self.list_arguments()?, &shards)?;
        if chosen.workload.admission_client_secret.is_some() && !self.admission {
            return Err(Failure::usage(
                "--admission-client-secret: the API server doesn't ask Tenure without --admission",
            )
            .hint("--admission lets the API server ask"));
        }
        chosen.workload.admission = self.admission;
        chosen.workload.lanes = self.has_lane_pods();
        if chosen.workload.lanes && !shards.is_empty() {
            return Err(Failure::usage(
                "--lanes deployment with --shard: lanes connect to the main controllers, which don't know the lanes of a shard",
            )
            .hint("leave out one of them"));
        }
        for note in &chosen.notes {
            output::print_note(note);
        }
        let mut objects = installation::list_objects(&chosen.switches, &shards, &chosen.protected_namespaces)?;
        objects.extend(self.list_admission(&chosen.switches)?);
        objects.extend(self.list_lanes(&chosen.workload.describe_lane_pods()));
        // The authentication of clients needs the same rights for metrics and for artifacts.
        if chosen.workload.metrics_from.is_some() || chosen.workload.artifact_secret.is_some() {
            objects.push(tenure_api::installation::metrics_reviews());
        }
        if self.policies {
            objects.extend(installation::list_policing());
        }
        objects.extend(tenure_api::workload::objects(&chosen.workload));
        Ok((objects, chosen.switches))
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

    /// Returns the objects for admission webhooks, if they are enabled.
    fn list_admission(&self, switches: &EnabledKinds) -> Result<Vec<Value>, Failure> {
        match (self.admission, switches.is_on("Tenant")) {
            (false, _) => Ok(Vec::new()),
            (true, true) => Ok(tenure_api::installation::admission()),
            (true, false) => Err(Failure::usage(
                "--admission: its rules follow from Tenants, and the controller tenant is off",
            )
            .hint("add tenant to --controllers, or leave out --admission")),
        }
    }

    /// Returns the arguments of `tenure run`. The enabled controllers are listed once; RBAC is derived from that list.
    fn list_arguments(&self) -> Result<Vec<String>, Failure> {
        if self.arguments.iter().any(|argument| argument == "--policies") {
            return Err(
                Failure::usage("--policies comes before --: rights are given for it, too")
                    .hint("tenure run is told of it"),
            );
        }
        let mut arguments = Vec::new();
        if self.policies {
            arguments.push("--policies".to_owned());
        }
        if let Some(lanes) = self.lanes {
            let is_said = |argument: &String| argument == "--lanes" || argument.starts_with("--lanes=");
            if self.arguments.iter().any(is_said) {
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
        let is_said = |argument: &String| argument == "--controllers" || argument.starts_with("--controllers=");
        if self.arguments.iter().any(is_said) {
            return Err(Failure::usage("--controllers is set twice: before -- and after it")
                .hint("set it once; the rights follow from it, and tenure install passes it to tenure run"));
        }
        arguments.push(format!("--controllers={controllers}"));
        arguments.extend(self.arguments.iter().cloned());
        Ok(arguments)
    }
}

/// Prints the effect of an installation on each object, and a sum.
fn show_effects(effects: Vec<(String, Effect)>) -> Result<ExitCode, Failure> {
    let (mut created, mut changed, mut kept) = (0, 0, 0);
    for (name, effect) in effects {
        match effect {
            Effect::Creates => {
                created += 1;
                output::print_line(format!("+ {}", output::good(&format!("{name} would be created"))));
            }
            Effect::Changes(before, after) => {
                changed += 1;
                output::print_line(format!("~ {}", output::bold(&format!("{name} would be changed"))));
                print_comparison(Some(&before), Some(&after));
            }
            Effect::Keeps => kept += 1,
        }
    }
    output::print_note(format!(
        "{created} objects would be created and {changed} changed; {kept} stay as they are. Nothing was written"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Whether the cluster serves policies.
async fn serves_policies(client: &kube::Client) -> Result<bool, Failure> {
    let request = http::Request::get("/apis/admissionregistration.k8s.io/v1").body(Vec::new());
    let request = request.map_err(|error| Failure::internal(error.to_string()))?;
    let served: Value = client.request(request).await?;
    let mut kinds = ObjectView::of(&served).list_views("/resources");
    Ok(kinds.any(|kind| kind.read_text("/name") == "validatingadmissionpolicies"))
}

/// For an installation without admission, checks that the cluster has none of Tenure's webhooks. The new controllers would not answer them, and the API server would
/// deny writes that only the webhooks allow.
async fn check_nobody_asks(client: &kube::Client) -> Result<(), Failure> {
    for configuration in configurations(&WebhookPlace::Service, "", Surroundings::default()) {
        let request = http::Request::get(write_object_path(&configuration)?).body(Vec::new());
        let request = request.map_err(|error| Failure::internal(error.to_string()))?;
        match client.request::<Value>(request).await {
            // A user without the right to read them has no right to install either, and gets that error later.
            Err(_) => {}
            Ok(found) if !installation::is_labelled_ours(&found) => {}
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} is there, and these controllers wouldn't answer it: the API server would refuse the writes that it covers",
                    installation::name(&configuration)
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
