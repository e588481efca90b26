//! `tenure diff`: the effect of a folder's files on a Kustomization, or on those of a Surface, before a commit. The plan is the planner's own, made as the
//! ServiceAccount of the Kustomization, and nothing is written. The command never plans with another identity.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use futures::FutureExt as _;
use kube::api::Api;
use serde_json::Value;
use similar::TextDiff;
use tenure_api::surface::SurfaceSource;
use tenure_api::text::{visible, visible_line};
use tenure_api::{Kustomization, Surface};
use tenure_cluster::{Connection, ServiceAccount};
use tenure_controllers::{Preview, PreviewError, PreviewResult};
use tenure_inspection::field_origin::locate_field;
use tenure_planner::kustomization::{Difference, DifferenceKind};
use tenure_planner::surface::name_kustomizations as list_kustomizations;
use tenure_tenancy::identity;

use super::build::{disk, find_existing, root_of};
use crate::acting_account;
use crate::connect::{Connect, Scope};
use crate::failure::{Failure, write_chain};
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::{output, provenance, resources, targets};

/// The number of lines around a difference.
const CONTEXT: usize = 3;

/// Show the objects that a Kustomization or a Surface would create, change and prune if you committed the files of a folder.
///
/// The command writes nothing. It acts with the rights of the ServiceAccount that the Kustomization acts as. For that, you need the right to impersonate the
/// account or to request a token for it. Values of Secrets are not shown.
///
/// Exit codes: 0 nothing differs, 1 something differs, more than 1 the command can't tell.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Kustomization or Surface, as KIND NAME or KIND/NAME, such as ks/web.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: Vec<String>,
    /// Folder that replaces the Kustomization's path, or a working copy of a Surface's source.
    ///
    /// Files outside of the folder are read from the Git repository of the folder.
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    /// Source of the Surface that the folder is a working copy of, if the Surface has several. Not for a Kustomization.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Print the differences as data, for programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Form>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// Output formats for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A list of the differences, as JSON.
    Json,
}

impl Diff {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let progress = Progress::start();
        match interruption::until_interrupted(self.show_differences(&progress)).await? {
            Ended::Done(ended) => ended.map_err(Failure::never_negative),
            Ended::Interrupted => {
                progress.warn("interrupted: every request was a read or a dry run, so nothing was written");
                Ok(interruption::exit_code())
            }
        }
    }

    async fn show_differences(&self, progress: &Progress) -> Result<ExitCode, Failure> {
        let (kind, name) = targets::Targets::read_one(&self.object)?;
        let folder = find_existing(&self.path)?;
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        let resource = resources::find_resource(&served, &kind)?;
        let namespace = self
            .scope
            .namespace(&client)
            .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?;
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("kustomize.toolkit.fluxcd.io", "Kustomization") if self.source.is_none() => {
                let previewed = self
                    .look_at(&client, (&namespace, &name), progress, |_| Ok(folder.clone()))
                    .await?;
                self.show(&[previewed])
            }
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Err(Failure::usage(
                "--source selects the source of a Surface, and a Kustomization has only one",
            )),
            ("tenure.dev", "Surface") => {
                let surfaces: Api<Surface> = Api::namespaced(client.clone(), &namespace);
                let surface = surfaces.get(&name).await?;
                let mut previewed = Vec::new();
                for child in list_kustomizations(&name, self.find_source(&surface)?) {
                    let within = |path: &str| find_existing(&folder.join(path.trim_start_matches('/')));
                    previewed.push(self.look_at(&client, (&namespace, &child), progress, within).await?);
                }
                self.show(&previewed)
            }
            _ => Err(
                Failure::usage(format!("{} are not rendered from a folder", resource.full_name())).hint(format!(
                    "name a Kustomization or a Surface: tenure get ks,surfaces -n {namespace}"
                )),
            ),
        }
    }

    /// Returns the source of a Surface whose working copy the folder is.
    fn find_source<'s>(&self, surface: &'s Surface) -> Result<&'s SurfaceSource, Failure> {
        let sources = &surface.spec.sources;
        let named = |name: &String| sources.iter().find(|source| source.name == *name);
        let found = match (&self.source, sources.as_slice()) {
            (Some(name), _) => named(name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
            Failure::usage("--source is missing, or the Surface has no source of that name")
                .hint(format!("--source NAME, one of {}", names.join(", ")))
        })
    }

    /// Plans one Kustomization with the folder in place of its path.
    async fn look_at(
        &self,
        client: &kube::Client,
        (namespace, name): (&str, &str),
        progress: &Progress,
        find_folder: impl Fn(&str) -> Result<PathBuf, Failure>,
    ) -> Result<PreviewResult, Failure> {
        let kustomizations: Api<Kustomization> = Api::namespaced(client.clone(), namespace);
        let mut kustomization = kustomizations.get(name).await?;
        let folder = find_folder(kustomization.spec.path.as_deref().unwrap_or_default())?;
        if kustomization.spec.kube_config.is_some() {
            return Err(Failure::usage(format!(
                "Kustomization {namespace}/{name} applies to another cluster (spec.kubeConfig), which diff does not reach yet"
            )));
        }
        let placement = provenance::read_placement(client, namespace)
            .await
            .map_err(|why| provenance::refuse_placement(namespace, &why))?;
        let named = kustomization.spec.service_account_name.as_deref();
        let account = identity::decide_for_kustomization(&placement, namespace, named)
            .map_err(|denial| Failure::environment(format!("it has no identity: {denial}")))?;
        let config = self.connect.read_config_of_cluster().await?;
        let connection = connect(
            acting_account::become_account(config, client, &account).await?,
            &account,
        )?;
        let root = root_of(&folder);
        let inside = folder
            .strip_prefix(&root)
            .unwrap_or(&folder)
            .to_string_lossy()
            .into_owned();
        kustomization.spec.path = Some(if inside.is_empty() { "./".to_owned() } else { inside });
        let files = disk::Disk::new(root);
        let find_other = |namespace: String, name: String| {
            let client = client.clone();
            async move {
                let placement = provenance::read_placement(&client, &namespace).await.ok()?;
                let others: Api<Kustomization> = Api::namespaced(client, &namespace);
                Some((others.get_opt(&name).await.ok()??, placement))
            }
            .boxed()
        };
        let subject = format!("Kustomization/{namespace}/{name}");
        progress.print_action(format!("planning {subject} as {account}"));
        let preview = Preview {
            kustomization,
            placement,
            account,
            files: &files,
            find_other: &find_other,
        };
        let _waiting = progress.wait(format!("the plan of {subject}"));
        let mut previewed = preview
            .compute_preview(connection)
            .await
            .map_err(|error| explain_error(&error, &files))?;
        for difference in &mut previewed.differences {
            let built = difference.object.as_ref().and_then(|id| previewed.rendered.find(id));
            if let Some(built) = built {
                difference.locate_fields(|path| locate_field(built, path));
            }
        }
        Ok(previewed)
    }

    fn show(&self, previewed: &[PreviewResult]) -> Result<ExitCode, Failure> {
        for file in previewed.iter().flat_map(|previewed| &previewed.changed_files) {
            output::print_note(format!(
                "# Warning: {} was changed after it had been encrypted",
                visible_line(file)
            ));
        }
        let differences: Vec<&Difference> = previewed.iter().flat_map(|previewed| &previewed.differences).collect();
        if self.output == Some(Form::Json) {
            output::print_json(&differences)?;
        } else {
            differences.iter().copied().for_each(print_difference);
        }
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }
}

fn connect(config: kube::Config, account: &ServiceAccount) -> Result<Connection, Failure> {
    Connection::of_account(config, account.clone())
        .map_err(|error| Failure::usage(format!("the cluster can't be reached: {}", write_chain(&error))))
}

fn explain_error(error: &PreviewError, files: &disk::Disk) -> Failure {
    match (error, files.trouble()) {
        (PreviewError::Refused { .. }, Some(trouble)) => Failure::environment(format!("{error} ({trouble})")),
        (PreviewError::Refused { .. } | PreviewError::AnotherIdentity(_), _) => Failure::environment(error.to_string())
            .hint("the Kustomization itself would say this in its status, with these files"),
        (PreviewError::WouldWrite | PreviewError::NoEnd, _) => Failure::internal(error.to_string()),
    }
}

fn print_difference(difference: &Difference) {
    let words = visible(&difference.words).into_owned();
    let (sign, first) = match difference.change {
        DifferenceKind::Created => ("+", output::good(&words)),
        DifferenceKind::Pruned => ("-", output::bad(&words)),
        DifferenceKind::Recreated => ("±", output::bad(&words)),
        DifferenceKind::Changed | DifferenceKind::TakenOver => ("~", output::bold(&words)),
        DifferenceKind::Unseen => ("?", output::bold(&words)),
    };
    output::print_line(format!("{sign} {first}"));
    print_comparison(difference.before.as_ref(), difference.after.as_ref());
}

/// Prints the differing lines of two objects as YAML, with some context.
pub(crate) fn print_comparison(before: Option<&Value>, after: Option<&Value>) {
    for line in compare_objects(before, after) {
        let shown = match line.chars().next() {
            Some('+') => output::good(&line),
            Some('-') => output::bad(&line),
            Some('@') => output::faint(&line),
            _ => line,
        };
        output::print_line(shown);
    }
}

/// Returns the differing lines of two objects as YAML, with some context.
fn compare_objects(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let text = |object: Option<&Value>| object.map(kustomize::to_yaml).unwrap_or_default();
    let (before, after) = (text(before), text(after));
    let difference = TextDiff::from_lines(before.as_str(), after.as_str());
    let lines = difference.unified_diff().context_radius(CONTEXT).to_string();
    lines.lines().map(|line| visible_line(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_objects_are_compared_line_by_line() {
        let object = |replicas: u32| json!({"kind": "Deployment", "spec": {"replicas": replicas}});
        let lines = compare_objects(Some(&object(1)), Some(&object(2)));
        let expected = [
            "@@ -1,3 +1,3 @@",
            " kind: Deployment",
            " spec:",
            "-  replicas: 1",
            "+  replicas: 2",
        ];
        assert_eq!(lines, expected);
        assert!(compare_objects(Some(&object(1)), Some(&object(1))).is_empty());
        assert!(
            compare_objects(None, Some(&object(1)))
                .iter()
                .skip(1)
                .all(|line| line.starts_with('+'))
        );
    }
}
