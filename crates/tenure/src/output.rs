//! Output for people and programs, on standard output and standard error. anstream strips colours from pipes and files.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::{escape_json, escape_json_as_yaml, has_hidden, visible, visible_line};
use tenure_inspection::text_table::{Cell, TextTable, Tone};

use crate::failure::Failure;

/// Output formats of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The object as JSON.
    Json,
    /// The object as YAML.
    Yaml,
    /// The names as `resource/name`, one per line.
    Name,
}

/// Prints a line to standard output. A closed reader (`| head`) is no error.
pub(crate) fn print_line(text: impl AsRef<str>) {
    let _reader_gone = writeln!(anstream::stdout().lock(), "{}", text.as_ref());
}

/// Prints the output of a writer to standard output, unchanged.
pub(crate) fn print_written(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut stdout = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let _reader_gone = write(&mut stdout).and_then(|()| stdout.flush());
}

/// Prints a line to standard error.
pub(crate) fn print_note(text: impl AsRef<str>) {
    let _reader_gone = writeln!(anstream::stderr().lock(), "{}", text.as_ref());
}

/// Prints a failure for the user.
pub(crate) fn failure(failure: &Failure) {
    print_note(format!(
        "{} {}",
        paint(Style::new().bold().fg_color(Some(AnsiColor::Red.into())), "error:"),
        visible(&failure.message)
    ));
    if let Some(hint) = &failure.hint {
        print_note(format!(
            "{} {}",
            paint(Style::new().bold().fg_color(Some(AnsiColor::Cyan.into())), "hint:"),
            visible(hint)
        ));
    }
}

/// Returns text in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Returns green text.
pub(crate) fn good(text: &str) -> String {
    paint(Style::new().fg_color(Some(AnsiColor::Green.into())), text)
}

/// Returns red text.
pub(crate) fn bad(text: &str) -> String {
    paint(Style::new().fg_color(Some(AnsiColor::Red.into())), text)
}

/// Returns bold text.
pub(crate) fn bold(text: &str) -> String {
    paint(Style::new().bold(), text)
}

/// Returns faint text.
pub(crate) fn faint(text: &str) -> String {
    paint(Style::new().dimmed(), text)
}

/// Returns a text in the colour of its meaning.
pub(crate) fn paint_tone(tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        Tone::Good => good(text),
        Tone::Bad => bad(text),
        Tone::Warning => paint(Style::new().fg_color(Some(AnsiColor::Yellow.into())), text),
    }
}

/// Returns the lines of a row.
pub(crate) fn lay_out(layout: &TextTable, row: &[Cell]) -> String {
    layout.format_row(row, paint_tone).join("\n")
}

/// Formats a table without borders, like kubectl, at most as wide as the terminal.
pub(crate) fn table<C: Into<Cell>>(headers: &[String], rows: Vec<Vec<C>>) -> String {
    let headers: Vec<String> = headers.iter().map(|header| header.to_uppercase()).collect();
    let to_cells = |row: Vec<C>| row.into_iter().map(Into::into).collect::<Vec<Cell>>();
    let rows: Vec<Vec<Cell>> = rows.into_iter().map(to_cells).collect();
    let layout = TextTable::fit_widths(&headers, &rows, width());
    let headers: Vec<Cell> = headers.into_iter().map(Cell::from).collect();
    let lines = std::iter::once(&headers).chain(&rows).map(|row| lay_out(&layout, row));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the width of the terminal; `None` if standard output is no terminal.
pub(crate) fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0))
}

/// Writes data as JSON. Invisible characters are written as escapes such as `\u202e`, because a terminal would obey them.
pub(crate) fn write_json(data: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(data).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(escape_json(&text).into_owned())
}

/// Prints data as JSON.
pub(crate) fn print_json(data: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    print_line(write_json(data)?);
    Ok(())
}

/// Prints data as YAML. Data with invisible characters are printed in YAML's JSON form, which has an escape for each.
pub(crate) fn print_yaml(data: &Value) -> Result<(), Failure> {
    let text = kustomize::to_yaml(data);
    if !has_hidden(&text) {
        print_written(|out| out.write_all(text.as_bytes()));
        return Ok(());
    }
    let json = serde_json::to_string_pretty(data).map_err(|error| Failure::internal(error.to_string()))?;
    print_line(escape_json_as_yaml(&json));
    Ok(())
}

/// Returns objects as a list, in kubectl's form.
pub(crate) fn make_list(objects: &[Value]) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects})
}

/// Prints objects for programs.
pub(crate) fn objects(objects: &[Value], format: Format, single: bool) -> Result<(), Failure> {
    let list;
    let whole = match objects {
        [only] if single => only,
        _ => {
            list = make_list(objects);
            &list
        }
    };
    match format {
        Format::Json => print_json(whole)?,
        Format::Yaml => print_yaml(whole)?,
        Format::Name => {
            for object in objects {
                let object = ObjectView::new(object);
                let kind = object.read_text("/kind").to_lowercase();
                let name = object.read_text("/metadata/name");
                let group = object
                    .read_text("/apiVersion")
                    .split_once('/')
                    .map(|(group, _)| format!(".{group}"))
                    .unwrap_or_default();
                print_line(format!("{kind}{group}/{}", visible_line(name)));
            }
        }
    }
    Ok(())
}
