//! `tenure access`: the commands about credentials for Git and registries. `tenure_git_access` decides about credentials and requests, and the API server decides
//! who may answer.

mod answer;
mod audit;
mod audit_reads;
mod cluster_reads;
mod list;
mod output;
mod rotate;
mod show;
mod vouch;
mod why;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Manage credentials for Git hosts and registries: requests, approvals, use, age and readers.
#[derive(Debug, Args)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(list::List),
    Show(show::Show),
    Approve(answer::Approve),
    Vouch(vouch::Vouch),
    Deny(answer::Deny),
    Revoke(answer::Revoke),
    Rotate(rotate::Rotate),
    Why(why::Why),
    Audit(audit::Audit),
}

impl Command {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        match &self.what {
            What::List(list) => list.run().await,
            What::Show(show) => show.run().await,
            What::Approve(approve) => approve.run().await,
            What::Vouch(vouch) => vouch.run().await,
            What::Deny(deny) => deny.run().await,
            What::Revoke(revoke) => revoke.run().await,
            What::Rotate(rotate) => rotate.run().await,
            What::Why(why) => why.run().await,
            What::Audit(audit) => audit.run().await,
        }
    }
}
