//! `tenure install`: what the controllers need in a cluster that is there already, and what runs them there.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_api::workload::LanePods;
use tenure_cluster::Installation;
use tenure_controllers::Switches;
use tenure_tenancy::admission::policy::is_bound;
use tenure_tenancy::{Settings, ShardName, identity};

use super::lane_place::WhereLanesRun;
use super::workload;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::object_path::write_object_path;
use crate::uninstallation::Uninstallation;
use crate::{installation, lane_grants, output};

/// Put the controllers into a cluster: the kinds, the platform namespace, their ServiceAccount and its rights, and a Deployment.
///
/// What is there already is applied again, and left alone where nothing differs. `tenure uninstall` takes it away.
#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    connect: Connect,
    /// Print the objects as YAML and write nothing.
    #[arg(long)]
    export: bool,
    /// Leave out what runs the controllers: for who starts `tenure run` in another way.
    #[arg(long, conflicts_with = "workload")]
    without_deployment: bool,
    /// Which controllers run, with commas between them, as `tenure run` takes it: `*` for all, `-NAME` for one that is off. No more is granted
    /// than these need.
    #[arg(
        long = "controllers",
        value_name = "NAMES",
        value_parser = parse_controllers,
        allow_hyphen_values = true
    )]
    controllers: Option<String>,
    /// A shard that has controllers of its own, for Tenants and for namespaces of nobody that bear the label sharding.fluxcd.io/key=NAME; may
    /// be given again. The main ones see to what is in none of them.
    #[arg(long = "shard", value_name = "NAME")]
    shards: Vec<ShardName>,
    /// Let the API server ask Tenure about what is written, by webhooks at the Service tenure-webhook: owners then make their own namespaces, and
    /// what a tenant may not write is refused before it is stored. The webhooks themselves are written by `tenure run`, once it answers.
    #[arg(long)]
    admission: bool,
    /// Keep tenancy's rules in force as ValidatingAdmissionPolicies, which hold also while nobody of Tenure's answers. The controllers make them,
    /// once what they read stands on the namespaces.
    #[arg(long)]
    policies: bool,
    /// Where lanes run, as `tenure run` takes it. With `deployment` the controllers write a Deployment for each lane, in tenure-system, and get
    /// the right to it.
    #[arg(long, value_name = "WHERE", value_enum)]
    lanes: Option<WhereLanesRun>,
    /// Serve Package, PackageSource and PackageValues (cozystack.io/v1alpha1), too. A definition that somebody else installed, as Cozystack does, stays as
    /// it is. Nobody reconciles them yet.
    #[arg(long)]
    packages: bool,
    #[command(flatten)]
    workload: workload::Flags,
    /// What `tenure run` is told in the Pods: its flags, after --.
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
                "{name} is there, and Tenants are left to somebody else: it stays as it is"
            ));
        }
        if self.packages {
            let (own, others) = installation::select_packages(&installation).await?;
            for name in others {
                output::print_note(format!("{name} is there and isn't Tenure's: it stays as it is"));
            }
            objects.extend(own);
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

    /// The names of the shards, each once.
    fn list_shards(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.shards.iter().map(ShardName::as_str).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// What is installed, and for which controllers.
    fn list_objects(&self) -> Result<(Vec<Value>, Switches), Failure> {
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
            // What they run, and where they find the hub, is told to whatever runs it.
            objects.extend(self.list_lanes(&LanePods::default()));
            if self.policies {
                objects.extend(installation::list_policing());
            }
            return Ok((objects, switches));
        }
        let mut chosen = self.workload.read(&self.list_arguments()?, &shards)?;
        if chosen.workload.admission_client_secret.is_some() && !self.admission {
            return Err(Failure::usage("--admission-client-secret: nobody is asked")
                .hint("--admission lets the API server ask"));
        }
        chosen.workload.admission = self.admission;
        chosen.workload.lanes = self.has_lane_pods();
        if chosen.workload.lanes && !shards.is_empty() {
            return Err(Failure::usage(
                "--lanes deployment with --shard: lanes come to the main controllers, which know of none of a shard's",
            )
            .hint("leave out one of them"));
        }
        for note in &chosen.notes {
            output::print_note(note);
        }
        let mut objects = installation::list_objects(&chosen.switches, &shards, &chosen.protected_namespaces)?;
        objects.extend(self.list_admission(&chosen.switches)?);
        objects.extend(self.list_lanes(&chosen.workload.describe_lane_pods()));
        // Who asks is found out in the same way, for metrics and for artifacts.
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
        self.lanes == Some(WhereLanesRun::Deployment)
    }

    /// What the controllers may do besides where they make a Pod for each lane, and what bounds that.
    fn list_lanes(&self, pods: &LanePods) -> Vec<Value> {
        match self.has_lane_pods() {
            true => installation::list_lanes(pods),
            false => Vec::new(),
        }
    }

    /// What admission webhooks need, if there are to be any.
    fn list_admission(&self, switches: &Switches) -> Result<Vec<Value>, Failure> {
        match (self.admission, switches.is_on("Tenant")) {
            (false, _) => Ok(Vec::new()),
            (true, true) => Ok(tenure_api::installation::admission()),
            (true, false) => Err(Failure::usage(
                "--admission: what may be written follows from Tenants, and they are off",
            )
            .hint("let --controllers have tenant, or leave --admission away")),
        }
    }

    /// What `tenure run` is told: what runs, and what no more than that is granted to, is said once.
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
                    Failure::usage("--lanes is said twice: before -- and after it").hint("say it once, before it")
                );
            }
            match lanes {
                WhereLanesRun::Task => arguments.push("--lanes=task".to_owned()),
                WhereLanesRun::Process => arguments.push("--lanes=process".to_owned()),
                // What runs says it, with what belongs to it.
                WhereLanesRun::Deployment => {}
            }
        }
        let Some(controllers) = &self.controllers else {
            arguments.extend(self.arguments.iter().cloned());
            return Ok(arguments);
        };
        let is_said = |argument: &String| argument == "--controllers" || argument.starts_with("--controllers=");
        if self.arguments.iter().any(is_said) {
            return Err(Failure::usage("--controllers is said twice: before -- and after it")
                .hint("say it once; what is granted follows from it, and tenure run is told of it"));
        }
        arguments.push(format!("--controllers={controllers}"));
        arguments.extend(self.arguments.iter().cloned());
        Ok(arguments)
    }
}

/// Whether a cluster has policies.
async fn serves_policies(client: &kube::Client) -> Result<bool, Failure> {
    let request = http::Request::get("/apis/admissionregistration.k8s.io/v1").body(Vec::new());
    let request = request.map_err(|error| Failure::internal(error.to_string()))?;
    let served: Value = client.request(request).await?;
    let mut kinds = ObjectView::of(&served).list_views("/resources");
    Ok(kinds.any(|kind| kind.read_text("/name") == "validatingadmissionpolicies"))
}

/// Controllers that don't answer are no exchange for those that do: what only they allow would be refused.
async fn check_nobody_asks(client: &kube::Client) -> Result<(), Failure> {
    for configuration in configurations(&WebhookPlace::Service, "", Surroundings::default()) {
        let request = http::Request::get(write_object_path(&configuration)?).body(Vec::new());
        let request = request.map_err(|error| Failure::internal(error.to_string()))?;
        match client.request::<Value>(request).await {
            // Who may not look has no right to install either, and is told so.
            Err(_) => {}
            Ok(found) if !installation::is_labelled_ours(&found) => {}
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} is there, and these controllers wouldn't answer it: what it is about would be refused",
                    installation::name(&configuration)
                ))
                .hint("say --admission; or take the webhooks away first, as docs/howto/admission-webhooks.md says"));
            }
        }
    }
    Ok(())
}

/// Which controllers run, as it was written, if it can be read.
fn parse_controllers(text: &str) -> Result<String, String> {
    match tenure_controllers::read_switches(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
