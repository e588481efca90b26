//! The program: one file a subcommand. Owns flags, output and exit codes; refuses to decide anything about a
//! cluster (that is `crates/planner` and `crates/tenancy`).

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod commands;
mod connect;
mod failure;
mod installation;
mod output;
mod plane;
mod provenance;
mod resources;

use failure::Failure;

/// Git reconciled into Kubernetes as somebody: every change within the rights of one ServiceAccount, for one tenant.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Arguments {
    /// What the program logs about itself to standard error: error, warn, info, debug, trace, or a filter by module.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "TENURE_LOG",
        default_value = "warn"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::Demo),
    Up(commands::up::Up),
    Backup(commands::backup::Backup),
    Restore(commands::backup::Restore),
    Build(commands::build::Build),
    Get(commands::get::Get),
    Events(commands::events::Events),
    Who(commands::who::Who),
    Reconcile(commands::reconcile::Reconcile),
    Suspend(commands::reconcile::Suspend),
    Resume(commands::reconcile::Resume),
    Version(commands::version::Version),
    Completion(commands::completion::Completion),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The one TLS provider of the program, chosen before anything can open a connection.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    match start_logging(&arguments.log).and_then(|()| run(arguments.command)) {
        Ok(code) => code,
        Err(failure) => {
            output::failure(&failure);
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(demo) => block_on(demo.run()),
        Command::Up(up) => block_on(up.run()),
        Command::Backup(backup) => block_on(backup.run()),
        Command::Restore(restore) => block_on(restore.run()),
        Command::Who(who) => block_on(who.run()),
        Command::Build(build) => build.run(),
        Command::Version(version) => version.run(),
        Command::Completion(completion) => completion.run(),
        Command::Get(get) => block_on(get.run()),
        Command::Events(events) => block_on(events.run()),
        Command::Reconcile(reconcile) => block_on(reconcile.run()),
        Command::Suspend(suspend) => block_on(suspend.run()),
        Command::Resume(resume) => block_on(resume.run()),
    }
}

fn block_on<F: Future<Output = Result<ExitCode, Failure>>>(work: F) -> Result<ExitCode, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("can't start the run time: {error}")))?
        .block_on(work)
}

fn start_logging(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!("--log: {error}")).hint("try --log info, or --log tenure_controllers=debug")
    })?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_ansi(terminal)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

/// Flags are wrong in ways that only show when they are parsed.
#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
