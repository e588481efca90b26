//! What people and programs read. Owns standard output and standard error; refuses colour where nobody sees it
//! (anstream strips it from pipes and files).

use std::io::Write;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::{visible, visible_line};

use crate::columns::Columns;
use crate::failure::Failure;

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The object as JSON.
    Json,
    /// The object as YAML.
    Yaml,
    /// `resource/name`, one a line.
    Name,
}

/// A line to standard output. A reader that has gone away (`| head`) is no error.
pub(crate) fn print_line(text: impl AsRef<str>) {
    let _reader_gone = writeln!(anstream::stdout().lock(), "{}", text.as_ref());
}

/// What a writer writes, to standard output as it is.
pub(crate) fn print_written(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut stdout = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let _reader_gone = write(&mut stdout).and_then(|()| stdout.flush());
}

/// A line to standard error.
pub(crate) fn print_note(text: impl AsRef<str>) {
    let _reader_gone = writeln!(anstream::stderr().lock(), "{}", text.as_ref());
}

/// A failure, as its reader meets it.
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

/// Text in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Green text.
pub(crate) fn good(text: &str) -> String {
    paint(Style::new().fg_color(Some(AnsiColor::Green.into())), text)
}

/// Red text.
pub(crate) fn bad(text: &str) -> String {
    paint(Style::new().fg_color(Some(AnsiColor::Red.into())), text)
}

/// Bold text.
pub(crate) fn bold(text: &str) -> String {
    paint(Style::new().bold(), text)
}

/// Faint text.
pub(crate) fn faint(text: &str) -> String {
    paint(Style::new().dimmed(), text)
}

/// A table without borders, as kubectl prints one: one line a row, as wide as the terminal at most.
pub(crate) fn table(headers: &[String], rows: Vec<Vec<String>>) -> String {
    let headers: Vec<String> = headers.iter().map(|header| header.to_uppercase()).collect();
    let columns = Columns::fitting(&headers, &rows, width());
    let lines = std::iter::once(&headers).chain(&rows).map(|row| columns.line(row));
    lines.collect::<Vec<_>>().join("\n")
}

/// How wide the terminal is; nothing where standard output is none.
pub(crate) fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0))
}

/// Prints objects for programs.
pub(crate) fn objects(objects: &[Value], format: Format, single: bool) -> Result<(), Failure> {
    let list;
    let whole = match objects {
        [only] if single => only,
        _ => {
            list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
            &list
        }
    };
    match format {
        Format::Json => {
            print_line(serde_json::to_string_pretty(whole).map_err(|error| Failure::internal(error.to_string()))?)
        }
        Format::Yaml => print_written(|out| out.write_all(kustomize::to_yaml(whole).as_bytes())),
        Format::Name => {
            for object in objects {
                let object = ObjectView::of(object);
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
