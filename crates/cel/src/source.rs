//! The text of an expression, and the printed form of its errors: with line, column and the line itself, as Kubernetes prints them.

/// An error in an expression, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The position in code points from the start of the expression.
    pub position: usize,
    /// The error.
    pub message: String,
}

/// The error of an expression that does not compile. Its text is a kube-apiserver's message: each problem with its place and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CompileError {
    text: String,
    /// The problems in the order of the source.
    pub problems: Vec<Problem>,
}

/// The maximum number of problems in one message.
const MOST_PROBLEMS: usize = 100;

impl CompileError {
    pub(crate) fn new(source: &[char], mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.position);
        let mut shown: Vec<String> = problems
            .iter()
            .take(MOST_PROBLEMS)
            .map(|problem| format_problem(source, problem))
            .collect();
        if problems.len() > MOST_PROBLEMS {
            shown.push(format!("{} more errors were truncated", problems.len() - MOST_PROBLEMS));
        }
        Self {
            text: shown.join("\n"),
            problems,
        }
    }
}

fn format_problem(source: &[char], problem: &Problem) -> String {
    let before = source.get(..problem.position).unwrap_or(source);
    let line = before.iter().filter(|letter| **letter == '\n').count();
    let start = before
        .iter()
        .rposition(|letter| *letter == '\n')
        .map_or(0, |newline| newline + 1);
    let column = before.len() - start;
    let text: Vec<char> = source
        .iter()
        .skip(start)
        .take_while(|letter| **letter != '\n')
        .map(|letter| if *letter == '\t' { ' ' } else { *letter })
        .collect();
    // Wide marks below wide letters keep the arrow in place.
    let mut marks: String = text
        .iter()
        .take(column)
        .map(|letter| if letter.is_ascii() { '.' } else { '\u{ff0e}' })
        .collect();
    marks.push(match text.get(column) {
        Some(letter) if !letter.is_ascii() => '\u{ff3e}',
        _ => '^',
    });
    format!(
        "ERROR: <input>:{}:{}: {}\n | {}\n | {marks}",
        line + 1,
        column + 1,
        problem.message,
        text.iter().collect::<String>(),
    )
}
