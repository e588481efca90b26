//! `tenure get`: what is there and how it is, as the control plane's own tables show it.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::resources::{self, Resource};

/// What `tenure get` shows when no kind is named, in this order.
const OURS: &[&str] = &[
    "tenants.capsule.clastix.io",
    "surfaces.tenure.dev",
    "gitrepositories.source.toolkit.fluxcd.io",
    "kustomizations.kustomize.toolkit.fluxcd.io",
];

/// Show objects: by default tenants, surfaces, sources and kustomizations.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// A kind (`ks`, `gitrepositories`, `deployments.apps`); all of Tenure's when none is named.
    kind: Option<String>,
    /// An object's name.
    name: Option<String>,
    /// Print for programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

impl Get {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let client = self.connect.client().await?;
        let served = resources::served(&client).await?;
        let namespace = self.scope.namespace(&client);
        let kinds: Vec<&Resource> = match &self.kind {
            Some(kind) => vec![resources::find(&served, kind)?],
            None => OURS
                .iter()
                .filter_map(|kind| resources::find(&served, kind).ok())
                .collect(),
        };
        if kinds.is_empty() {
            return Err(
                Failure::negative("the cluster serves none of Tenure's kinds").hint("is Tenure installed there?")
            );
        }
        match self.output {
            Some(format) => self.print_objects(&client, &kinds, namespace.as_deref(), format).await,
            None => self.print_tables(&client, &kinds, namespace.as_deref()).await,
        }
    }

    async fn print_objects(
        &self,
        client: &kube::Client,
        kinds: &[&Resource],
        namespace: Option<&str>,
        format: Format,
    ) -> Result<ExitCode, Failure> {
        let mut objects = Vec::new();
        for resource in kinds {
            let answer: Value = client
                .request(request(&self.path(resource, namespace), "application/json")?)
                .await?;
            match answer.get("items").and_then(Value::as_array) {
                // Items of a list don't say what they are.
                Some(items) => objects.extend(items.iter().cloned().map(|item| typed(item, resource))),
                None => objects.push(answer),
            }
        }
        output::objects(&objects, format, self.name.is_some())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn print_tables(
        &self,
        client: &kube::Client,
        kinds: &[&Resource],
        namespace: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        let mut shown = 0;
        for resource in kinds {
            let path = self.path(resource, namespace);
            let answer: Value = client
                .request(request(
                    &path,
                    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                )?)
                .await?;
            let with_namespace = resource.namespaced && namespace.is_none();
            let (headers, rows) = table(&answer, with_namespace);
            if rows.is_empty() {
                continue;
            }
            if kinds.len() > 1 {
                let gap = if shown > 0 { "\n" } else { "" };
                output::line(format!("{gap}{}", output::bold(&resource.full_name())));
            }
            shown += rows.len();
            output::line(output::table(&headers, rows));
        }
        if shown == 0 {
            let place = namespace.map_or_else(
                || "any namespace".to_owned(),
                |namespace| format!("namespace {namespace}"),
            );
            output::note(format!(
                "nothing found in {place}{}",
                if namespace.is_some() { " (-A looks in all)" } else { "" }
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn path(&self, resource: &Resource, namespace: Option<&str>) -> String {
        let collection = resource.path(namespace);
        self.name
            .as_ref()
            .map_or(collection.clone(), |name| format!("{collection}/{name}"))
    }
}

fn typed(mut item: Value, resource: &Resource) -> Value {
    if let Some(object) = item.as_object_mut() {
        let api = resource.api();
        object.entry("apiVersion").or_insert(Value::from(api.api_version));
        object.entry("kind").or_insert(Value::from(api.kind));
    }
    item
}

fn request(path: &str, accept: &str) -> Result<http::Request<Vec<u8>>, Failure> {
    http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(|error| Failure::usage(format!("{path:?} is no name: {error}")))
}

/// The columns of highest priority and the rows of a meta.k8s.io/v1 Table.
fn table(answer: &Value, with_namespace: bool) -> (Vec<String>, Vec<Vec<String>>) {
    let empty = Vec::new();
    let columns = answer
        .get("columnDefinitions")
        .and_then(Value::as_array)
        .unwrap_or(&empty);
    let wanted: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.get("priority").and_then(Value::as_i64).unwrap_or(0) == 0)
        .map(|(index, _)| index)
        .collect();
    let mut headers: Vec<String> = wanted
        .iter()
        .filter_map(|index| columns.get(*index)?.get("name")?.as_str())
        .map(str::to_owned)
        .collect();
    if with_namespace {
        headers.insert(0, "namespace".to_owned());
    }
    let rows = answer.get("rows").and_then(Value::as_array).unwrap_or(&empty);
    let row = |row: &Value| {
        let cells = row.get("cells").and_then(Value::as_array);
        let mut texts: Vec<String> = wanted
            .iter()
            .map(|index| cells.and_then(|cells| cells.get(*index)).map_or_else(String::new, cell))
            .collect();
        if with_namespace {
            texts.insert(
                0,
                row.pointer("/object/metadata/namespace")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
        texts
    };
    (headers, rows.iter().map(row).collect())
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_columns_of_priority_zero() {
        let answer = serde_json::json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Images", "priority": 1}, {"name": "Ready"}],
            "rows": [{"cells": ["web", "nginx", true], "object": {"metadata": {"namespace": "a"}}}]});
        let (headers, rows) = table(&answer, true);
        assert_eq!(headers, ["namespace", "Name", "Ready"]);
        assert_eq!(rows, [["a", "web", "true"]]);
        assert_eq!(table(&Value::Null, false), (vec![], vec![]));
    }
}
