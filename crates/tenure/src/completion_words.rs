//! The incomplete command line of a shell that asks for completions, and the bounds of an answer. An error can't be shown there, so it gives no completions.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;

use crate::failure::Failure;

/// The timeout for the cluster.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest number of offered words.
const MOST: usize = 200;

/// Returns the words so far: the program, the subcommand and so on, up to the current word.
pub(crate) fn list_words() -> Vec<String> {
    std::env::args().skip_while(|word| word != "--").skip(1).collect()
}

/// Returns the offered words that begin with the current one.
pub(crate) fn select_words(current: &OsStr, offered: Vec<String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fitting = offered.into_iter().filter(|word| word.starts_with(&*current));
    fitting.take(MOST).map(CompletionCandidate::new).collect()
}

/// Waits for an answer of the cluster, up to a limit.
pub(crate) fn ask_cluster<F: Future<Output = Result<Vec<String>, Failure>>>(question: F) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, question).await });
    answer.ok().and_then(Result::ok).unwrap_or_default()
}
