//! `tenure reconcile`, `suspend` and `resume`: the three commands that control when a reconciler works. `reconcile` and `resume` wait for the outcome. The commands
//! refuse kinds without a reconciler, and `reconcile` refuses suspended objects.

mod object;
mod selection;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use serde_json::Value;

use self::object::Reconciled;
use self::selection::Selection;
use crate::failure::Failure;
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::readiness::name_goal;
use crate::{output, quantity};

/// The number of objects that are worked on at a time.
const AT_ONCE: usize = 8;

/// Request a reconciliation now, and wait for the result. Exit code 0 if all objects are Ready, 1 if one is not.
///
/// Progress is on standard error: what is waited for, and since when. After Ctrl-C, the requests stay, and the controllers carry them out.
#[derive(Debug, Args)]
pub(crate) struct Reconcile {
    #[command(flatten)]
    selection: Selection,
    /// Reconcile the sources of the Kustomizations first, and wait for them, too.
    #[arg(long)]
    with_source: bool,
    /// Request the reconciliation without waiting.
    #[arg(long)]
    no_wait: bool,
    /// Time to wait for each object: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = quantity::parse_time)]
    timeout: Duration,
}

/// Stop the reconciliation of objects. Applied objects stay.
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    #[command(flatten)]
    selection: Selection,
}

/// Resume the reconciliation of suspended objects, and wait for the result. Exit code 0 if all objects are Ready, 1 if one is not.
///
/// Alerts and Providers react to events, so the command does not wait for them. Progress is on standard error. After Ctrl-C, the objects stay resumed.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    selection: Selection,
    /// Wait for the reconciliation of the resumed objects.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    wait: bool,
    /// Resume without waiting, as with --wait=false.
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Time to wait for each object: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = quantity::parse_time)]
    timeout: Duration,
}

impl Reconcile {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let progress = Progress::start();
        match interruption::until_interrupted(self.reconcile_all(&progress)).await? {
            Ended::Done(ended) => ended,
            Ended::Interrupted => {
                progress.warn(
                    "interrupted: the controllers carry out the requests that were made; tenure get shows the result",
                );
                Ok(interruption::exit_code())
            }
        }
    }

    async fn reconcile_all(&self, progress: &Progress) -> Result<ExitCode, Failure> {
        let (client, served) = self.selection.connect().await?;
        let mut objects = self.selection.find(&client, &served).await?;
        let mut failures = Vec::new();
        if self.with_source {
            let mut sources: Vec<(String, Reconciled)> = Vec::new();
            let mut wanted = Vec::new();
            for object in objects {
                match object.find_source(&client, &served).await {
                    Ok(source) => wanted.push((source.subject(), source, object)),
                    Err(failure) => failures.push(failure),
                }
            }
            objects = Vec::new();
            let mut with_sources = Vec::new();
            for (name, source, object) in wanted {
                if !sources.iter().any(|(known, _)| *known == name) {
                    sources.push((name.clone(), source));
                }
                with_sources.push((name, object));
            }
            let asked = futures::stream::iter(&sources)
                .map(|(name, source)| async move { (name, self.reconcile(source, progress).await) });
            let mut asked = asked.buffer_unordered(AT_ONCE);
            let mut failed = Vec::new();
            while let Some((name, ended)) = asked.next().await {
                if let Err(failure) = ended {
                    failed.push(name.clone());
                    failures.push(failure);
                }
            }
            drop(asked);
            for (name, object) in with_sources {
                match failed.contains(&name) {
                    true => progress.warn(format!(
                        "{} is not requested, because its source failed",
                        object.subject()
                    )),
                    false => objects.push(object),
                }
            }
        }
        let asked = futures::stream::iter(&objects).map(|object| self.reconcile(object, progress));
        let mut asked = asked.buffer_unordered(AT_ONCE);
        while let Some(ended) = asked.next().await {
            failures.extend(ended.err());
        }
        report_failures(failures)
    }

    async fn reconcile(&self, object: &Reconciled, progress: &Progress) -> Result<(), Failure> {
        let subject = object.subject();
        if object.reacts_to_events() {
            return Err(
                Failure::usage(format!("nothing reconciles {} on request", object.resource_name()))
                    .hint("it reacts to events; tenure get shows whether it is Ready"),
            );
        }
        let before = object.get().await?;
        if object.is_suspended(&before) {
            if self.selection.is_all() {
                progress.warn(format!("{subject} is suspended, and is left out"));
                return Ok(());
            }
            return Err(Failure::negative(format!("{subject} is suspended"))
                .hint(format!("tenure resume {}", object.write_arguments())));
        }
        progress.print_action(format!("annotating {subject}"));
        object.request().await?;
        if self.no_wait {
            output::print_line(format!("{subject} reconciliation requested"));
            return Ok(());
        }
        wait_for_outcome(object, &before, self.timeout, progress).await
    }
}

impl Suspend {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        switch_objects(&self.selection, true).await
    }
}

impl Resume {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        if self.no_wait || !self.wait {
            return switch_objects(&self.selection, false).await;
        }
        let progress = Progress::start();
        match interruption::until_interrupted(self.resume_all(&progress)).await? {
            Ended::Done(ended) => ended,
            Ended::Interrupted => {
                progress.warn("interrupted: resumed objects stay resumed; tenure get shows the result");
                Ok(interruption::exit_code())
            }
        }
    }

    async fn resume_all(&self, progress: &Progress) -> Result<ExitCode, Failure> {
        let (client, served) = self.selection.connect().await?;
        let objects = self.selection.find(&client, &served).await?;
        let asked = futures::stream::iter(&objects).map(|object| self.resume(object, progress));
        let mut asked = asked.buffer_unordered(AT_ONCE);
        let mut failures = Vec::new();
        while let Some(ended) = asked.next().await {
            failures.extend(ended.err());
        }
        report_failures(failures)
    }

    async fn resume(&self, object: &Reconciled, progress: &Progress) -> Result<(), Failure> {
        let resumed = format!("{} resumed", object.subject());
        if object.reacts_to_events() {
            object.suspend(false).await?;
            progress.print_output(&resumed);
            return Ok(());
        }
        let before = object.get().await?;
        object.resume_with_request().await?;
        progress.print_output(&resumed);
        wait_for_outcome(object, &before, self.timeout, progress).await
    }
}

/// Waits for the outcome of a request, and reports it. `before`: the object before the request.
async fn wait_for_outcome(
    object: &Reconciled,
    before: &Value,
    timeout: Duration,
    progress: &Progress,
) -> Result<(), Failure> {
    let subject = object.subject();
    let waiting = progress.wait(format!("{subject} {}", name_goal(object.kind())));
    let outcome = tokio::time::timeout(timeout, object.wait_until_handled(before, &waiting)).await;
    let step = waiting.step();
    drop(waiting);
    let outcome = match outcome {
        Err(_) => {
            let last = if step.is_empty() {
                String::new()
            } else {
                format!(" ({step})")
            };
            return Err(
                Failure::negative(format!("{subject} was not reconciled in {} s{last}", timeout.as_secs())).hint(
                    format!(
                        "tenure get {} shows its state; --timeout waits longer",
                        object.write_arguments()
                    ),
                ),
            );
        }
        Ok(outcome) => outcome?,
    };
    if !outcome.is_ready {
        return Err(
            Failure::negative(format!("{subject}: {}: {}", outcome.reason, outcome.message))
                .hint(format!("tenure events --for {}", object.write_arguments())),
        );
    }
    progress.succeed(format!("{subject}: {}", outcome.describe(object.kind())));
    Ok(())
}

/// Suspends or resumes the selected objects.
async fn switch_objects(selection: &Selection, suspend: bool) -> Result<ExitCode, Failure> {
    let (client, served) = selection.connect().await?;
    let objects = selection.find(&client, &served).await?;
    let done = if suspend { "suspended" } else { "resumed" };
    let asked = futures::stream::iter(&objects).map(|object| async move {
        object.suspend(suspend).await?;
        output::print_line(format!("{} {done}", object.subject()));
        Ok(())
    });
    let ended: Vec<Result<(), Failure>> = asked.buffered(AT_ONCE).collect().await;
    report_failures(ended.into_iter().filter_map(Result::err).collect())
}

/// Reports the failures of several objects. The exit code is that of the gravest failure, which comes last.
fn report_failures(mut failures: Vec<Failure>) -> Result<ExitCode, Failure> {
    failures.sort_by_key(Failure::code);
    let Some(gravest) = failures.pop() else {
        return Ok(ExitCode::SUCCESS);
    };
    failures.iter().for_each(output::failure);
    Err(gravest)
}
