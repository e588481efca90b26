//! `tenure values`: the effective values of a Package's components, with the layer, the object, the writer and the origin of each value. The content of a Secret is never
//! printed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Map, Value};
use tenure_api::package::DEFAULT_VARIANT;
use tenure_api::package_source::PackageVariant;
use tenure_api::text::{visible, visible_line};
use tenure_inspection::chart_layers::{ComponentLayers, LayerKind, LayeredValue, is_within, list_values};

use crate::artifact_client::ArtifactFlags;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::inspection::{Form, print_data};
use crate::output;
use crate::value_layers::{LayerOrigins, ValueLayers};

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

impl Values {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let artifacts = self.artifacts.open(&self.connect).await?;
        let client = self.connect.client().await?;
        let mut layers = ValueLayers::read(&client, &self.package).await?;
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

    /// Returns the components to show, with the namespaces of their releases.
    fn list_components(&self, layers: &ValueLayers) -> Result<Vec<(String, Option<String>)>, Failure> {
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
        layers: &ValueLayers,
        merged: &BTreeMap<String, ComponentLayers>,
        artifacts: &crate::artifact_client::ArtifactAccess,
    ) {
        let origins = LayerOrigins::find(client, layers, artifacts).await;
        let mut rows = Vec::new();
        for (component, found) in merged {
            for value in found.values.iter().filter(|value| self.is_shown(value)) {
                let (owner, line) = origins.describe(value);
                let mut cells = vec![component.clone(), value.path.clone(), value.describe_value()];
                if self.diff {
                    cells.push(value.describe_before());
                }
                cells.extend([value.layer.as_str().to_owned(), owner, line]);
                rows.push(cells.iter().map(|cell| visible_line(cell).into_owned()).collect());
            }
            for path in &found.replaced {
                output::print_note(format!(
                    "{component}: the map at {} replaces another kind of value; a map of a lower layer shows through there",
                    visible_line(path)
                ));
            }
        }
        for line in origins.summary() {
            output::print_line(visible(&line));
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
