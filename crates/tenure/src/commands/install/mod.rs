//! `tenure install`: installs the objects that the controllers need in an existing cluster, and the workload that runs them there.

mod choices;
mod docker_config;
pub(crate) mod enforcing;
mod image_reference;
pub(crate) mod rollout;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure_api::text::count_of;
use tenure_cluster::Installation;
use tenure_inspection::installation_summary::summarize_protection;
use tenure_tenancy::identity;

use super::diff::print_comparison;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::installation::Effect;
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::uninstallation::Uninstallation;
use crate::{installation, lane_grants, output, quantity};
pub(crate) use choices::{Choices, Prepared};
use enforcing::Abilities;

/// Install the controllers in a cluster: the kinds, the platform namespace, their ServiceAccount and its rights, and a Deployment.
///
/// You can repeat the command: it writes only objects that differ. At the end it says which attacks on tenancy the installation refuses, and which flags close the
/// rest. `tenure uninstall` removes the controllers.
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
    /// Wait until the Pods of the controllers are available, and the rules of tenancy are in force.
    #[arg(long, conflicts_with_all = ["export", "dry_run", "without_deployment"])]
    wait: bool,
    /// Time to wait for each part with --wait: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = quantity::parse_time)]
    timeout: Duration,
    #[command(flatten)]
    choices: Choices,
}

impl Install {
    pub(crate) async fn run(mut self) -> Result<ExitCode, Failure> {
        self.choices.settle().await?;
        // Wrong flags are reported before any request to the cluster.
        let mut planned = self.choices.plan(&Abilities::whole())?;
        if self.export {
            planned.notes.iter().for_each(output::print_note);
            if self.choices.packages {
                planned.objects.extend(installation::list_packages()?);
            }
            for object in &planned.objects {
                output::print_line("---");
                output::print_written(|out| std::io::Write::write_all(out, kustomize::to_yaml(object).as_bytes()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let client = self.connect.client().await?;
        let installation = Installation::new(client.clone(), identity::use_for_installation());
        let Prepared {
            objects,
            enforcing,
            abilities,
        } = self.choices.prepare(&client, &installation).await?;
        if self.dry_run {
            return show_effects(installation::preview_objects(&installation, &objects).await?);
        }
        let progress = Progress::start();
        progress.print_action(format!("applying {} objects", objects.len()));
        let applied = Cell::new(0_usize);
        let print_applied = |name| {
            applied.set(applied.get() + 1);
            output::print_line(format!("applied {name}"));
        };
        let applying = installation::apply_in_order(&installation, &objects, print_applied);
        match interruption::until_interrupted(applying).await? {
            Ended::Done(ended) => ended?,
            Ended::Interrupted => {
                progress.warn(format!(
                    "interrupted: {} of {} objects are applied, and perhaps one more; policies come before the rights that they bound. Run the same command again to complete the installation",
                    applied.get(),
                    objects.len()
                ));
                return Ok(interruption::exit_code());
            }
        }
        progress.succeed(format!("{} objects are applied", applied.get()));
        for shared in lane_grants::find_minters(&client).await? {
            output::print_note(shared.to_string());
        }
        if enforcing.policies {
            let cluster = Uninstallation::new(
                client.clone(),
                identity::use_for_installation(),
                <[String; 2]>::default(),
            );
            cluster.delete_left_over(|line| output::print_line(line)).await?;
        }
        if self.choices.without_deployment {
            output::print_note(
                "tenure run starts the controllers; its flags --policies and --admission-address decide what refuses attacks",
            );
            return Ok(ExitCode::SUCCESS);
        }
        if self.wait {
            let waiting = rollout::wait_for_rollout(&client, enforcing, self.timeout, &progress);
            match interruption::until_interrupted(waiting).await? {
                Ended::Done(ended) => ended?,
                Ended::Interrupted => {
                    progress.warn("interrupted: everything is applied, and the controllers start by themselves");
                    return Ok(interruption::exit_code());
                }
            }
        } else {
            output::print_note(format!(
                "kubectl -n {} rollout status deployment/{} says when they run",
                tenure_api::metadata::PLATFORM_NAMESPACE,
                tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT
            ));
        }
        for line in summarize_protection(self.choices.describe_protection(enforcing, &abilities)) {
            match line.is_kept {
                true => progress.succeed(&line.text),
                false => progress.warn(&line.text),
            }
        }
        output::print_note(match enforcing.admission || enforcing.policies {
            true => {
                "kubectl wait enforcement/tenure --for=condition=Ready waits until the rules are in force; tenure attest tries the attacks"
            }
            false => "tenure attest tries the attacks",
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the effect of an installation on each object, and a sum.
fn show_effects(effects: Vec<(String, Effect)>) -> Result<ExitCode, Failure> {
    let (mut created, mut changed, mut kept) = (0_usize, 0, 0);
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
        "{} would be created and {changed} changed; {kept} without a change. Nothing was written",
        count_of(created, "object")
    ));
    Ok(ExitCode::SUCCESS)
}
