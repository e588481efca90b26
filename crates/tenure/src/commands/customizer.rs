//! `tenure customizer`: administrators tune the platform's components from a repository. The module orders the installation and the removal; `tenure_api::customizer`
//! defines the objects and the rights of the account. Rights are removed only after nothing acts with them. Objects that merely have the name of a customizer's object
//! are neither changed nor deleted.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::customizer::{self, Customizer, NAME, OWNED_LABEL, OWNED_NAMESPACE, Profile};
use tenure_api::metadata::{PLATFORM_NAMESPACE, REQUESTED_AT, SURFACE_LABEL};
use tenure_cluster::Installation;
use tenure_tenancy::identity;

use crate::connect::Connect;
use crate::failure::Failure;
use crate::object_path::write_object_path;
use crate::{installation, output, resources};

/// The field manager of the suspension. It differs from the installer's, so a new installation keeps the suspension.
const SWITCH: &str = "tenure-customizer";
/// The timeout for the removal of the Surface's generated objects.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of the checks.
const PAUSE: Duration = Duration::from_millis(250);

/// Tune the platform's components from a repository: install, disable, enable and uninstall the customizer.
#[derive(Debug, Args)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Subcommand)]
enum What {
    Install(Install),
    /// Stop applying the repository. Applied objects stay.
    Disable,
    /// Apply the repository again.
    Enable,
    /// Remove the customizer. Applied objects and its namespaces stay.
    Uninstall,
}

/// Install the customizer, or change it.
#[derive(Debug, Args)]
struct Install {
    /// Address of the repository.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Folder of the repository to apply, such as ./clusters/production.
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Branch of the repository.
    #[arg(long, value_name = "NAME", default_value = "main")]
    branch: String,
    /// Time between two fetches of the repository.
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    interval: String,
    /// Secret in tenure-system with the credentials for the repository.
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// Rights of the customizer's account.
    ///
    /// `admin` writes Packages, PackageSources and sources in all namespaces. `restricted` reads Packages and writes PackageValues.
    #[arg(long, value_enum, default_value_t = Rights::Restricted)]
    profile: Rights,
    /// Namespace in which the account may write: objects of applications with the profile `restricted`, everything with `admin`. Can be repeated.
    #[arg(long = "own", value_name = "NAMESPACE", default_values_t = [OWNED_NAMESPACE.to_owned()])]
    owned: Vec<String>,
    /// Print the objects as YAML and write nothing.
    #[arg(long)]
    export: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rights {
    /// Every writer of the repository is in effect an administrator.
    Admin,
    /// The account reads Packages and writes PackageValues.
    Restricted,
}

impl Command {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        match &self.what {
            What::Install(install) => install.run(&self.connect).await?,
            What::Disable => switch_customizer(&self.connect, true).await?,
            What::Enable => switch_customizer(&self.connect, false).await?,
            What::Uninstall => uninstall(&self.connect).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Install {
    async fn run(&self, connect: &Connect) -> Result<(), Failure> {
        let objects = self.list_objects()?;
        if self.export {
            for object in &objects {
                output::print_line("---");
                output::print_written(|out| std::io::Write::write_all(out, kustomize::to_yaml(object).as_bytes()));
            }
            return Ok(());
        }
        let client = connect.client().await?;
        let installation = Installation::new(client.clone(), identity::use_for_installation());
        for object in &objects {
            prepare_write(&client, &installation, object).await?;
        }
        let print_applied = |name| output::print_line(format!("applied {name}"));
        installation::apply_in_order(&installation, &objects, print_applied).await?;
        for namespace in list_owned(&client).await? {
            if !self.owned.contains(&namespace) {
                let binding = customizer::make_rights_in(&namespace, Profile::Restricted);
                delete_own(&client, &installation, &binding).await?;
            }
        }
        output::print_note(format!(
            "tenure get surface {NAME} -n {PLATFORM_NAMESPACE} shows the result"
        ));
        Ok(())
    }

    fn list_objects(&self) -> Result<Vec<Value>, Failure> {
        let customizer = Customizer {
            profile: match self.profile {
                Rights::Admin => Profile::Admin,
                Rights::Restricted => Profile::Restricted,
            },
            url: self.url.clone(),
            branch: self.branch.clone(),
            path: self.path.clone(),
            interval: self.interval.clone(),
            secret: self.secret.clone(),
            owned_namespaces: self.owned.clone(),
        };
        customizer::list_objects(&customizer).map_err(|error| Failure::usage(error.to_string()))
    }
}

/// Refuses to overwrite an object that was not created for the customizer. Deletes a binding of another profile, because the role of a binding can't be changed.
async fn prepare_write(client: &kube::Client, installation: &Installation, wanted: &Value) -> Result<(), Failure> {
    if ObjectView::new(wanted).read_text("/kind") == "Namespace" {
        return Ok(());
    }
    let path = write_object_path(wanted)?;
    let Some(there) = get_object(client, &path).await? else {
        return Ok(());
    };
    if !customizer::is_own(&there) {
        return Err(Failure::negative(format!(
            "{} exists already, and was not created for the customizer",
            name_with_place(wanted)
        ))
        .hint("rename it, or leave its namespace out of --own"));
    }
    if there.pointer("/roleRef/name") != wanted.pointer("/roleRef/name") {
        installation.delete(&path).await?;
    }
    Ok(())
}

/// Deletes an object if it exists and was created for the customizer.
async fn delete_own(client: &kube::Client, installation: &Installation, object: &Value) -> Result<(), Failure> {
    let path = write_object_path(object)?;
    match get_object(client, &path).await? {
        Some(there) if customizer::is_own(&there) => {
            installation.delete(&path).await?;
            output::print_line(format!("deleted {}", name_with_place(object)));
        }
        Some(_) => output::print_note(format!(
            "{} was not created for the customizer, and is kept",
            name_with_place(object)
        )),
        None => {}
    }
    Ok(())
}

fn name_with_place(object: &Value) -> String {
    let name = installation::name_object(object);
    match ObjectView::new(object).find_text("/metadata/namespace") {
        Some(namespace) => format!("{name} in {namespace}"),
        None => name,
    }
}

/// Returns the namespaces in which the customizer may create objects of every kind, now or earlier.
async fn list_owned(client: &kube::Client) -> Result<Vec<String>, Failure> {
    let labelled = resources::encode_segment(&format!("{OWNED_LABEL}=true"));
    let listed = get_object(client, &format!("/api/v1/namespaces?labelSelector={labelled}")).await?;
    let listed = listed.unwrap_or_default();
    let names = ObjectView::new(&listed)
        .list_views("/items")
        .map(|namespace| namespace.read_text("/metadata/name").to_owned());
    Ok(names.collect())
}

/// Suspends or resumes the customizer.
async fn switch_customizer(connect: &Connect, suspend: bool) -> Result<(), Failure> {
    let client = connect.client().await?;
    let path = surface_path()?;
    if !get_object(&client, &path)
        .await?
        .is_some_and(|there| customizer::is_own(&there))
    {
        return Err(Failure::negative("there is no customizer")
            .hint("tenure customizer install --url URL --path PATH makes it"));
    }
    let installation = Installation::new(client, identity::use_for_installation());
    let mut object = make_surface();
    if let Some(object) = object.as_object_mut() {
        object.insert("spec".to_owned(), json!({ "suspend": suspend }));
    }
    if !suspend && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Edits of the time without the customizer are put back now.
        let now = jiff::Timestamp::now().to_string();
        metadata.insert("annotations".to_owned(), json!({ REQUESTED_AT: now }));
    }
    installation.apply(&path, SWITCH, &object).await?;
    output::print_line(if suspend {
        "disabled: nothing is applied any more, and the applied objects stay"
    } else {
        "enabled"
    });
    Ok(())
}

/// Removes the customizer: the Surface first, and its rights after nothing acts for it any more.
async fn uninstall(connect: &Connect) -> Result<(), Failure> {
    let client = connect.client().await?;
    let installation = Installation::new(client.clone(), identity::use_for_installation());
    delete_own(&client, &installation, &make_surface()).await?;
    wait_until_nothing_acts(&client).await?;
    let owned = list_owned(&client).await?;
    for object in customizer::list_rights(&owned) {
        delete_own(&client, &installation, &object).await?;
    }
    for namespace in owned {
        output::print_note(format!("namespace {namespace} stays, and what is in it"));
    }
    Ok(())
}

/// Waits for the generated objects, because a terminating Kustomization still acts as the account.
async fn wait_until_nothing_acts(client: &kube::Client) -> Result<(), Failure> {
    let labelled = resources::encode_segment(&format!("{SURFACE_LABEL}={NAME}"));
    let path = format!(
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{PLATFORM_NAMESPACE}/kustomizations?labelSelector={labelled}"
    );
    let begin = Instant::now();
    loop {
        let listed = get_object(client, &path).await?.unwrap_or_default();
        let left: Vec<&str> = ObjectView::new(&listed)
            .list_views("/items")
            .map(|item| item.read_text("/metadata/name"))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(Failure::environment(format!(
                "Kustomization {} is still there, and its account and rights were left to it",
                left.join(", ")
            ))
            .hint("is a controller running that removes its finalizer? Then run tenure customizer uninstall again"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn make_surface() -> Value {
    json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": NAME, "namespace": PLATFORM_NAMESPACE}})
}

fn surface_path() -> Result<String, Failure> {
    write_object_path(&make_surface())
}

async fn get_object(client: &kube::Client, path: &str) -> Result<Option<Value>, Failure> {
    Ok(resources::find_at(client, path, "application/json").await?)
}
