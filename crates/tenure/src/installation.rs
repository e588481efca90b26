//! The objects that go into the embedded control plane at every start, or once into another cluster, and the controllers on top of them. The objects are those of
//! `tenure_api::installation`. The controllers' choices are all in their Config.

use std::net::SocketAddr;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tenure_admission_rules::policy;
use tenure_api::ObjectView;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::workload::LanePods;
use tenure_apiserver::Server;
use tenure_cluster::{Connection, Installation, Token};
use tenure_controllers::{ArtifactEndpoint, EnabledKinds, LaneServer, ReceiverEndpoint};
use tenure_planner::artifact_address::ArtifactBase;
use tenure_sources::Endpoint;
use tenure_tenancy::Settings;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::commands::controllers::ControllerSettings;
use crate::failure::{Failure, write_chain};
use crate::object_path::write_object_path;

/// The field manager of installed objects.
const FIELD_MANAGER: &str = "tenure";

/// The kind that decides the tenant of a namespace.
const TENANT: &str = "Tenant";

/// The lifetime of a controller's token.
const TOKEN_SECONDS: i64 = 3600;

/// Applies all objects of an installation, with the rights that the enabled controllers need. Unchanged objects are not written again. Namespaced objects come after
/// the namespaces; otherwise the order is free, and concurrent writes share one write to disk.
pub(crate) async fn apply(installation: &Installation, settings: &ControllerSettings) -> Result<(), Failure> {
    let switches = settings.switches();
    let mut objects = list_objects(switches, &[], &settings.protected_namespaces)?;
    leave_definition_of_tenants(installation, switches, &mut objects).await?;
    // This server admits all writes, so owners may create namespaces, and the accounts whose tokens Tenure requests are declared.
    objects.extend(if switches.is_on(TENANT) {
        tenure_api::installation::provisioning()
    } else {
        tenure_api::installation::account_naming()
    });
    objects.extend(select_packages(installation).await?.0);
    objects.extend(list_package_writer(settings.packages.service_account.as_deref()));
    let (inside, outside): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| ObjectView::new(object).has("/metadata/namespace"));
    for objects in [outside, inside] {
        // Separate tasks let a start use every core.
        let tasks = objects.into_iter().map(|object| {
            let installation = installation.clone();
            tokio::spawn(async move { apply_one(&installation, &object).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|error| Failure::internal(error.to_string()))??;
        }
    }
    Ok(())
}

/// Applies the account of a helm-controller that this program starts. Without one, an earlier account loses its rights.
pub(crate) async fn apply_helm_account(installation: &Installation, is_on: bool) -> Result<(), Failure> {
    let mut objects = tenure_api::installation::helm_controller().to_vec();
    if !is_on {
        objects.retain(|object| ObjectView::new(object).has("/subjects"));
        for binding in &mut objects {
            if installation.find(&write_object_path(binding)?).await?.is_none() {
                return Ok(());
            }
            binding["subjects"] = json!([]);
        }
    }
    apply_in_order(installation, &objects, |_| {}).await
}

/// Returns the objects of an installation, for the enabled controllers of the main instance and of these shards. The policies that bound Tenure's accounts treat
/// `protected_namespaces` as protected.
pub(crate) fn list_objects(
    switches: &EnabledKinds,
    shards: &[String],
    protected_namespaces: &[String],
) -> Result<Vec<Value>, Failure> {
    let objects = tenure_api::installation::objects_of_shards(&|kind| switches.is_on(kind), shards);
    let mut objects = objects.map_err(|error| Failure::internal(write_chain(&error)))?;
    objects.extend(policy::list_bounds(&Settings {
        protected_namespaces: protected_namespaces.to_vec(),
        ..Settings::default()
    }));
    Ok(objects)
}

/// Returns the additional objects for lanes with Pods of their own: rights, and the policies that bound them.
pub(crate) fn list_lanes(pods: &LanePods) -> Vec<Value> {
    let mut objects = tenure_api::installation::lane_pods();
    objects.extend(policy::list_lane_bounds(tenure_api::metadata::PLATFORM_NAMESPACE, pods));
    objects
}

/// Returns the additional rights for policies that are kept in force. The controllers make the policies after they have written the facts that the policies read.
pub(crate) fn list_policing() -> Vec<Value> {
    let policies = policy::list_enforced_objects(&Settings::default());
    tenure_api::installation::policing(&policies)
}

/// Adds the rights for policies.
pub(crate) fn add_policing(objects: &mut Vec<Value>) {
    tenure_api::installation::add_or_replace(objects, list_policing());
}

/// Leaves Tenants and their existing definition to another controller, such as Capsule's: the definition serves versions, defaults and a conversion that this
/// controller needs. Returns the definition's name.
pub(crate) async fn leave_definition_of_tenants(
    installation: &Installation,
    switches: &EnabledKinds,
    objects: &mut Vec<Value>,
) -> Result<Option<String>, Failure> {
    let is_it = |object: &Value| ObjectView::new(object).read_text("/spec/names/kind") == TENANT;
    let definition = objects.iter().find(|object| is_it(object));
    let Some(definition) = definition.filter(|_| !switches.is_on(TENANT)) else {
        return Ok(None);
    };
    if installation.find(&write_object_path(definition)?).await?.is_none() {
        return Ok(None);
    }
    let name = name_object(definition);
    objects.retain(|object| !is_it(object));
    Ok(Some(name))
}

/// Returns the definitions of a platform's packages to install, and the names of the definitions of other products, such as Cozystack and Flux. These stay unchanged, since
/// their objects are written for them.
pub(crate) async fn select_packages(installation: &Installation) -> Result<(Vec<Value>, Vec<String>), Failure> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for definition in list_packages()? {
        match installation.find(&write_object_path(&definition)?).await? {
            Some(found) if !is_labelled_ours(&found) => others.push(name_object(&definition)),
            _ => own.push(definition),
        }
    }
    Ok((own, others))
}

/// Returns the definitions of the kinds of a platform's packages, and of helm-controller's kinds.
pub(crate) fn list_packages() -> Result<Vec<Value>, Failure> {
    let packages = tenure_api::crds::package_crds();
    let helm = packages.and_then(|packages| Ok([packages, tenure_api::crds::helm_crds()?].concat()));
    helm.map_err(|error| Failure::internal(write_chain(&error)))
}

/// Returns the account that writes what Packages generate, with its rights, if an administrator named one.
pub(crate) fn list_package_writer(account: Option<&str>) -> Vec<Value> {
    account.map(tenure_api::installation::list_writer).unwrap_or_default()
}

/// Returns the rights of that account, whose names are the same for every account. The account itself and the namespace of the charts may be an
/// administrator's.
pub(crate) fn list_package_rights() -> Vec<Value> {
    let mut objects = tenure_api::installation::list_writer("");
    objects.retain(|object| ObjectView::new(object).read_text("/apiVersion").starts_with("rbac."));
    objects
}

/// Whether the labels of an object say that Tenure installed it.
pub(crate) fn is_labelled_ours(object: &Value) -> bool {
    ObjectView::new(object).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
}

/// Applies objects one after the other, and reports each applied object. An error ends the loop.
pub(crate) async fn apply_in_order(
    installation: &Installation,
    objects: &[Value],
    report_applied: impl Fn(String),
) -> Result<(), Failure> {
    for object in objects {
        apply_one(installation, object).await?;
        report_applied(name_object(object));
    }
    Ok(())
}

/// The effect of an installation on one object.
pub(crate) enum Effect {
    /// The object does not exist.
    Creates,
    /// The object differs: its present state, and the state after the installation.
    Changes(Value, Value),
    /// The object is as the installation wants it.
    Keeps,
}

/// Returns the effect on each object, and writes nothing.
pub(crate) async fn preview_objects(
    installation: &Installation,
    objects: &[Value],
) -> Result<Vec<(String, Effect)>, Failure> {
    let mut effects = Vec::new();
    for object in objects {
        let previewed = installation
            .preview(&write_object_path(object)?, FIELD_MANAGER, object)
            .await;
        let effect = match previewed.map_err(|error| explain_refusal(object, error))? {
            (None, _) => Effect::Creates,
            (Some(live), applied) => {
                let (live, applied) = (without_server_fields(live), without_server_fields(applied));
                match live == applied {
                    true => Effect::Keeps,
                    false => Effect::Changes(live, applied),
                }
            }
        };
        effects.push((name_object(object), effect));
    }
    Ok(effects)
}

/// Removes the fields that the server sets at each write.
fn without_server_fields(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

fn explain_refusal(object: &Value, error: kube::Error) -> Failure {
    let mut failure = Failure::from(error);
    failure.message = format!("{} can't be installed: {}", name_object(object), failure.message);
    failure
}

async fn apply_one(installation: &Installation, object: &Value) -> Result<(), Failure> {
    let applied = installation
        .apply(&write_object_path(object)?, FIELD_MANAGER, object)
        .await;
    applied.map_err(|error| explain_refusal(object, error))
}

/// Returns the name of an object in messages.
pub(crate) fn name_object(object: &Value) -> String {
    let text = |path: &str| ObjectView::new(object).read_text(path);
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Reads the certificates of an authority.
fn read_authorities(pem: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| Failure::internal(format!("the certificate of the authority: {error}")))?;
    Ok(found.into_iter().map(|certificate| certificate.to_vec()).collect())
}

/// The parts that the controllers share with other code of the process.
pub(crate) struct SharedParts {
    /// Addresses that sources of the platform namespace may reach, in addition to those that the settings allow for all.
    pub(crate) platform_sources: Vec<Endpoint>,
    /// The handler for requests to Receivers, used by their listener.
    pub(crate) hooks: ReceiverEndpoint,
    /// The handler for artifacts, used by their server, and the advertised address.
    pub(crate) artifact_endpoint: ArtifactEndpoint,
    pub(crate) advertised: Option<ArtifactBase>,
}

/// Starts the controllers as their own ServiceAccount, through the server's service in this process.
pub(crate) fn start_controllers(
    server: &Server,
    data: &Path,
    settings: ControllerSettings,
    surroundings: SharedParts,
    near: SocketAddr,
    shutdown: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let namespace = tenure_api::metadata::PLATFORM_NAMESPACE;
    let account = tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;
    let issue = {
        let server = server.clone();
        move || {
            let token = server.service_account_token(namespace, account, TOKEN_SECONDS);
            token
                .map(|token| Token::new(token, None))
                .map_err(|error| format!("no token for {namespace}/{account}: {error}"))
        }
    };
    // The next tokens come from the same function. A TokenRequest needs a valid token, and a jump of the clock can end all tokens.
    let connection = Connection::in_process(server.service(), issue().map_err(Failure::internal)?).issued_by(issue);
    let health = connection.health();
    server.add_ready_check("controllers", move || health.is_good());
    let mut config = tenure_controllers::Config::new(connection, data.join("artifacts"));
    let figures = config.metrics.clone();
    // With many objects the metrics take long, so other tasks of this worker move to another thread.
    server.add_figures(move |out| tokio::task::block_in_place(|| figures.write(out)));
    config.lanes = settings.write_lanes(LaneServer {
        url: format!("https://{near}"),
        authorities: Some(read_authorities(server.ca_pem())?),
        tls_name: None,
        unchecked: false,
    });
    settings.set_into(&mut config, surroundings.platform_sources);
    config.receiver_endpoint = surroundings.hooks;
    config.artifact_endpoint = surroundings.artifact_endpoint;
    config.advertised = surroundings.advertised;
    config.settings.is_guarded = true;
    Ok(tokio::spawn(async move {
        if let Err(error) = tenure_controllers::run(config, shutdown).await {
            tracing::error!(error = write_chain(&error), "the controllers ended");
        }
    }))
}
