//! `tenure install`: what the controllers need in a cluster that is there already, and nothing that runs.

use std::process::ExitCode;

use clap::Args;
use tenure_cluster::Installation;
use tenure_tenancy::identity;

use crate::connect::Connect;
use crate::failure::{Failure, chain};
use crate::{installation, output};

/// Put the kinds, the platform namespace, the controllers' ServiceAccount and its rights into a cluster, for `tenure run`.
///
/// What is there already is applied again, and left alone where nothing differs. Nothing is started.
#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    connect: Connect,
    /// Print the objects as YAML and write nothing.
    #[arg(long)]
    export: bool,
}

impl Install {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let objects = tenure_api::installation::objects().map_err(|error| Failure::internal(chain(&error)))?;
        if self.export {
            for object in &objects {
                output::print_line("---");
                output::print_written(|out| std::io::Write::write_all(out, kustomize::to_yaml(object).as_bytes()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let installation = Installation::new(self.connect.client().await?, identity::use_for_installation());
        installation::apply_in_order(&installation, |name| output::print_line(format!("applied {name}"))).await?;
        Ok(ExitCode::SUCCESS)
    }
}
