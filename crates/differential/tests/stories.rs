//! Stories that once were answered differently (`data/stories.jsonl`), with the real server's answers: the embedded server
//! gives the same ones. `cargo xtask differential --replay` asks both servers again.

use std::fmt::Write as _;

use tenure_differential::{Embedded, read_stories, replay};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_once_differed_is_the_same() -> anyhow::Result<()> {
    let stories = read_stories(include_str!("../data/stories.jsonl"))?;
    assert!(stories.len() > 50);
    let embedded = Embedded::start().await?;
    let mut differing = String::new();
    for story in &stories {
        let Some(difference) = replay(&embedded, &story.steps).await? else {
            continue;
        };
        writeln!(differing, "{}, step {}", story.title, difference.step)?;
        for (path, want, got) in difference.found {
            writeln!(differing, "  {path}\n    want {want}\n    got  {got}")?;
        }
    }
    embedded.close().await;
    assert!(differing.is_empty(), "{differing}");
    Ok(())
}
