//! `tenure get -w`: a table that continues with changes. The watch starts at the version of the list or of the last change, so no change is missed. If the server no
//! longer knows this version, the list is shown again.

use std::process::ExitCode;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use serde_json::Value;
use tenure_api::ObjectView;

use super::{Form, Get, Place, request, server_table};
use crate::failure::Failure;
use crate::output;
use crate::text_table::TextTable;

/// The reason why a watch ended.
enum End {
    /// The usual timeout; the next watch continues from this resourceVersion.
    Timeout(String),
    /// The server no longer knows the resourceVersion.
    Expired,
}

impl Get {
    /// Shows the table, and then a line for each change, until the user stops it.
    pub(super) async fn follow(
        &self,
        client: &kube::Client,
        place: &Place<'_>,
        namespace: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        let mut path = self.path(place, namespace);
        if let Some(name) = place.name {
            // Only a collection can be watched, so one object is watched as a collection of one.
            path = format!(
                "{}?fieldSelector=metadata.name%3D{name}",
                place.resource.path(namespace)
            );
        }
        let with_namespace = place.resource.namespaced && namespace.is_none();
        loop {
            let list: Value = client.request(request(&path, server_table::ACCEPT)?).await?;
            let wide = self.output == Some(Form::Wide);
            let columns = server_table::SelectedColumns::of(&list, with_namespace, wide);
            let rows = columns.rows(&list);
            let width = if wide { None } else { output::width() };
            let layout = TextTable::fitting(&columns.headers, &rows, width);
            output::print_line(layout.line(&columns.headers));
            for row in &rows {
                output::print_line(layout.line(row));
            }
            let mut from = find_version(&list).unwrap_or_default();
            while let End::Timeout(last) = self.follow_from(client, &path, &from, (&columns, &layout)).await? {
                from = last;
            }
        }
    }

    async fn follow_from(
        &self,
        client: &kube::Client,
        path: &str,
        from: &str,
        (columns, layout): (&server_table::SelectedColumns, &TextTable),
    ) -> Result<End, Failure> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let url = format!("{path}{mark}watch=true&resourceVersion={from}&allowWatchBookmarks=true");
        let stream = client.request_stream(request(&url, server_table::ACCEPT)?).await?;
        let mut lines = stream.lines();
        let mut last = from.to_owned();
        loop {
            let line = match lines.try_next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(End::Timeout(last)),
                Err(error) => {
                    return Err(Failure::environment(format!("the watch broke: {error}"))
                        .hint("is the control plane still running?"));
                }
            };
            let event: Value = serde_json::from_str(&line).map_err(|error| {
                Failure::environment(format!("the watch sent something that is not an event: {error}"))
            })?;
            let event = ObjectView::of(&event);
            let kind = event.read_text("/type");
            let object = event.find("/object").unwrap_or(&Value::Null);
            if kind == "ERROR" {
                return match event.find_number("/object/code") {
                    Some(410) => Ok(End::Expired),
                    _ => {
                        let message = event.find_text("/object/message").unwrap_or("it did not say why");
                        Err(Failure::environment(format!("the server ended the watch: {message}")))
                    }
                };
            }
            if let Some(version) =
                find_version(object).or_else(|| object.pointer("/rows/0/object").and_then(find_version))
            {
                last = version;
            }
            if kind != "BOOKMARK" {
                for row in columns.rows(object) {
                    let line = layout.line(&row);
                    output::print_line(if kind == "DELETED" {
                        output::faint(&format!("{line}   (deleted)"))
                    } else {
                        line
                    });
                }
            }
        }
    }
}

fn find_version(value: &Value) -> Option<String> {
    let version = ObjectView::of(value).read_text("/metadata/resourceVersion");
    (!version.is_empty()).then(|| version.to_owned())
}
