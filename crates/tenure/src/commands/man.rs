//! `tenure man DIR`: writes the manual, a page for the program and one for each subcommand, from the definitions of the flags. The module escapes plain text for roff.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Args, Command};

use crate::failure::{EXIT_CODES, Failure};
use crate::output;

/// Write the manual pages into a folder.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages.
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, mut program: Command) -> Result<ExitCode, Failure> {
        program.build();
        write_pages(&self.folder, &program)?;
        output::print_note(format!("{} has the pages", self.folder.display()));
        Ok(ExitCode::SUCCESS)
    }
}

fn write_pages(folder: &Path, command: &Command) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let file = folder.join(format!("{name}.1"));
    std::fs::write(&file, write_page(&name, command))
        .map_err(|error| Failure::environment(format!("{}: {error}", file.display())))?;
    for subcommand in command.get_subcommands().filter(|command| is_shown(command)) {
        write_pages(folder, subcommand)?;
    }
    Ok(())
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn write_page(name: &str, command: &Command) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".TH \"{}\" 1 \"\" \"tenure {version}\" \"Tenure\"\n",
        escape_text(&name.to_uppercase())
    );
    let mut section = |title: &str, body: &str| page.push_str(&format!(".SH {title}\n{body}"));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    section("NAME", &format!("{} \\- {}\n", escape_text(name), escape_text(&about)));
    let mut command_line = command.clone();
    let usage = command_line.render_usage().to_string();
    section(
        "SYNOPSIS",
        &format!(".nf\n{}\n.fi\n", escape_text(usage.trim_start_matches("Usage: "))),
    );
    if let Some(long) = command.get_long_about() {
        section("DESCRIPTION", &write_paragraphs(&long.to_string()));
    }
    let arguments: String = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .map(write_argument)
        .collect();
    if !arguments.is_empty() {
        section("OPTIONS", &arguments);
    }
    let subcommands: String = command
        .get_subcommands()
        .filter(|command| is_shown(command))
        .map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            format!(
                ".TP\n\\fB{}\\fR\n{}\n",
                escape_text(command.get_name()),
                escape_text(&about)
            )
        })
        .collect();
    if !subcommands.is_empty() {
        section("COMMANDS", &subcommands);
    }
    section(
        "EXIT STATUS",
        &write_paragraphs(EXIT_CODES.trim_start_matches("Exit codes: ")),
    );
    page
}

fn write_argument(argument: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|short| format!("\\fB\\-{short}\\fR")));
    names.extend(
        argument
            .get_long()
            .map(|long| format!("\\fB\\-\\-{}\\fR", escape_text(long))),
    );
    let mut head = names.join(", ");
    if argument.get_action().takes_values() || argument.is_positional() {
        let values = argument.get_value_names().unwrap_or_default().join(" ");
        let separator = if head.is_empty() { "" } else { " " };
        head.push_str(&format!("{separator}\\fI{}\\fR", escape_text(&values)));
    }
    let help = argument
        .get_long_help()
        .or(argument.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut text = write_paragraphs(&help);
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
        .collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        text.push_str(&format!("[default: {}]\n", escape_text(&defaults.join(" "))));
    }
    format!(".TP\n{head}\n{text}")
}

fn write_paragraphs(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| format!("{}\n", escape_text(paragraph)))
        .collect();
    paragraphs.join(".PP\n")
}

/// Escapes a text for roff, so that nothing in it is a command, and a hyphen can be copied.
fn escape_text(text: &str) -> String {
    let escaped = text.trim().replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| match line.as_bytes().first() {
        Some(b'.' | b'\'') => format!("\\&{line}"),
        _ => line.to_owned(),
    };
    escaped.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_man_page() {
        assert_eq!(
            escape_text(".so /etc/passwd\n'x\nC:\\a --b"),
            "\\&.so /etc/passwd\n\\&'x\nC:\\ea \\-\\-b"
        );
    }

    #[test]
    fn a_page_names_every_flag_that_is_shown() {
        let mut command = Command::new("tool")
            .about("Does it.")
            .arg(Arg::new("depth").long("depth").default_value("3").help("How deep."));
        command = command.arg(Arg::new("secret").long("secret").hide(true));
        command.build();
        let page = write_page("tool", &command);
        for words in [
            ".TH \"TOOL\" 1",
            "tool \\- Does it.",
            "\\fB\\-\\-depth\\fR",
            "How deep.",
            "[default: 3]",
            ".SH EXIT STATUS",
        ] {
            assert!(page.contains(words), "no {words:?}: {page}");
        }
        assert!(!page.contains("secret"), "{page}");
    }
}
