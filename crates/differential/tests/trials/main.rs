//! Stories that once were answered differently (`data/stories.jsonl`), with the real server's answers: the embedded server gives the same answers, with one trial per
//! story. `cargo xtask differential --replay` asks both servers again.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use tenure_differential::{Embedded, Story, read_stories, replay_story};
use tenure_trials::{Suite, name_of_line};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// The server for all stories, each in a namespace of its own. The first story starts it.
struct Listener {
    runtime: Runtime,
    embedded: OnceCell<Embedded>,
}

impl Listener {
    /// Runs a story, and returns the difference.
    fn run_story(&self, story: &Story) -> Result<(), String> {
        let difference = self.runtime.block_on(async {
            let embedded = self.embedded.get_or_try_init(Embedded::start).await?;
            replay_story(embedded, &story.steps).await
        });
        let Some(difference) = difference.map_err(|error| format!("{error:#}"))? else {
            return Ok(());
        };
        let mut text = format!("{}, step {}", story.title, difference.step);
        if let Some(step) = story.steps.get(difference.step) {
            let _ = write!(text, ": {} {}", step.method, step.path);
        }
        for (path, want, got) in difference.found {
            let _ = write!(text, "\n  {path}\n    want {want}\n    got  {got}");
        }
        Err(text)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let stories = read_stories(include_str!("../../data/stories.jsonl"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let listener = Arc::new(Listener {
        runtime,
        embedded: OnceCell::new(),
    });
    let cases = stories.into_iter().enumerate().map(|(index, story)| {
        let listener = listener.clone();
        (name_of_line(index + 1, &story.title), move || {
            listener.run_story(&story)
        })
    });
    let mut suite = Suite::default();
    suite.add("stories", 258, cases);
    let code = suite.run();
    if let Some(embedded) = listener.embedded.get() {
        listener.runtime.block_on(embedded.close());
    }
    Ok(code)
}
