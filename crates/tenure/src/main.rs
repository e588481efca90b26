//! The program, with one file for each subcommand. It has flags, output and exit codes. `crates/planner` and `crates/tenancy` make all decisions about a cluster.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod acting_account;
mod admission_server;
mod advertised_address;
mod allocator;
mod api_answers;
mod artifact_client;
mod artifact_extension;
mod artifact_server;
mod audit_log;
mod caller;
mod chart_origin;
mod client;
mod commands;
mod completion_words;
#[cfg(target_os = "linux")]
mod confinement;
mod confirmation;
mod connect;
mod connection_failure;
mod control_plane;
mod failure;
mod health_server;
mod helm_controller;
mod hook_server;
mod in_cluster_config;
mod inspection;
mod installation;
mod interruption;
mod kind_lists;
mod lane_grants;
mod lane_server;
mod logging;
mod metrics_server;
mod named_objects;
mod object_path;
mod object_watch;
mod output;
mod own_connections;
mod paged_reads;
mod plain_http;
mod progress;
mod provenance;
mod quantity;
mod readiness;
mod repositories;
mod resources;
mod reviews;
mod targets;
mod traces;
mod uninstallation;
mod value_layers;

use failure::Failure;
use logging::LogFormat;

/// The default filter of the log.
const DEFAULT_LOG: &str = "warn";

/// Reconcile Git into Kubernetes with tenant isolation: each change uses the rights of one ServiceAccount, for one tenant.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Arguments {
    /// Level of the program's own log on standard error: error, warn, info, debug or trace, or a filter by module.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "TENURE_LOG",
        default_value = DEFAULT_LOG
    )]
    log: String,
    /// Format of the program's own log.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "TENURE_LOG_FORMAT",
        value_enum,
        default_value_t = LogFormat::Text
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

/// Run Tenure's embedded control plane without controllers, for programs that start a kube-apiserver.
#[derive(Debug, Parser)]
#[command(name = "kube-apiserver", version = apiserver_version(), max_term_width = 100)]
struct KubeApiserver {
    #[command(flatten)]
    up: commands::up::Up,
}

/// Stand in for etcd, for programs that start one. It stores nothing.
#[derive(Debug, Parser)]
#[command(name = "etcd", version, max_term_width = 100)]
struct EtcdProgram {
    #[command(flatten)]
    etcd: commands::etcd::Etcd,
}

/// Returns the Kubernetes release whose API server this one follows.
fn apiserver_version() -> &'static str {
    tenure_apiserver::VERSION
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::Demo),
    Up(Box<commands::up::Up>),
    Run(Box<commands::run::Run>),
    Install(Box<commands::install::Install>),
    Bootstrap(Box<commands::bootstrap::Bootstrap>),
    Uninstall(commands::uninstall::Uninstall),
    Backup(commands::backup::Backup),
    Restore(commands::backup::Restore),
    Build(commands::build::Build),
    Check(Box<commands::check::Check>),
    Diff(commands::diff::Diff),
    Get(commands::get::Get),
    Events(commands::events::Events),
    Tree(commands::tree::Tree),
    Trace(commands::trace::Trace),
    Who(commands::who::Who),
    Values(commands::values::Values),
    Recover(commands::recover::Recover),
    Audit(commands::audit::Audit),
    Access(commands::access::Command),
    Adopt(commands::adopt::Adopt),
    Customizer(commands::customizer::Command),
    Attest(commands::attest::Attest),
    Reach(Box<commands::reach::ReachCommand>),
    Export(commands::export::Export),
    Logs(commands::logs::Logs),
    Create(commands::create::Create),
    Delete(commands::delete::Delete),
    Reconcile(commands::reconcile::Reconcile),
    Suspend(commands::reconcile::Suspend),
    Resume(commands::reconcile::Resume),
    Version(commands::version::Version),
    Completion(commands::completion::Completion),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Lane(commands::lane::Lane),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Confined(commands::confined::Confined),
    #[command(hide = true)]
    Man(commands::man::Man),
    #[command(hide = true)]
    Etcd(commands::etcd::Etcd),
}

/// Returns the parsed arguments. The program's name can select the command as well: envtest starts a kube-apiserver and an etcd, and knows no subcommands.
fn read_arguments() -> Result<Arguments, Failure> {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(std::path::Path::file_name);
    let command = match name.and_then(std::ffi::OsStr::to_str) {
        Some("kube-apiserver") => Command::Up(Box::new(KubeApiserver::parse().up.only_kube_apiserver()?)),
        Some("etcd") => Command::Etcd(EtcdProgram::parse().etcd),
        _ => return Ok(Arguments::parse()),
    };
    let log = std::env::var("TENURE_LOG").unwrap_or_else(|_| DEFAULT_LOG.to_owned());
    let log_format = match std::env::var("TENURE_LOG_FORMAT").as_deref() {
        Ok("json") => LogFormat::Json,
        _ => LogFormat::Text,
    };
    Ok(Arguments {
        log,
        log_format,
        command,
    })
}

fn main() -> ExitCode {
    clap_complete::CompleteEnv::with_factory(<Arguments as clap::CommandFactory>::command)
        .var(commands::completion::VARIABLE)
        .complete();
    let started = read_arguments().and_then(|arguments| match arguments.command {
        // A build opens no connection and logs nothing, and ends before either could be set up.
        Command::Build(build) => {
            if arguments.log != DEFAULT_LOG {
                logging::make_filter(&arguments.log)?;
            }
            build.run()
        }
        // The process confines itself before it has a second thread.
        #[cfg(target_os = "linux")]
        Command::Lane(lane) if !lane.is_in_pod() => {
            let lane = lane.confine()?;
            let _already_chosen = rustls::crypto::ring::default_provider().install_default();
            let log = logging::start_log(&arguments.log, arguments.log_format)?;
            let code = lane.run();
            log.finish();
            code
        }
        #[cfg(target_os = "linux")]
        Command::Confined(confined) => Err(confined.become_program()),
        command => {
            // The one TLS provider of the program, chosen before anything can open a connection.
            let _already_chosen = rustls::crypto::ring::default_provider().install_default();
            let log = logging::start_log(&arguments.log, arguments.log_format)?;
            let code = run(command);
            log.finish();
            code
        }
    });
    match started {
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
        Command::Run(run) => block_on(run.run()),
        Command::Install(install) => block_on(install.run()),
        Command::Bootstrap(bootstrap) => block_on(bootstrap.run()),
        Command::Uninstall(uninstall) => block_on(uninstall.run()),
        Command::Backup(backup) => block_on(backup.run()),
        Command::Restore(restore) => block_on(restore.run()),
        Command::Who(who) => block_on(who.run()),
        Command::Values(values) => block_on(values.run()),
        Command::Recover(recover) => block_on(recover.run()),
        Command::Audit(audit) => block_on(audit.run()),
        Command::Access(access) => block_on(access.run()),
        Command::Adopt(adopt) => block_on(adopt.run()),
        Command::Customizer(customizer) => block_on(customizer.run()),
        Command::Attest(attest) => block_on(attest.run()),
        Command::Reach(reach) => block_on(reach.run()),
        Command::Build(build) => build.run(),
        Command::Check(check) => block_on(check.run()),
        Command::Diff(diff) => block_on(diff.run()),
        #[cfg(target_os = "linux")]
        Command::Lane(lane) => block_on(lane.run_in_pod()),
        #[cfg(target_os = "linux")]
        Command::Confined(confined) => Err(confined.become_program()),
        Command::Version(version) => version.run(),
        Command::Completion(completion) => completion.run(),
        Command::Man(man) => man.run(<Arguments as clap::CommandFactory>::command()),
        Command::Etcd(etcd) => block_on(etcd.run()),
        Command::Get(get) => block_on(get.run()),
        Command::Events(events) => block_on(events.run()),
        Command::Tree(tree) => block_on(tree.run()),
        Command::Trace(trace) => block_on(trace.run()),
        Command::Export(export) => block_on(export.run()),
        Command::Logs(logs) => block_on(logs.run()),
        Command::Delete(delete) => block_on(delete.run()),
        Command::Create(create) => block_on(create.run()),
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

/// Wrong definitions of flags only show when arguments are parsed.
#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Arguments::command().debug_assert();
        super::KubeApiserver::command().debug_assert();
        super::EtcdProgram::command().debug_assert();
    }
}
