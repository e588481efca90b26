//! `tenure values`: the effective values of a Package's components, with the layer, the object, the writer and the origin of each value. The content of a Secret is never
//! printed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use serde_json::{Map, Value};
use tenure_api::package::{DEFAULT_VARIANT, PLATFORM_VALUES};
use tenure_api::package_source::PackageVariant;
use tenure_api::text::{visible, visible_line};
use tenure_api::{ObjectView, Package, PackageSource, PackageValues};
use tenure_inspection::chart_layers::{ComponentLayers, LayerKind, LayeredValue, is_within, list_values};
use tenure_inspection::ownership::fields::list_owned_fields;
use tenure_planner::chart_values::read_yaml;

use crate::artifact_client::ArtifactFlags;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::inspection::{Form, print_data};
use crate::provenance::Provenance;
use crate::{output, resources};

/// The key of the Secret that helm-controller reads by default.
const VALUES_KEY: &str = "values.yaml";

/// Show the values of a Package's components, and which layer, object and commit sets each of them.
///
/// Layers, from below: the Secret cozystack-values, the Package, the PackageValues of the same name. The defaults of the chart are below all of them, and are not
/// shown. The content of the Secret is not shown either.
#[derive(Debug, Args)]
pub(crate) struct Values {
    /// Name of the Package, such as cozystack.ingress-nginx.
    #[arg(value_name = "PACKAGE", add = ArgValueCompleter::new(super::completion::complete_target))]
    package: String,
    /// Only the value at this path and below it, such as /controller/replicas.
    path: Option<String>,
    /// Only this component of the Package.
    #[arg(long, value_name = "COMPONENT")]
    component: Option<String>,
    /// Only what the PackageValues changes, with the value before.
    #[arg(long)]
    diff: bool,
    /// Print the merged values of the Package and its PackageValues as data, by component.
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "diff")]
    output: Option<Form>,
    #[command(flatten)]
    artifacts: ArtifactFlags,
    #[command(flatten)]
    connect: Connect,
}

/// The objects that the values come from.
struct Layers {
    package: Package,
    package_object: Value,
    source: Option<PackageSource>,
    values: Option<PackageValues>,
    values_object: Option<Value>,
    notes: Vec<String>,
}

impl Values {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let artifacts = self.artifacts.open(&self.connect).await?;
        let client = self.connect.client().await?;
        let mut layers = self.read_layers(&client).await?;
        let components = self.list_components(&layers)?;
        let mut merged = BTreeMap::new();
        for (component, namespace) in &components {
            let platform = match namespace {
                Some(namespace) => layers.read_platform_keys(&client, namespace).await,
                None => Vec::new(),
            };
            let values = layers.values.as_ref();
            let found = list_values(&layers.package, values, &platform, component, namespace.as_deref());
            match found {
                Ok(found) => drop(merged.insert(component.clone(), found)),
                Err(error) => layers.notes.push(format!(
                    "PackageValues/{}: spec.components[{component}]: {error}; its HelmRelease stays as it is",
                    self.package
                )),
            }
        }
        match self.output {
            Some(form) => self.print_merged(&merged, form)?,
            None => self.print_table(&client, &layers, &merged, &artifacts).await,
        }
        layers.notes.sort();
        layers.notes.dedup();
        for note in &layers.notes {
            output::print_note(visible_line(note));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn read_layers(&self, client: &kube::Client) -> Result<Layers, Failure> {
        let served = resources::list_served(client).await?;
        let resource = resources::find_resource(&served, "packages.cozystack.io")?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
        let package_object = match api.get(&self.package).await {
            Ok(object) => write_object(&object)?,
            Err(error) => {
                return Err(resources::explain_read(client, resource, (None, &self.package), error).await);
            }
        };
        let mut notes = Vec::new();
        let values_object = match resources::find_resource(&served, "packagevalues.cozystack.io") {
            Ok(resource) => self.read_beside(client, &resource.api(), &mut notes).await?,
            Err(_) => None,
        };
        let source = match resources::find_resource(&served, "packagesources.cozystack.io") {
            Ok(resource) => self.read_beside(client, &resource.api(), &mut notes).await?,
            Err(_) => None,
        };
        Ok(Layers {
            package: read_object(&package_object)?,
            source: source.as_ref().map(read_object).transpose()?,
            values: values_object.as_ref().map(read_object).transpose()?,
            package_object,
            values_object,
            notes,
        })
    }

    /// Reads the object of another kind with the name of the Package. One that the user may not read is noted.
    async fn read_beside(
        &self,
        client: &kube::Client,
        resource: &kube::core::ApiResource,
        notes: &mut Vec<String>,
    ) -> Result<Option<Value>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        match api.get_opt(&self.package).await {
            Ok(Some(object)) => Ok(Some(write_object(&object)?)),
            Ok(None) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                notes.push(format!(
                    "not read: you may not get {}/{}, so what it sets is missing here",
                    resource.kind, self.package
                ));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the components to show, with the namespaces of their releases.
    fn list_components(&self, layers: &Layers) -> Result<Vec<(String, Option<String>)>, Failure> {
        let wanted = layers.package.spec.variant.as_deref().filter(|name| !name.is_empty());
        let wanted = wanted.unwrap_or(DEFAULT_VARIANT);
        let variant: Option<&PackageVariant> = layers
            .source
            .iter()
            .flat_map(|source| &source.spec.variants)
            .find(|variant| variant.name == wanted);
        let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
        let changed = layers.values.iter().flat_map(|values| values.spec.components.keys());
        let referring = layers.values.iter().flat_map(|values| &values.spec.values_from);
        let referring = referring.map(|reference| &reference.component);
        for name in layers.package.spec.components.keys().chain(changed).chain(referring) {
            known.insert(name.clone(), None);
        }
        for component in variant.iter().flat_map(|variant| &variant.components) {
            if let Some(install) = &component.install {
                known.insert(component.name.clone(), install.namespace.clone());
            }
        }
        match &self.component {
            None => Ok(known.into_iter().collect()),
            Some(name) => match known.get_key_value(name) {
                Some((name, namespace)) => Ok(vec![(name.clone(), namespace.clone())]),
                None => {
                    let known: Vec<String> = known.into_keys().collect();
                    let failure = Failure::negative(format!("Package/{} has no component {name}", self.package));
                    Err(failure.hint(format!("its components are: {}", known.join(", "))))
                }
            },
        }
    }

    fn print_merged(&self, merged: &BTreeMap<String, ComponentLayers>, form: Form) -> Result<(), Failure> {
        let pointer = match self.path.as_deref().map(|path| path.trim_matches('/')) {
            None | Some("") => String::new(),
            Some(path) => format!("/{path}"),
        };
        let values = merged.iter().filter_map(|(component, layers)| {
            let values = Value::Object(layers.merged.clone());
            Some((component.clone(), values.pointer(&pointer)?.clone()))
        });
        print_data(Ok(Value::Object(values.collect::<Map<String, Value>>())), form)
    }

    fn is_shown(&self, value: &LayeredValue) -> bool {
        let is_changed = !self.diff || value.layer == LayerKind::PackageValues;
        let wanted = self.path.as_deref().unwrap_or_default();
        // The content of a Secret is known down to its first keys.
        let is_above = value.layer == LayerKind::Platform && is_within(wanted, &value.path);
        is_changed && (is_within(&value.path, wanted) || is_above)
    }

    async fn print_table(
        &self,
        client: &kube::Client,
        layers: &Layers,
        merged: &BTreeMap<String, ComponentLayers>,
        artifacts: &crate::artifact_client::ArtifactAccess,
    ) {
        let of_package = Provenance::find(client, &layers.package_object, artifacts).await;
        let of_values = match &layers.values_object {
            Some(object) => Some(Provenance::find(client, object, artifacts).await),
            None => None,
        };
        let mut rows = Vec::new();
        for (component, found) in merged {
            for value in found.values.iter().filter(|value| self.is_shown(value)) {
                let (object, provenance) = match value.layer {
                    LayerKind::Platform => (None, None),
                    LayerKind::Package => (Some(&layers.package_object), Some(&of_package)),
                    LayerKind::PackageValues => (layers.values_object.as_ref(), of_values.as_ref()),
                };
                let owner = object.and_then(|object| find_owner(object, value));
                let line = provenance
                    .zip(value.field.as_ref())
                    .filter(|(provenance, _)| owner.as_deref().is_some_and(|owner| provenance.is_by(owner)))
                    .and_then(|(provenance, field)| provenance.line_of(field));
                let mut cells = vec![component.clone(), value.path.clone(), value.describe_value()];
                if self.diff {
                    cells.push(value.describe_before());
                }
                cells.extend([
                    value.layer.as_str().to_owned(),
                    owner.unwrap_or_default(),
                    line.unwrap_or_default(),
                ]);
                rows.push(cells.iter().map(|cell| visible_line(cell).into_owned()).collect());
            }
            for path in &found.replaced {
                output::print_note(format!(
                    "{component}: the map at {} replaces another kind of value; a map of a lower layer shows through there",
                    visible_line(path)
                ));
            }
        }
        let provenances = [("Package", Some(&of_package)), ("PackageValues", of_values.as_ref())];
        for (kind, provenance) in provenances {
            for line in provenance.iter().flat_map(|provenance| provenance.summary()) {
                output::print_line(format!("{kind}: {}", visible(line)));
            }
        }
        let mut headers = vec!["COMPONENT", "PATH", "VALUE"];
        if self.diff {
            headers.push("BEFORE");
        }
        headers.extend(["LAYER", "OWNER", "FROM"]);
        let headers: Vec<String> = headers.into_iter().map(str::to_owned).collect();
        if rows.is_empty() {
            output::print_note(match self.diff {
                true => "no PackageValues changes a value here",
                false => "no layer sets a value here: the defaults of the chart apply",
            });
        } else {
            output::print_line(output::table::<String>(&headers, rows));
        }
    }
}

impl Layers {
    /// Returns the first keys of the Secret `cozystack-values` of a namespace.
    async fn read_platform_keys(&mut self, client: &kube::Client, namespace: &str) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = match secrets.get_opt(PLATFORM_VALUES).await {
            Ok(Some(secret)) => secret,
            Ok(None) => return Vec::new(),
            Err(_) => {
                self.notes.push(format!(
                    "not read: Secret/{PLATFORM_VALUES} in namespace {namespace}, so the keys that it sets are missing here"
                ));
                return Vec::new();
            }
        };
        let text = secret.data.unwrap_or_default().remove(VALUES_KEY);
        let text = text.and_then(|text| String::from_utf8(text.0).ok()).unwrap_or_default();
        match read_yaml(&text) {
            Ok(values) => values.into_keys().collect(),
            // The error may cite the content.
            Err(_) => {
                self.notes.push(format!(
                    "Secret/{PLATFORM_VALUES} in namespace {namespace} has no valid {VALUES_KEY}"
                ));
                Vec::new()
            }
        }
    }
}

/// Returns the field managers of the field that sets a value.
fn find_owner(object: &Value, value: &LayeredValue) -> Option<String> {
    let owned = list_owned_fields(object, value.field.as_ref()).ok()?;
    let mut names: Vec<String> = owned.iter().map(|field| field.describe_owner()).collect();
    names.sort();
    names.dedup();
    Some(names.join(", "))
}

fn write_object(object: &DynamicObject) -> Result<Value, Failure> {
    serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))
}

fn read_object<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, Failure> {
    T::deserialize(object).map_err(|error| {
        let view = ObjectView::new(object);
        let (kind, name) = (view.read_text("/kind"), view.read_text("/metadata/name"));
        Failure::environment(format!("{kind}/{name} can't be read: {error}"))
    })
}
