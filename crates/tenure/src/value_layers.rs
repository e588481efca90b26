//! The objects that set the values of a Package's components: the Package, its PackageSource, its PackageValues, and the keys of the Secret `cozystack-values`. `tenure values` and
//! `tenure who` both use them, so they can't disagree. The content of a Secret is never shown.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use serde_json::Value;
use tenure_api::package::PLATFORM_VALUES;
use tenure_api::{ObjectView, Package, PackageSource, PackageValues};
use tenure_inspection::chart_layers::{LayerKind, LayeredValue};
use tenure_inspection::ownership::fields::list_owned_fields;
use tenure_planner::chart_values::read_yaml;

use crate::artifact_client::ArtifactAccess;
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::resources;

/// The key of the Secret that helm-controller reads by default.
const VALUES_KEY: &str = "values.yaml";

/// The objects that the values come from.
pub(crate) struct ValueLayers {
    /// The Package.
    pub(crate) package: Package,
    /// The Package as it was read.
    pub(crate) package_object: Value,
    /// The PackageSource, if it exists and the user may read it.
    pub(crate) source: Option<PackageSource>,
    /// The PackageValues, if it exists and the user may read it.
    pub(crate) values: Option<PackageValues>,
    /// The PackageValues as it was read.
    pub(crate) values_object: Option<Value>,
    /// Objects that were not read.
    pub(crate) notes: Vec<String>,
}

impl ValueLayers {
    /// Reads the objects of a Package.
    pub(crate) async fn read(client: &kube::Client, name: &str) -> Result<Self, Failure> {
        let served = resources::list_served(client).await?;
        let resource = resources::find_resource(&served, "packages.cozystack.io")?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
        let package_object = match api.get(name).await {
            Ok(object) => write_object(&object)?,
            Err(error) => {
                return Err(resources::explain_read(client, resource, (None, name), error).await);
            }
        };
        let mut notes = Vec::new();
        let values_object = match resources::find_resource(&served, "packagevalues.cozystack.io") {
            Ok(resource) => read_beside(client, &resource.api(), name, &mut notes).await?,
            Err(_) => None,
        };
        let source = match resources::find_resource(&served, "packagesources.cozystack.io") {
            Ok(resource) => read_beside(client, &resource.api(), name, &mut notes).await?,
            Err(_) => None,
        };
        Ok(Self {
            package: read_object(&package_object)?,
            source: source.as_ref().map(read_object).transpose()?,
            values: values_object.as_ref().map(read_object).transpose()?,
            package_object,
            values_object,
            notes,
        })
    }

    /// Returns the first keys of the Secret `cozystack-values` of a namespace.
    pub(crate) async fn read_platform_keys(&mut self, client: &kube::Client, namespace: &str) -> Vec<String> {
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

/// Reads the object of another kind with the name of the Package. One that the user may not read is noted.
async fn read_beside(
    client: &kube::Client,
    resource: &kube::core::ApiResource,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Option<Value>, Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    match api.get_opt(name).await {
        Ok(Some(object)) => Ok(Some(write_object(&object)?)),
        Ok(None) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            notes.push(format!(
                "not read: you may not get {}/{}, so what it sets is missing here",
                resource.kind, name
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The origins of the Package and its PackageValues.
pub(crate) struct LayerOrigins<'a> {
    layers: &'a ValueLayers,
    of_package: Provenance,
    of_values: Option<Provenance>,
}

impl<'a> LayerOrigins<'a> {
    /// Finds the Kustomizations that applied the objects, with their content.
    pub(crate) async fn find(client: &kube::Client, layers: &'a ValueLayers, artifacts: &ArtifactAccess) -> Self {
        Self {
            layers,
            of_package: Provenance::find(client, &layers.package_object, artifacts).await,
            of_values: match &layers.values_object {
                Some(object) => Some(Provenance::find(client, object, artifacts).await),
                None => None,
            },
        }
    }

    /// Returns the lines about the objects.
    pub(crate) fn summary(&self) -> Vec<String> {
        let provenances = [
            ("Package", Some(&self.of_package)),
            ("PackageValues", self.of_values.as_ref()),
        ];
        let lines = |(kind, provenance): (&str, Option<&Provenance>)| {
            let lines = provenance.map(Provenance::summary).unwrap_or_default();
            lines.iter().map(|line| format!("{kind}: {line}")).collect::<Vec<_>>()
        };
        provenances.into_iter().flat_map(lines).collect()
    }

    /// Returns the field managers of a value's field, and the file and line of the value; either may be empty.
    pub(crate) fn describe(&self, value: &LayeredValue) -> (String, String) {
        let (object, provenance) = match value.layer {
            LayerKind::Platform => (None, None),
            LayerKind::Package => (Some(&self.layers.package_object), Some(&self.of_package)),
            LayerKind::PackageValues => (self.layers.values_object.as_ref(), self.of_values.as_ref()),
        };
        let owner = object.and_then(|object| find_owner(object, value));
        let line = provenance
            .zip(value.field.as_ref())
            .filter(|(provenance, _)| owner.as_deref().is_some_and(|owner| provenance.is_by(owner)))
            .and_then(|(provenance, field)| provenance.line_of(field));
        (owner.unwrap_or_default(), line.unwrap_or_default())
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
