//! `tenure check`: reports whether the cluster would accept the rendered objects of a folder after a commit. The module chooses the identity and prints the result;
//! `tenure_inspection::check` interprets the answers. All writes to a real cluster are dry runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueEnum};
use kube::api::Api;
use serde_json::json;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::count_of;
use tenure_api::{Surface, Tenant};
use tenure_cluster::ServiceAccount;
use tenure_controllers::RenderLimits;
use tenure_inspection::check::{
    Finding, Level, find_target_namespace, is_refused, limit_findings, list_rendering_problems, write_sarif,
};
use tenure_tenancy::{Placement, TenantFacts, identity};

mod dry_run;
pub(crate) mod prerequisites;
mod render;
mod scratch_control_plane;

use crate::client::open_client;
use crate::commands::build::{find_existing, root_of};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::{acting_account, output, provenance, quantity};
use render::{Folder, Unrendered};

/// Check whether a cluster would accept the objects of a folder, as the ServiceAccount that would apply them.
///
/// The command sends every object as a dry run with that account's rights. So the API server itself checks RBAC, admission, other field managers, quotas and
/// schemas, and stores nothing. With --platform, no cluster is needed: the command applies the platform repository to a temporary control plane.
///
/// With --pre, the command checks whether `tenure install` would work in the cluster, with your rights. Each line begins with ✔, ⚠ or ✗, and says what to do.
///
/// Exit codes: 0 nothing found, 1 something found, more than 1 the command can't tell. With --pre: 0 an installation works, 1 it doesn't (✗), more than 1 the command
/// can't tell.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whom").required(true).args(["surface", "tenant", "pre"]))]
pub(crate) struct Check {
    /// Folder that would be applied, with or without a kustomization.
    #[arg(value_name = "DIR", required_unless_present = "pre", conflicts_with = "pre")]
    folder: Option<PathBuf>,
    /// Check whether an installation of Tenure would work in the cluster. Nothing is written.
    #[arg(long, conflicts_with_all = ["target_namespace", "namespace", "platform"])]
    pre: bool,
    /// Check as the account of this Surface, with the target namespace that the Surface has for the folder.
    ///
    /// Without NAMESPACE/, the Surface is in the namespace of -n, else in the context's. With --platform, it is in tenure-system.
    #[arg(long, value_name = "[NAMESPACE/]SURFACE")]
    surface: Option<String>,
    /// Check as the account of this tenant's surfaces. Objects without a namespace go to the tenant's home namespace.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Namespace to set on every namespaced object, as `targetNamespace` does.
    #[arg(long, value_name = "NAME")]
    target_namespace: Option<String>,
    /// Namespace of the Surface [default: the context's namespace, else `default`].
    #[arg(short, long, value_name = "NAME", conflicts_with = "tenant")]
    namespace: Option<String>,
    /// Folder of the platform repository to use instead of a cluster.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "impersonated_user", "impersonated_groups"])]
    platform: Option<PathBuf>,
    /// Format of the findings.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Text)]
    output: Form,
    /// Maximum number of bytes that the rendering makes in all; 0 for no limit.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// Maximum number of steps that the rendering takes, of some five nanoseconds each; 0 for no limit.
    #[arg(long, value_name = "STEPS", default_value_t = RenderLimits::default().steps)]
    rendering_steps: u64,
    #[command(flatten)]
    connect: Connect,
}

/// Formats of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each finding.
    Text,
    /// The findings as JSON.
    Json,
    /// SARIF 2.1.0, which code hosts show beside the lines.
    Sarif,
}

/// The account that would apply the folder, and the namespaces that its Kustomization would set.
struct ApplyingAccount {
    account: ServiceAccount,
    placement: Placement,
    /// The namespace that replaces the namespace of all namespaced objects.
    target_namespace: Option<String>,
    /// The namespace of objects without one.
    default_namespace: Option<String>,
}

/// The result of the check.
struct Outcome {
    account: String,
    objects: usize,
    findings: Vec<Finding>,
    /// Objects without an answer.
    unanswered: Vec<String>,
}

impl Check {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.check_files().await.map_err(Failure::never_negative)
    }

    async fn check_files(&self) -> Result<ExitCode, Failure> {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.pre) else {
            return prerequisites::check(&self.connect, self.output).await;
        };
        let folder = find_existing(folder)?;
        let root = root_of(&folder);
        let inside = folder.strip_prefix(&root).unwrap_or(Path::new(""));
        let inside = inside.to_string_lossy().into_owned();
        let outcome = match &self.platform {
            None => {
                let config = self.connect.read_config_of_cluster().await?;
                let client = open_client(config.clone())?;
                let whom = self.find_applying_account(&client, &inside).await?;
                let config = acting_account::become_account(config, &client, &whom.account).await?;
                self.ask(&root, &inside, &whom, dry_run::DryRunClients::dry(config, client))
                    .await?
            }
            Some(repository) => {
                let plane = scratch_control_plane::ScratchControlPlane::build(repository).await?;
                let outcome = self.look_in(&plane, &root, &inside).await;
                plane.remove().await;
                outcome?
            }
        };
        self.show(outcome, &inside, &folder)
    }

    /// Checks the folder in a temporary control plane. Accepted objects are written there, so quotas count them for later objects.
    async fn look_in(
        &self,
        plane: &scratch_control_plane::ScratchControlPlane,
        root: &Path,
        inside: &str,
    ) -> Result<Outcome, Failure> {
        let whom = self.find_applying_account(plane.client(), inside).await?;
        let config = acting_account::by_token(plane.config(), plane.client(), &whom.account).await?;
        let clients = dry_run::DryRunClients::wet(config, plane.client().clone());
        self.ask(root, inside, &whom, clients).await
    }

    async fn ask(
        &self,
        root: &Path,
        inside: &str,
        whom: &ApplyingAccount,
        clients: dry_run::DryRunClients,
    ) -> Result<Outcome, Failure> {
        let folder = Folder {
            root,
            inside,
            target_namespace: whom.target_namespace.as_deref(),
        };
        let mut outcome = Outcome {
            account: whom.account.to_string(),
            objects: 0,
            findings: Vec::new(),
            unanswered: Vec::new(),
        };
        match render::build_folder(&folder, self.budget()) {
            Ok(objects) => {
                outcome.objects = objects.len();
                let (findings, unanswered) = dry_run::check_objects(&objects, whom, &clients).await?;
                outcome.findings = findings;
                outcome.unanswered = unanswered;
            }
            Err(Unrendered::Unreadable(failure)) => return Err(failure),
            Err(Unrendered::Refused(error)) => outcome.findings = list_rendering_problems(&error),
        }
        limit_findings(&mut outcome.findings);
        Ok(outcome)
    }

    fn budget(&self) -> kustomize::Budget {
        let or_none = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        kustomize::Budget {
            bytes: or_none(self.rendering_bytes),
            steps: or_none(self.rendering_steps),
        }
    }

    async fn find_applying_account(&self, client: &kube::Client, inside: &str) -> Result<ApplyingAccount, Failure> {
        let nobody = |denial: tenure_tenancy::Denial| Failure::environment(format!("it has no identity: {denial}"));
        if let Some(name) = &self.tenant {
            let tenants: Api<Tenant> = Api::all(client.clone());
            let tenant = TenantFacts::from(&tenants.get(name).await?);
            let home = tenant.home().to_owned();
            let placement = read_placement(client, &home).await?;
            match &placement {
                Placement::Tenant(found) if found.tenant.as_str() == name => {}
                _ => {
                    return Err(Failure::environment(format!(
                        "namespace {home} is not recorded as Tenant {name}'s, whose home it would be"
                    ))
                    .hint(format!("kubectl get tenant {name} -o yaml says why in its conditions")));
                }
            }
            let account = identity::decide_for_surface(&placement, &home, None).map_err(nobody)?;
            return Ok(ApplyingAccount {
                account,
                placement,
                target_namespace: self.target_namespace.clone(),
                default_namespace: Some(home),
            });
        }
        let named = self.surface.as_deref().unwrap_or_default();
        let default = match (&self.namespace, &self.platform) {
            (Some(namespace), _) => namespace.as_str(),
            (None, Some(_)) => PLATFORM_NAMESPACE,
            (None, None) => client.default_namespace(),
        };
        let (namespace, name) = named.split_once('/').unwrap_or((default, named));
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err(
                Failure::usage(format!("--surface {named}: this is not the name of a Surface"))
                    .hint("--surface NAME with -n NAMESPACE, or --surface NAMESPACE/NAME"),
            );
        }
        let surfaces: Api<Surface> = Api::namespaced(client.clone(), namespace);
        let surface = surfaces.get(name).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => {
                Failure::negative(format!("there is no Surface {name} in namespace {namespace}"))
                    .hint("-n NAMESPACE, or --surface NAMESPACE/NAME, names another namespace")
            }
            _ => Failure::from(error),
        })?;
        let placement = read_placement(client, namespace).await?;
        let account = surface.spec.service_account_name.as_deref();
        let account = identity::decide_for_surface(&placement, namespace, account).map_err(nobody)?;
        let target = self.target_namespace.clone();
        Ok(ApplyingAccount {
            account,
            placement,
            target_namespace: target.or_else(|| find_target_namespace(&surface, inside)),
            default_namespace: None,
        })
    }

    fn show(&self, outcome: Outcome, inside: &str, folder: &Path) -> Result<ExitCode, Failure> {
        let findings = &outcome.findings;
        match self.output {
            Form::Text => findings.iter().for_each(|finding| {
                output::print_line(match finding.level {
                    Level::Error => output::bad(&finding.to_string()),
                    Level::Warning => output::bold(&finding.to_string()),
                    Level::Note => output::faint(&finding.to_string()),
                });
            }),
            Form::Json => {
                let report = json!({"account": outcome.account, "objects": outcome.objects, "findings": findings});
                output::print_json(&report)?;
            }
            Form::Sarif => {
                let log = write_sarif(findings, &render::name_file(inside, folder), env!("CARGO_PKG_VERSION"));
                output::print_json(&log)?;
            }
        }
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        output::print_note(format!(
            "{} checked as {}: {}, {}, {}",
            count_of(outcome.objects, "object"),
            outcome.account,
            count_of(count(Level::Error), "error"),
            count_of(count(Level::Warning), "warning"),
            count_of(count(Level::Note), "note"),
        ));
        match outcome.unanswered.as_slice() {
            [] => Ok(ExitCode::from(u8::from(is_refused(findings)))),
            [first, more @ ..] => Err(Failure::environment(format!(
                "there was no answer about {}: {first}",
                count_of(more.len() + 1, "object")
            ))
            .hint("so they are not checked: look at the API server, or at the webhook that it asked, and check again")),
        }
    }
}

/// Returns the placement of a namespace.
async fn read_placement(client: &kube::Client, namespace: &str) -> Result<Placement, Failure> {
    provenance::read_placement(client, namespace)
        .await
        .map_err(|why| provenance::refuse_placement(namespace, &why))
}
