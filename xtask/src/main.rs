//! The project's automation: one subcommand a file. Owns nothing of the product; refuses to be a build step
//! (a plain `cargo build` and `cargo test` need none of it).

use clap::{Parser, Subcommand};

mod tidy;

/// Automation of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what no compiler checks: layers, module docs, the map, sizes, forbidden words.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Tidy => tidy::run(),
    }
}
