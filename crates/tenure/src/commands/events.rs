//! `tenure events`: prints events, with the oldest first, and new ones with `-w`.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_inspection::event_table;
use tenure_inspection::text_table::{Cell, TextTable};

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::object_watch::{Change, find_version, follow_objects, read_request};
use crate::resources::{self, Resource};
use crate::{output, targets};

/// The media type of events.
const JSON: &str = "application/json";

/// Show events, oldest first. With --for, only those of one object.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only events of this object: KIND/NAME, such as ks/apps. The kind may have any form that `tenure get` accepts.
    #[arg(long = "for", value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: Option<String>,
    /// Only events of type Warning.
    #[arg(long)]
    warnings: bool,
    /// Watch, and print each new event as a line.
    #[arg(short, long)]
    watch: bool,
    /// Leave out the headers.
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// The events that the user selected by flags: those of one object, or only warnings.
struct EventFilter {
    /// The kind and the name of the object.
    object: Option<(Resource, String)>,
    warnings: bool,
}

impl Events {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let object = self.object.as_deref().map(targets::read_object).transpose()?;
        let client = self.connect.client().await?;
        let object = match object {
            Some((kind, name)) => {
                let served = resources::list_served(&client).await?;
                Some((resources::find_resource(&served, &kind)?.clone(), name))
            }
            None => None,
        };
        let wanted = EventFilter {
            object,
            warnings: self.warnings,
        };
        let namespace = self.scope.namespace(&client);
        let path = namespace.as_ref().map_or("/api/v1/events".to_owned(), |namespace| {
            format!("/api/v1/namespaces/{}/events", resources::encode_segment(namespace))
        });
        let mut answer: Value = client.request(read_request(&path, JSON)?).await?;
        let version = find_version(&answer);
        let items = answer.get_mut("items").and_then(Value::as_array_mut);
        let mut events = items.map(std::mem::take).unwrap_or_default();
        events.retain(|event| wanted.includes(event));
        sort_events(&mut events);
        if events.is_empty() && !self.watch {
            self.note_nothing(namespace.as_deref());
            return Ok(ExitCode::SUCCESS);
        }
        let layout = self.print(&events, namespace.is_none());
        if !self.watch {
            return Ok(ExitCode::SUCCESS);
        }
        let mut changes = follow_objects(&client, path, JSON, version);
        let mut last = events
            .last()
            .map(event_table::find_last_seen)
            .unwrap_or_default()
            .to_owned();
        while let Some(change) = changes.next().await {
            let mut new = match change? {
                Change::Changed(event) => vec![event],
                // After a gap in the watch, the list has the missed events.
                Change::Listed(mut list) => {
                    let items = list.get_mut("items").and_then(Value::as_array_mut);
                    let mut events = items.map(std::mem::take).unwrap_or_default();
                    events.retain(|event| event_table::find_last_seen(event) > last.as_str());
                    sort_events(&mut events);
                    events
                }
                // Only old events are deleted.
                Change::Deleted(_) => continue,
            };
            new.retain(|event| wanted.includes(event));
            for event in &new {
                let row = event_table::write_row(event, namespace.is_none(), Timestamp::now());
                output::print_line(output::lay_out(&layout, &row));
                event_table::find_last_seen(event).clone_into(&mut last);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the table, and returns its layout.
    fn print(&self, events: &[Value], with_namespace: bool) -> TextTable {
        let headers = event_table::list_headers(with_namespace);
        let now = Timestamp::now();
        let rows: Vec<Vec<Cell>> = events
            .iter()
            .map(|event| event_table::write_row(event, with_namespace, now))
            .collect();
        let layout = TextTable::fit_widths(&headers, &rows, output::width());
        if !self.no_headers {
            let headers: Vec<Cell> = headers.into_iter().map(Cell::from).collect();
            output::print_line(output::lay_out(&layout, &headers));
        }
        for row in &rows {
            output::print_line(output::lay_out(&layout, row));
        }
        layout
    }

    fn note_nothing(&self, namespace: Option<&str>) {
        let place = match namespace {
            Some(namespace) => format!("in namespace {namespace} (-A looks in all)"),
            None => "in any namespace".to_owned(),
        };
        output::print_note(match &self.object {
            Some(object) => format!("no events about {object} {place}"),
            None => format!("no events {place}"),
        });
    }
}

/// Sorts events by time, the oldest first.
fn sort_events(events: &mut [Value]) {
    events.sort_by(|one, other| event_table::find_last_seen(one).cmp(event_table::find_last_seen(other)));
}

impl EventFilter {
    fn includes(&self, event: &Value) -> bool {
        let event = ObjectView::new(event);
        let is_about = |(resource, name): &(Resource, String)| is_about(event, resource, name);
        self.object.as_ref().is_none_or(is_about) && (!self.warnings || event.read_text("/type") == "Warning")
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
