//! The meaning of git's answer to a push: the branch moved, the server protects the branch, or there was no push at all.

use tenure_api::text::visible_line;

/// The most lines of the server that a message repeats.
const MOST_LINES: usize = 3;
/// The reasons of git and of servers for a branch that another writer moved.
const MOVED: [&str; 8] = [
    "(fetch first)",
    "(non-fast-forward)",
    "(stale info)",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
    "reference already exists",
    "failed to lock",
];

/// The result of a push that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The branch moved since the fetch: another writer pushed.
    Moved,
    /// The server refuses the commits: the branch is protected, or a hook denies them. The text is the server's.
    Protected(String),
    /// The push had no answer about the branch. The text is git's.
    Failed(String),
}

/// Reads the outputs of `git push --porcelain` that failed.
#[must_use]
pub fn read_push(stdout: &str, stderr: &str) -> PushOutcome {
    let Some(refused) = stdout.lines().find(|line| line.starts_with('!')) else {
        let lines = stderr.lines().filter(|line| !line.trim().is_empty());
        return PushOutcome::Failed(join_lines(lines));
    };
    if MOVED.iter().any(|reason| refused.contains(reason)) {
        return PushOutcome::Moved;
    }
    let reason = refused.rsplit('\t').next().unwrap_or_default();
    let said = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("remote:"))
        .map(str::trim);
    let said = said.filter(|line| line.chars().any(char::is_alphanumeric));
    PushOutcome::Protected(join_lines([reason].into_iter().chain(said)))
}

fn join_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<_> = lines.take(MOST_LINES).map(|line| visible_line(line.trim())).collect();
    lines.join("; ")
}
