//! `tenure uninstall`: removes the controllers from a cluster and leaves running workloads. The module asks for confirmation; `tenure_planner::uninstallation` decides
//! the steps and their order.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure_planner::uninstallation::{KindChoice, Plan, RemovalChoice};
use tenure_tenancy::identity;

use crate::connect::Connect;
use crate::failure::Failure;
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::uninstallation::{Leadership, Uninstallation};
use crate::{confirmation, output};

/// The number of lines of a stage that are shown before a question; --dry-run shows all.
const SHOWN: usize = 15;

/// Remove the controllers, their rights and their namespace from a cluster. Applied objects stay, and continue to run.
///
/// The command first deletes the admission webhooks, then ends the controllers. Then it removes their finalizers from the objects that they reconciled, so
/// that these objects can be deleted later. Then it deletes the rest.
///
/// Flux's and Capsule's kinds stay with all their objects, unless --delete-kinds is given. The protection of tenants (NetworkPolicies, quotas, LimitRanges,
/// admission policies) stays with the bindings of owners, unless --with-protection is given.
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    connect: Connect,
    /// Print the changes, and make none.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Skip the confirmation.
    #[arg(long)]
    yes: bool,
    /// Keep Tenure's own kinds, too, with their objects, such as Surfaces.
    #[arg(long, conflicts_with = "delete_kinds")]
    keep_kinds: bool,
    /// Delete Flux's and Capsule's kinds, too, with all their objects. Applied objects and the namespaces of Tenants stay.
    #[arg(long)]
    delete_kinds: bool,
    /// Delete the protection of tenants, too: NetworkPolicies, ResourceQuotas and LimitRanges of Tenants, and admission policies.
    ///
    /// The bindings of owners are deleted before it.
    #[arg(long)]
    with_protection: bool,
    /// Seconds to wait for the controllers to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    wait: u64,
    /// Namespace of Flux's controllers. While they run, the command leaves Flux's finalizers to them and refuses --delete-kinds.
    #[arg(long, value_name = "NAME", default_value = "flux-system")]
    flux_namespace: String,
    /// Namespace of Capsule's controller. While it runs, the command refuses --delete-kinds.
    #[arg(long, value_name = "NAME", default_value = "capsule-system")]
    capsule_namespace: String,
}

impl Uninstall {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let kinds = match (self.keep_kinds, self.delete_kinds) {
            (true, _) => KindChoice::None,
            (_, true) => KindChoice::All,
            _ => KindChoice::Own,
        };
        let choice = RemovalChoice {
            kinds,
            with_protection: self.with_protection,
        };
        let client = self.connect.client().await?;
        let namespaces = [self.flux_namespace.clone(), self.capsule_namespace.clone()];
        let cluster = Uninstallation::new(client, identity::use_for_installation(), namespaces);
        let plan = cluster.plan(choice).await?;
        if plan.stages.is_empty() {
            output::print_line("nothing is installed here");
            return Ok(ExitCode::SUCCESS);
        }
        show_plan(&plan, if self.dry_run { usize::MAX } else { SHOWN });
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !self.yes {
            confirmation::ask_confirmation("--yes does it, --dry-run only says what would be done")?;
        }
        let progress = Progress::start();
        let mut leadership = Leadership::new();
        let removing = self.remove((&cluster, &plan, choice), &mut leadership, &progress);
        let ended = interruption::until_interrupted(removing).await;
        // Another process may lead again, after every end.
        leadership.give_back(&cluster).await;
        let finished = match ended? {
            Ended::Done(finished) => finished?,
            Ended::Interrupted => {
                progress.warn("interrupted: deleted objects stay deleted, and no right was left without its protection; run the same command again to finish");
                return Ok(interruption::exit_code());
            }
        };
        for line in &finished.stays {
            output::print_note(format!("kept: {line}"));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Ends the controllers, and removes everything else after them. Returns the last plan.
    async fn remove(
        &self,
        (cluster, plan, choice): (&Uninstallation, &Plan, RemovalChoice),
        leadership: &mut Leadership,
        progress: &Progress,
    ) -> Result<Plan, Failure> {
        progress.print_action("ending the controllers");
        cluster.end_controllers(plan, choice).await?;
        let waiting = progress.wait("the controllers to end");
        let patience = Duration::from_secs(self.wait);
        leadership.win(cluster, patience).await?;
        leadership.win_shards(cluster, patience).await?;
        drop(waiting);
        progress.print_action("removing finalizers and objects");
        let print_progress = |done: &str| output::print_line(done);
        let finished = cluster.finish(choice, leadership, print_progress).await?;
        progress.succeed("the installation is removed");
        Ok(finished)
    }
}

fn show_plan(plan: &Plan, most: usize) {
    for (number, (heading, stage)) in plan.headings.iter().zip(&plan.stages).enumerate() {
        output::print_line(format!("{}. {heading}", number + 1));
        for step in stage.iter().take(most) {
            output::print_line(format!("   {}", step.says));
        }
        if let Some(more) = stage.len().checked_sub(most).filter(|more| *more > 0) {
            output::print_line(format!("   and {more} more; --dry-run names them"));
        }
    }
    for line in plan.goes.iter().take(most) {
        output::print_line(format!("goes: {line}"));
    }
    if let Some(more) = plan.goes.len().checked_sub(most).filter(|more| *more > 0) {
        output::print_line(format!("and {more} more objects go; --dry-run names them"));
    }
    for line in &plan.stays {
        output::print_line(format!("kept: {line}"));
    }
}
