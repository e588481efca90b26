//! `tenure get -w`: tables that continue with changes, of one kind or of several. With several, each name has its kind before it.

use std::process::ExitCode;

use futures::stream::{BoxStream, StreamExt as _};
use jiff::Timestamp;
use serde_json::Value;

use super::tables::{Layout, Tables};
use super::{Form, Get, JSON, Place, TABLE, list_objects, print_refusals};
use crate::failure::Failure;
use crate::object_watch::{Change, find_version, follow_objects};
use crate::output;
use crate::resources::{self, Resource};

/// A collection whose changes are printed, with the layout of its last list.
struct Followed<'a> {
    resource: &'a Resource,
    layout: Option<Layout>,
}

impl Get {
    /// Shows the tables, and then a line for each change, until the user stops the command. With an output format for programs, each object is printed by itself.
    pub(super) async fn follow(
        &self,
        client: &kube::Client,
        places: &[Place<'_>],
        namespace: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        let alone = places.len() == 1;
        let (mut followed, mut changes, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            let is_data = self.data_form().is_some();
            let list = match self.ask(client, place, namespace, is_data).await {
                Ok(list) => list,
                Err(refusal) if alone => return Err(refusal.failure),
                Err(refusal) => {
                    refused.push(refusal);
                    continue;
                }
            };
            let path = self.path_of_watch(place, namespace);
            let accept = if is_data { JSON } else { TABLE };
            let stream = follow_objects(client, path, accept, find_version(&list));
            let mut one = Followed {
                resource: place.resource,
                layout: None,
            };
            self.show(&mut one, &Change::Listed(list), namespace, !alone)?;
            let number = followed.len();
            followed.push(one);
            let numbered: BoxStream<'_, _> = stream.map(move |change| (number, change)).boxed();
            changes.push(numbered);
        }
        print_refusals(&refused, namespace, followed.is_empty());
        let mut changes = futures::stream::select_all(changes);
        while let Some((number, change)) = changes.next().await {
            let change = change?;
            if let Some(one) = followed.get_mut(number) {
                self.show(one, &change, namespace, !alone)?;
            }
        }
        Ok(refused
            .first()
            .map_or(ExitCode::SUCCESS, |refusal| refusal.failure.exit_code()))
    }

    fn show(
        &self,
        followed: &mut Followed<'_>,
        change: &Change,
        namespace: Option<&str>,
        with_kinds: bool,
    ) -> Result<(), Failure> {
        if let Some(form) = self.data_form() {
            return show_data(form, followed.resource, change, !self.no_headers);
        }
        let tables = Tables {
            is_wide: self.output == Some(Form::Wide),
            with_headers: !self.no_headers,
            with_kinds,
            namespace,
            now: Timestamp::now(),
        };
        let (answer, is_deleted) = match change {
            Change::Listed(list) => {
                let layout = tables.lay_out(followed.resource, list);
                let is_empty = list.get("rows").and_then(Value::as_array).is_none_or(Vec::is_empty);
                if tables.with_headers && !(with_kinds && is_empty) {
                    output::print_line(layout.write_headers());
                }
                followed.layout = Some(layout);
                (list, false)
            }
            Change::Changed(object) => (object, false),
            Change::Deleted(object) => (object, true),
        };
        let Some(layout) = &followed.layout else {
            return Ok(());
        };
        for line in layout.write_rows(answer, tables.now) {
            output::print_line(match is_deleted {
                true => output::faint(&format!("{line}   (deleted)")),
                false => line,
            });
        }
        Ok(())
    }

    /// Returns the path of a watch. Only a collection can be watched, so one object is watched as a collection of one.
    fn path_of_watch(&self, place: &Place<'_>, namespace: Option<&str>) -> String {
        let collection = Place {
            resource: place.resource,
            name: None,
        };
        let path = self.path(&collection, namespace, self.data_form().is_some());
        match place.name {
            None => path,
            Some(name) => {
                let mark = if path.contains('?') { '&' } else { '?' };
                format!(
                    "{path}{mark}fieldSelector=metadata.name%3D{}",
                    resources::encode_segment(name)
                )
            }
        }
    }
}

/// Prints the objects of a list or a change, each by itself. Columns have headers once.
fn show_data(form: &Form, resource: &Resource, change: &Change, with_headers: bool) -> Result<(), Failure> {
    let (answer, is_list) = match change {
        Change::Listed(list) => (list, true),
        Change::Changed(object) | Change::Deleted(object) => (object, false),
    };
    let objects = list_objects(resource, answer);
    match form {
        Form::CustomColumns(_) => form.print(&objects, false, with_headers && is_list),
        _ => {
            let mut single = objects.chunks(1);
            single.try_for_each(|object| form.print(object, true, false))
        }
    }
}
