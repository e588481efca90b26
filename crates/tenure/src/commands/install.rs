//! `tenure install`: what the controllers need in a cluster that is there already, and what runs them there.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tenure_cluster::Installation;
use tenure_tenancy::identity;

use super::workload;
use crate::connect::Connect;
use crate::failure::{Failure, chain};
use crate::{installation, output};

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
    #[command(flatten)]
    workload: workload::Flags,
    /// What `tenure run` is told in the Pods: its flags, after --.
    #[arg(last = true, value_name = "FLAG", conflicts_with = "without_deployment")]
    arguments: Vec<String>,
}

impl Install {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let objects = self.list_objects()?;
        if self.export {
            for object in &objects {
                output::print_line("---");
                output::print_written(|out| std::io::Write::write_all(out, kustomize::to_yaml(object).as_bytes()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let installation = Installation::new(self.connect.client().await?, identity::use_for_installation());
        let tell = |name| output::print_line(format!("applied {name}"));
        installation::apply_in_order(&installation, &objects, tell).await?;
        if !self.without_deployment {
            output::print_note(format!(
                "kubectl -n {} rollout status deployment/{} says when they run",
                tenure_api::metadata::PLATFORM_NAMESPACE,
                tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list_objects(&self) -> Result<Vec<Value>, Failure> {
        let mut objects = tenure_api::installation::objects().map_err(|error| Failure::internal(chain(&error)))?;
        if !self.without_deployment {
            let chosen = self.workload.read(&self.arguments)?;
            for note in &chosen.notes {
                output::print_note(note);
            }
            if chosen.workload.metrics_from.is_some() {
                objects.push(tenure_api::installation::metrics_reviews());
            }
            objects.extend(tenure_api::workload::objects(&chosen.workload));
        }
        Ok(objects)
    }
}
