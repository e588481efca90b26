//! `tenure recover`: gives a Package's fields back to the platform's chart. `tenure_planner::package_recovery` decides which fields; the module reads, shows the plan, and
//! with `--yes` writes and waits. Of the release, only the Package's own fields are shown.

mod release;
mod suspension;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::package::BOOTSTRAP;
use tenure_api::text::{count_of, visible_line};
use tenure_planner::package_recovery::{
    self as recovery, Effect, LONGEST_MANIFEST, RecoveredField, Recovery, ReleaseName, Reset,
};
use tenure_tenancy::rights::{OVERRIDE, Question, RENDER};

use self::suspension::{Applier, State};
use crate::api_answers::{Answer, apply_object, patch_object};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::inspection::{Form, print_data};
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::resources::{self, Resource};
use crate::{caller, output, quantity, readiness};

/// The field manager of the write that changes managedFields alone.
const FIELD_MANAGER: &str = "tenure-recover";
/// The number of attempts, if other writers change the Package at the same time. Controllers write its status.
const ATTEMPTS: u32 = 10;
/// The longest shown value, in characters.
const LONGEST_VALUE: usize = 40;
/// The number of shown fields that stay.
const MOST_KEPT: usize = 20;

/// Give the fields of a Package back to the platform's chart. Without --yes, the command only shows the plan.
///
/// Each field that the chart renders gets the chart's value, and the chart owns it alone. Other fields, such as values of an administrator, stay, unless --manager or --all
/// names them. The chart's version is read from the Secret of its Helm release.
///
/// You need the verbs get, list, watch, patch and override on the Package, list and get on Secrets in the namespace of the release, and get on this namespace.
///
/// Exit codes without --yes: 0 nothing is to be recovered, 1 something is, more than 1 the command can't tell. With --yes: 0 the Package has the chart's fields and is
/// Ready.
#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Name of the Package, such as cozystack.metallb.
    #[arg(value_name = "PACKAGE", add = ArgValueCompleter::new(super::completion::complete_target))]
    package: String,
    /// Do it.
    #[arg(long)]
    yes: bool,
    /// Suspend the Kustomization that took fields. It would take them again.
    #[arg(long)]
    suspend: bool,
    /// Also remove the fields that this field manager has beside the chart's. Can be repeated.
    #[arg(long = "manager", value_name = "NAME")]
    managers: Vec<String>,
    /// Also remove all fields of spec that the chart does not render.
    #[arg(long, conflicts_with = "managers")]
    all: bool,
    /// File with the manifest of the release, such as the output of `helm get manifest`, in place of its Secret; - for standard input.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Helm release of the chart, if the annotations of the Package do not name it.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_release)]
    release: Option<ReleaseName>,
    /// Time to wait until the Package is Ready: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = quantity::parse_time)]
    timeout: Duration,
    /// Print the plan as data.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Form>,
    #[command(flatten)]
    connect: Connect,
}

/// The Package in the cluster, with the chart's version.
struct Target {
    client: kube::Client,
    resource: Resource,
    name: String,
    chart: Value,
    /// The source of the chart's version, for people.
    source: String,
    release: ReleaseName,
    reset: Reset,
}

/// The result of an attempt to write.
enum Attempt {
    Written,
    /// The Package has changed since it was read.
    Conflict,
}

impl Recover {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let progress = Progress::start();
        match interruption::until_interrupted(self.recover(&progress)).await? {
            Ended::Done(ended) if self.yes => ended,
            Ended::Done(ended) => ended.map_err(Failure::never_negative),
            Ended::Interrupted => {
                progress
                    .warn("interrupted: each write leaves the Package in order; run the same command again to finish");
                Ok(interruption::exit_code())
            }
        }
    }

    async fn recover(&self, progress: &Progress) -> Result<ExitCode, Failure> {
        let (target, package) = self.read_target().await?;
        let plan = target.plan(&package)?;
        let applier = match &plan.kustomization {
            Some((namespace, name)) => Some(Applier::read(&target.client, (namespace, name)).await?),
            None => None,
        };
        match self.output {
            Some(form) => print_data(Ok(describe_plan(&target, &plan, applier.as_ref())), form)?,
            None => print_plan(&target, &plan, applier.as_ref()),
        }
        for name in &plan.unknown_managers {
            output::print_note(visible_line(&format!(
                "{name} owns no field of the Package; these do: {}",
                plan.managers.join(", ")
            )));
        }
        if !self.yes {
            return Ok(self.conclude_plan(&package, &plan, applier.as_ref()));
        }
        if plan.is_needed() {
            target.check_rights().await?;
            self.stop_applier(&target, applier.as_ref(), progress).await?;
            target.write(package, &plan).await?;
            let changed = plan.fields.iter().filter(|field| field.effect != Effect::Kept);
            progress.succeed(format!(
                "{}: {} recovered",
                target.subject(),
                count_of(changed.count(), "field")
            ));
        }
        self.wait_until_ready(&target, progress).await?;
        target.check_owners().await?;
        if let Some(applier) = applier.filter(|applier| applier.state != State::Missing) {
            output::print_note(visible_line(&format!(
                "remove these fields from its repository; after its source has fetched that commit, run: tenure resume {}",
                applier.write_arguments()
            )));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the Package, and the chart's version of it.
    async fn read_target(&self) -> Result<(Target, Value), Failure> {
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        let resource = resources::find_resource(&served, "packages.cozystack.io")?.clone();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
        let package = match api.get(&self.package).await {
            Ok(object) => serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))?,
            Err(error) => return Err(resources::explain_read(&client, &resource, (None, &self.package), error).await),
        };
        let release = match &self.release {
            Some(release) => release.clone(),
            None => recovery::find_release(&package).map_err(|problem| {
                let failure = Failure::negative(format!("Package/{}: {problem}", self.package));
                match self.package.as_str() {
                    BOOTSTRAP => {
                        failure.hint("no chart renders this Package: all of its fields are an administrator's")
                    }
                    _ => failure.hint("if a chart renders it, name the Helm release: --release NAMESPACE/NAME"),
                }
            })?,
        };
        let (manifest, source) = match &self.from {
            Some(path) => (
                read_file(path)?,
                format!("{} in place of release {release}", path.display()),
            ),
            None => {
                let found = release::read_release(&client, &release).await?;
                (
                    found.manifest,
                    format!("release {release}, revision {}", found.revision),
                )
            }
        };
        let chart = recovery::find_rendered(&manifest, &package, &release).map_err(|problem| {
            Failure::negative(format!("Package/{}, {source}: {problem}", self.package))
                .hint("--release NAMESPACE/NAME names another release, and --from FILE another manifest")
        })?;
        let target = Target {
            client,
            resource,
            name: self.package.clone(),
            chart,
            source,
            release,
            reset: match self.all {
                true => Reset::All,
                false => Reset::Managers(self.managers.iter().cloned().collect()),
            },
        };
        Ok((target, package))
    }

    /// Reports the plan's conclusion. Nothing was written.
    fn conclude_plan(&self, package: &Value, plan: &Recovery, applier: Option<&Applier>) -> ExitCode {
        if !plan.is_needed() {
            let ready = ObjectView::new(package).find_condition("Ready").unwrap_or_default();
            output::print_note(visible_line(&format!(
                "nothing is to be recovered; Ready is {} {}: {}",
                match ready.status {
                    "" => "Unknown",
                    status => status,
                },
                ready.reason,
                ready.message
            )));
            return ExitCode::SUCCESS;
        }
        let suspend = match applier.map(|applier| applier.state) {
            Some(State::Active | State::Unknown) if !self.suspend => " --suspend",
            _ => "",
        };
        output::print_note(format!(
            "nothing was written; the same command with --yes{suspend} does it"
        ));
        ExitCode::from(1)
    }

    /// Makes sure that the Kustomization doesn't apply the fields again.
    async fn stop_applier(
        &self,
        target: &Target,
        applier: Option<&Applier>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let Some(applier) = applier else { return Ok(()) };
        match applier.state {
            State::Suspended | State::Missing => Ok(()),
            State::Unknown => Err(Failure::environment(format!(
                "you may not get {}, which applies fields of the Package",
                applier.subject()
            ))
            .hint(format!(
                "ask its owner to run: tenure suspend {}; and ask for the verb get on it",
                applier.write_arguments()
            ))),
            State::Active if !self.suspend => {
                Err(
                    Failure::negative(format!("{} would apply the fields again", applier.subject())).hint(format!(
                        "suspend it with --suspend, or: tenure suspend {}",
                        applier.write_arguments()
                    )),
                )
            }
            State::Active => {
                applier.check_right(&target.client).await?;
                applier.suspend(&target.client).await?;
                progress.succeed(format!("{} suspended", applier.subject()));
                Ok(())
            }
        }
    }

    async fn wait_until_ready(&self, target: &Target, progress: &Progress) -> Result<(), Failure> {
        let subject = target.subject();
        let waiting = progress.wait(format!("{subject} to be ready"));
        let api: Api<DynamicObject> = Api::all_with(target.client.clone(), &target.resource.api());
        let outcome = readiness::watch_outcome(&api, (&target.name, &subject), &waiting, |object| {
            let generation = object.metadata.generation;
            match ObjectView::new(&object.data).find_number("/status/observedGeneration") {
                Some(_) => readiness::read_outcome_of_spec(&object.data, generation),
                // An operator that reports no generation.
                None => readiness::read_outcome(&object.data, generation, true),
            }
        });
        let outcome = tokio::time::timeout(self.timeout, outcome).await;
        let step = waiting.step();
        drop(waiting);
        let hint = format!(
            "tenure events --for {}/{} shows why",
            target.resource.full_name(),
            target.name
        );
        let Ok(outcome) = outcome else {
            let last = match step.as_str() {
                "" => String::new(),
                step => format!("; the last step: {step}"),
            };
            let message = format!("{subject} was not Ready in {} s{last}", self.timeout.as_secs());
            return Err(Failure::negative(message).hint(hint));
        };
        let outcome = outcome?;
        if !outcome.is_ready {
            let message = format!("{subject}: {}: {}", outcome.reason, outcome.message);
            return Err(Failure::negative(message).hint(hint));
        }
        progress.succeed(format!("{subject}: {}", outcome.describe("Package")));
        Ok(())
    }
}

impl Target {
    fn subject(&self) -> String {
        format!("Package/{}", self.name)
    }

    fn path(&self) -> String {
        resources::write_collection_path(&self.resource, &self.name)
    }

    fn plan(&self, package: &Value) -> Result<Recovery, Failure> {
        recovery::plan(package, &self.chart, &self.reset)
            .map_err(|error| Failure::negative(format!("{}: {error}", self.subject())))
    }

    async fn read(&self) -> Result<Value, Failure> {
        resources::find_at(&self.client, &self.path(), "application/json")
            .await?
            .ok_or_else(|| Failure::negative(format!("{} was deleted meanwhile", self.subject())))
    }

    /// Checks the user's rights before the first write. Without admission, no other component checks the right to take fields.
    async fn check_rights(&self) -> Result<(), Failure> {
        let is_allowed = async |verb: &str| {
            let question = Question::about_package(verb, &self.name);
            caller::has_right(&self.client, &question).await
        };
        let refuse = |verb: &str| {
            Failure::environment(format!("you may not {verb} packages.cozystack.io/{}", self.name)).hint(format!(
                "ask an administrator for the verbs patch and {OVERRIDE} on packages.cozystack.io/{}, or to run this command; nothing was written",
                self.name
            ))
        };
        if !is_allowed("patch").await? {
            return Err(refuse("patch"));
        }
        if self.name == BOOTSTRAP || is_allowed(OVERRIDE).await? || is_allowed(RENDER).await? {
            return Ok(());
        }
        Err(refuse(OVERRIDE))
    }

    /// Executes the plan. If another writer changes the Package meanwhile, plans again, and goes on as long as the plan has no change that was not shown.
    async fn write(&self, mut package: Value, shown: &Recovery) -> Result<(), Failure> {
        let mut plan = shown.clone();
        for _ in 0..ATTEMPTS {
            if let Attempt::Written = self.attempt(&package, &plan).await? {
                return Ok(());
            }
            package = self.read().await?;
            plan = self.plan(&package)?;
            if !plan.is_needed() {
                return Ok(());
            }
            if !plan.is_within(shown) {
                return Err(Failure::negative(format!("{} has changed meanwhile", self.subject()))
                    .hint("look at the plan again: run the command without --yes"));
            }
        }
        Err(
            Failure::negative(format!("{} changes all the time", self.subject())).hint(format!(
                "tenure who packages.cozystack.io/{} shows its writers",
                self.name
            )),
        )
    }

    /// Makes the writes of a plan for this version of the Package. The API server checks the second write before the first one is made.
    async fn attempt(&self, package: &Value, plan: &Recovery) -> Result<Attempt, Failure> {
        let manager = resources::encode_segment(&plan.manager);
        let path = format!("{}?fieldManager={manager}&force=true", self.path());
        let mut package = package.clone();
        if let Some(transfer) = &plan.transfer {
            let checked = apply_object(&self.client, &format!("{path}&dryRun=All"), &plan.write_apply(&package)).await;
            if self.accept(checked, false)?.is_none() {
                return Ok(Attempt::Conflict);
            }
            let patched = format!("{}?fieldManager={FIELD_MANAGER}", self.path());
            let Some(answer) = self.accept(patch_object(&self.client, &patched, transfer).await, true)? else {
                return Ok(Attempt::Conflict);
            };
            package = answer.object;
        }
        let applied = apply_object(&self.client, &path, &plan.write_apply(&package)).await;
        Ok(match self.accept(applied, true)? {
            Some(_) => Attempt::Written,
            None => Attempt::Conflict,
        })
    }

    /// Returns the answer to a write, or `None` for a conflict.
    fn accept(&self, answer: Result<Answer, String>, prints_warnings: bool) -> Result<Option<Answer>, Failure> {
        let answer = answer.map_err(Failure::environment)?;
        if answer.code == 409 {
            return Ok(None);
        }
        if !answer.is_done() {
            return Err(Failure::environment(format!("{}: {}", self.subject(), answer.message)));
        }
        for warning in answer.warnings.iter().filter(|_| prints_warnings) {
            output::print_note(visible_line(&format!("warning: {warning}")));
        }
        Ok(Some(answer))
    }

    /// Checks that no one took the chart's fields again.
    async fn check_owners(&self) -> Result<(), Failure> {
        let plan = self.plan(&self.read().await?)?;
        let is_taken = |field: &&RecoveredField| matches!(field.effect, Effect::Restored | Effect::Returned);
        match plan.fields.iter().find(is_taken) {
            None => Ok(()),
            Some(field) => Err(Failure::negative(format!(
                "{}: {} took {} again",
                self.subject(),
                field.owners.join(", "),
                field.path
            ))
            .hint("end or correct this writer first, then run the command again")),
        }
    }
}

fn parse_release(text: &str) -> Result<ReleaseName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ReleaseName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("write NAMESPACE/NAME, such as cozy-system/platform".to_owned()),
    }
}

/// Reads a manifest from a file or from standard input, within the bound for manifests.
fn read_file(path: &Path) -> Result<String, Failure> {
    let limit = u64::try_from(LONGEST_MANIFEST).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().lock().take(limit).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text)),
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
}

fn print_plan(target: &Target, plan: &Recovery, applier: Option<&Applier>) {
    let line = format!("{}: the chart's version is of {}", target.subject(), target.source);
    output::print_line(visible_line(&line));
    if let Some(applier) = applier {
        let line = format!("{}: {}", applier.subject(), applier.describe_state());
        output::print_line(visible_line(&line));
    }
    let kept = plan.fields.iter().filter(|field| field.effect == Effect::Kept);
    let left_out = kept.count().saturating_sub(MOST_KEPT);
    let mut shown_kept = 0_usize;
    let mut rows = Vec::new();
    for field in &plan.fields {
        if field.effect == Effect::Kept {
            shown_kept = shown_kept.saturating_add(1);
            if shown_kept > MOST_KEPT {
                continue;
            }
        }
        let (now, after) = (write_value(field.before.as_ref()), write_value(field.after.as_ref()));
        let owners = field.owners.join(", ");
        let cells = [field.effect.as_str(), &field.path.to_string(), &now, &after, &owners];
        rows.push(
            cells
                .iter()
                .map(|cell| visible_line(cell).into_owned())
                .collect::<Vec<String>>(),
        );
    }
    if rows.is_empty() {
        return;
    }
    let headers = ["EFFECT", "FIELD", "NOW", "AFTER", "OWNER NOW"].map(str::to_owned);
    output::print_line(output::table(&headers, rows));
    if left_out > 0 {
        output::print_note(format!(
            "left out: {} that stay (-o json shows them)",
            count_of(left_out, "field")
        ));
    }
    if shown_kept > 0 {
        output::print_note(
            "kept fields are not the chart's; --manager NAME removes those of one owner, and --all removes all of spec",
        );
    }
}

/// Returns a value in one short line.
fn write_value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= LONGEST_VALUE {
        return text;
    }
    let shown: String = text.chars().take(LONGEST_VALUE).collect();
    format!("{shown}…")
}

/// Returns the plan as data.
fn describe_plan(target: &Target, plan: &Recovery, applier: Option<&Applier>) -> Value {
    let fields = plan.fields.iter().map(|field| {
        json!({
            "effect": field.effect.as_str(), "path": field.path.to_string(), "before": field.before, "after": field.after, "owners": field.owners
        })
    });
    let kustomization = applier.map(|applier| {
        json!({ "namespace": applier.namespace, "name": applier.name, "suspended": applier.state == State::Suspended })
    });
    json!({
        "package": target.name,
        "release": { "namespace": target.release.namespace, "name": target.release.name },
        "source": target.source,
        "manager": plan.manager,
        "kustomization": kustomization,
        "needed": plan.is_needed(),
        "fields": fields.collect::<Vec<Value>>(),
    })
}
