//! `tenure access`: credentials for Git and registries. Owns which verbs there are. Refuses to decide: what a credential is and how it stands is
//! `tenure_planner::access`'s to say.

mod audit;
mod survey;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Credentials for Git and registries: which ones are used, how old they are, who may read them.
#[derive(Debug, Args)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Audit(audit::Audit),
}

impl Command {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        match &self.what {
            What::Audit(audit) => audit.run().await,
        }
    }
}
