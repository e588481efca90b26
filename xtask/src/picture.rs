//! `cargo xtask picture`: draws a terminal with the demo for README, from a real run.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::scenarios::SUITE;
use crate::{cargo, tidy};

/// The drawn file.
const FILE: &str = "docs/pictures/demo.svg";

/// The command at the top of the picture.
const PROMPT: &str = "$ tenure demo --once";

/// The width of the terminal in characters. Longer lines are cut.
const COLUMNS: usize = 110;
/// The most lines that one part of the demo shows, with its title.
const PART: usize = 7;

/// The mark of a step that held.
const STEP: &str = " ✓";

/// The width of a character, the height of a line and the margin, in pixels.
const CHARACTER: f32 = 8.43;
const LINE: usize = 20;
const MARGIN: usize = 20;
/// The height of the window's title bar, in pixels.
const BAR: usize = 34;

/// Runs the demo with the program that is built for tests, and writes the picture.
///
/// # Errors
/// When the demo fails, or the file can't be written.
pub(crate) fn run() -> anyhow::Result<()> {
    // The program is built with its scenarios, with the features of all tests.
    cargo::run(&["test", "--quiet", "--workspace", "--no-run", "--test", SUITE], &[])?;
    let data = cargo::find_target().join("picture");
    if data.exists() {
        std::fs::remove_dir_all(&data).with_context(|| data.display().to_string())?;
    }
    let program = cargo::find_target().join("debug/tenure");
    let output = Command::new(&program)
        .args(["demo", "--once", "--data"])
        .arg(&data)
        .output()
        .with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("tenure demo: {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    let file = tidy::find_root().join(FILE);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, draw_picture(&select_lines(&text))).with_context(|| file.display().to_string())?;
    writeln!(std::io::stdout(), "{FILE}")?;
    Ok(())
}

/// Selects the title and the first steps of each part, and the summary. A title begins with a number. The text between a title and its first step is left out.
fn select_lines(text: &str) -> Vec<String> {
    let mut lines = vec![PROMPT.to_owned()];
    let mut shown = None;
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if is_heading(line) {
            lines.push(String::new());
            shown = Some(0);
        } else if !line.starts_with(' ') {
            shown = None;
        }
        if is_summary(line) {
            lines.extend([String::new(), line.to_owned()]);
            break;
        }
        match &mut shown {
            Some(1) if !line.starts_with(STEP) => continue,
            Some(shown) if *shown < PART => *shown += 1,
            _ => continue,
        }
        lines.push(cut_line(line));
    }
    lines
}

fn is_heading(line: &str) -> bool {
    let (number, title) = line.split_once(". ").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !title.is_empty()
}

fn is_summary(line: &str) -> bool {
    line.contains(" steps held, in ")
}

/// Cuts a line at the terminal's width.
fn cut_line(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    line.chars().take(COLUMNS - 1).chain(['…']).collect()
}

/// Draws a window with these lines.
fn draw_picture(lines: &[String]) -> String {
    let width = (COLUMNS as f32 * CHARACTER) as usize + 2 * MARGIN;
    let height = BAR + lines.len() * LINE + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"The demo in a terminal\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1b1f27\"/>\n"
    );
    for (place, color) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        let x = MARGIN + place * 18;
        let _infallible = writeln!(svg, "<circle cx=\"{x}\" cy=\"17\" r=\"5\" fill=\"{color}\"/>");
    }
    svg.push_str(
        "<g font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n",
    );
    for (place, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = BAR + place * LINE + LINE / 2;
        let _infallible = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{}\" style=\"white-space: pre\">{}</text>",
            choose_color(line),
            mark(&escape_text(line))
        );
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Returns the color of a line by its kind: a heading, a step, the summary, or details.
fn choose_color(line: &str) -> &'static str {
    match line {
        _ if line == PROMPT || is_heading(line) => "#ffffff",
        _ if is_summary(line) => "#28c840",
        _ if line.starts_with(STEP) => "#d7dce5",
        _ => "#8b93a3",
    }
}

/// Colors the mark of a step.
fn mark(line: &str) -> String {
    line.replacen(STEP, " <tspan fill=\"#28c840\">✓</tspan>", 1)
}

fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "Starting\n\n1. The platform: two tenants\n   An administrator begins.\n ✓ it is <reconciled>  88 ms\n   as somebody\n\n2. More\n ✓ a\n ✓ b\n ✓ c\n ✓ d\n ✓ e\n ✓ f\n ✓ g\n\n3. Last\n ✓ a\nWhat was seen\n  a table\n\n7 of 7 steps held, in 6.1 s.\nstays up\n";

    #[test]
    fn each_part_shows_its_first_lines() {
        let expected = [
            PROMPT,
            "",
            "1. The platform: two tenants",
            " ✓ it is <reconciled>  88 ms",
            "   as somebody",
            "",
            "2. More",
            " ✓ a",
            " ✓ b",
            " ✓ c",
            " ✓ d",
            " ✓ e",
            " ✓ f",
            "",
            "3. Last",
            " ✓ a",
            "",
            "7 of 7 steps held, in 6.1 s.",
        ];
        assert_eq!(select_lines(RUN), expected);
        assert_eq!(cut_line(&"é".repeat(COLUMNS + 1)).chars().count(), COLUMNS);
    }

    #[test]
    fn a_picture_is_xml_with_every_line() {
        let svg = draw_picture(&select_lines(RUN));
        assert!(
            svg.contains("<tspan fill=\"#28c840\">✓</tspan> it is &lt;reconciled&gt;  88 ms"),
            "{svg}"
        );
        assert_eq!(svg.matches("<text").count(), 14, "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
