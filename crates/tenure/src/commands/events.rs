//! `tenure events`: prints events, with the oldest first.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::visible_line;

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::resources::{self, Resource};
use crate::{output, targets};

/// Show events, oldest first. With --for, only those of one object.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only events of this object: KIND/NAME, such as ks/apps. The kind may have any form that `tenure get` accepts.
    #[arg(long = "for", value_name = "KIND/NAME")]
    object: Option<String>,
    /// Only events of type Warning.
    #[arg(long)]
    warnings: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

impl Events {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let object = self.object.as_deref().map(targets::read_object).transpose()?;
        let client = self.connect.client().await?;
        let wanted = match &object {
            Some((kind, name)) => {
                let served = resources::served(&client).await?;
                Some((resources::find(&served, kind)?.clone(), name))
            }
            None => None,
        };
        let namespace = self.scope.namespace(&client);
        let path = namespace.as_ref().map_or("/api/v1/events".to_owned(), |namespace| {
            format!("/api/v1/namespaces/{namespace}/events")
        });
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let answer: Value = client.request(request).await?;
        let mut events: Vec<ObjectView<'_>> = ObjectView::of(&answer).list_views("/items").collect();
        events.retain(|event| {
            wanted
                .as_ref()
                .is_none_or(|(resource, name)| is_about(*event, resource, name))
        });
        events.retain(|event| !self.warnings || event.read_text("/type") == "Warning");
        events.sort_by_key(|event| find_last_seen(*event));
        if events.is_empty() {
            let place = match &namespace {
                Some(namespace) => format!("in namespace {namespace} (-A looks in all)"),
                None => "in any namespace".to_owned(),
            };
            output::print_note(match &self.object {
                Some(object) => format!("no events about {object} {place}"),
                None => format!("no events {place}"),
            });
            return Ok(ExitCode::SUCCESS);
        }
        let mut headers = vec!["last seen", "type", "reason", "object", "message"];
        if namespace.is_none() {
            headers.insert(0, "namespace");
        }
        let rows = events
            .iter()
            .map(|event| print_row(*event, namespace.is_none()))
            .collect();
        output::print_line(output::table(
            &headers.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            rows,
        ));
        Ok(ExitCode::SUCCESS)
    }
}

fn is_about(event: ObjectView<'_>, resource: &Resource, name: &str) -> bool {
    let api_version = event.read_text("/involvedObject/apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    event.read_text("/involvedObject/kind") == resource.kind
        && event.read_text("/involvedObject/name") == name
        // Some writers of events omit the group.
        && (api_version.is_empty() || group == resource.group)
}

/// Returns the time of an event as text. RFC 3339 times of one zone sort as text.
fn find_last_seen(event: ObjectView<'_>) -> String {
    ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .map(|path| event.read_text(path))
        .find(|time| !time.is_empty())
        .unwrap_or_default()
        .to_owned()
}

fn print_row(event: ObjectView<'_>, with_namespace: bool) -> Vec<String> {
    let object = format!(
        "{}/{}",
        event.read_text("/involvedObject/kind").to_lowercase(),
        visible_line(event.read_text("/involvedObject/name"))
    );
    let kind = event.read_text("/type");
    let message = visible_line(&event.read_text("/message").trim().replace('\n', " ")).into_owned();
    let mut row = vec![
        find_last_seen(event),
        if kind == "Warning" {
            output::bad(kind)
        } else {
            kind.to_owned()
        },
        event.read_text("/reason").to_owned(),
        object,
        message,
    ];
    if with_namespace {
        row.insert(0, event.read_text("/metadata/namespace").to_owned());
    }
    row
}
