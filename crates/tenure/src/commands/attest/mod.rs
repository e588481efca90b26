//! `tenure attest`: tries the attacks of docs/security.md that admission and RBAC stop, on the current cluster, with tenants that are created for it and removed. The
//! module announces the run, orders its steps, and removes all objects. `tenure_inspection::attestation` has the attacks and interprets the answers. The run needs
//! confirmation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use http::Method;
use jiff::Timestamp;
use tenure_api::metadata::ATTEST_PREFIX;
use tenure_inspection::attestation::{
    Attack, AttackRequest, AttemptResult, Outcome, Report, Sender, Verb, assess_attack, list_attacks, write_html,
};

mod fixtures;

use crate::api_answers::{apply_object, send_request};
use crate::client::open_client;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{acting_account, confirmation, interruption, lane_grants, output, resources};
use fixtures::Fixtures;

/// The timeout for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attack the cluster as a tenant would, and report which attacks it stops.
///
/// The command makes two Tenants, attest-SUFFIX and attest-SUFFIX-b, with their home namespaces, a ServiceAccount for each owner, rights in these
/// namespaces, and other targets of attacks. It tries each attack beside a control, which has to succeed. Attacks are dry runs wherever their success would
/// reach beyond the first Tenant. At the end the command removes everything that it made. If it is killed, its objects end within an hour. It needs the
/// rights of an administrator.
///
/// Exit codes: 0 every attack that could be tried held; 1 an attack did not hold, nothing could be tried, or a shared lane may request an administrator's
/// token; more than 1 the command could not run.
#[derive(Debug, Args)]
pub(crate) struct Attest {
    /// Skip the confirmation.
    #[arg(long)]
    yes: bool,
    /// Format of standard output.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Text)]
    output: Form,
    /// Also write a report to this file: a page if its name ends with .html, data with .json, else text.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Seconds after which the created objects end, even if this program is killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..=86_400), hide = true)]
    expires_after: u32,
    #[command(flatten)]
    connect: Connect,
}

/// Formats of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line for each attack, the worst first.
    Text,
    /// The results as JSON.
    Json,
    /// A page that needs no other file.
    Html,
}

impl Attest {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.attest().await.map_err(Failure::never_negative)
    }

    async fn attest(&self) -> Result<ExitCode, Failure> {
        let config = self.connect.read_config_of_cluster().await?;
        acting_account::refuse_impersonation(&config, "tenure attest")?;
        let client = open_client(config.clone())?;
        let served = resources::list_served(&client).await?;
        resources::find_resource(&served, "tenants.capsule.clastix.io")?;
        if !self.yes {
            output::print_note(format!(
                "On {} two Tenants are created, {ATTEST_PREFIX}SUFFIX and {ATTEST_PREFIX}SUFFIX-b, with a namespace each, two ServiceAccounts in the platform's \
                 namespace, and rights in the first of the two namespaces. Attacks are tried there, with the controllers' and the API server's attention; then all of it \
                 is removed.",
                config.cluster_url
            ));
            confirmation::ask_confirmation("--yes does it")?;
        }
        let progress = Progress::start();
        fixtures::sweep_left_over(&client).await?;
        let report = Report {
            cluster: config.cluster_url.to_string(),
            started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            results: Vec::new(),
        };
        let shared = lane_grants::find_minters(&client).await?;
        let scene = Fixtures::name(config, client, self.expires_after);
        // The created objects are removed after every end of the run.
        let ended = interruption::wait_for_signal();
        let tried = tokio::select! {
            tried = self.try_all(&scene, report, &progress) => tried.map(Some),
            ended = ended => ended.map(|()| None),
        };
        if let Ok(None) = tried {
            progress.warn("interrupted: the created objects are removed");
        }
        let waiting = progress.wait("the objects of the attestation to be gone");
        let removed = scene.remove().await;
        drop(waiting);
        if removed.is_ok() {
            progress.succeed("the objects of the attestation are gone");
        }
        let Some(report) = tried? else {
            removed?;
            return Ok(interruption::exit_code());
        };
        self.print_report(&report)?;
        // The results stay valid, and the removal continues in the cluster.
        if let Err(failure) = removed {
            output::print_note(format!("the created objects are not gone yet: {}", failure.message));
        }
        for shared in &shared {
            output::print_note(shared.to_string());
        }
        Ok(ExitCode::from(u8::from(!report.has_held() || !shared.is_empty())))
    }

    async fn try_all(&self, scene: &Fixtures, mut report: Report, progress: &Progress) -> Result<Report, Failure> {
        let names = scene.make(progress).await?;
        let attacks = list_attacks(&names);
        // Until this time, the run waits for refusals that take effect with a delay.
        let settled = Instant::now() + fixtures::SETTING;
        let waiting = progress.wait("the rights of the attackers to be in force");
        let cast = scene.cast(&names, &attacks).await?;
        drop(waiting);
        progress.print_action(format!("trying {} attacks", attacks.len()));
        let waiting = progress.wait(format!("the answers to {} attacks", attacks.len()));
        for (number, attack) in attacks.iter().enumerate() {
            waiting.set_step(&format!("{} of {}, {}", number + 1, attacks.len(), attack.name));
            if attack.takes_time() {
                wait_until_refused(&cast, attack, settled).await;
            }
            report.results.push(try_one(&cast, attack).await);
        }
        waiting.set_step("a credential for a namespace that fits a pattern");
        report.results.push(scene.judge_pattern(&names).await?);
        waiting.set_step("the reach of the tenant");
        report.results.push(scene.judge_reach(&names).await?);
        drop(waiting);
        progress.succeed(format!("{} attacks are tried", report.results.len()));
        Ok(report)
    }

    fn print_report(&self, report: &Report) -> Result<(), Failure> {
        if let Some(path) = &self.report {
            let form = match path.extension().and_then(std::ffi::OsStr::to_str) {
                Some("html" | "htm") => Form::Html,
                Some("json") => Form::Json,
                _ => Form::Text,
            };
            std::fs::write(path, write_report(report, form)?)
                .map_err(|error| Failure::environment(format!("{}: {error}", path.display())))?;
        }
        output::print_line(write_report(report, self.output)?.trim_end());
        if self.output != Form::Text {
            output::print_note(report.summarize_counts());
        }
        if report.count_outcomes(Outcome::Held) == 0 {
            output::print_note("nothing held: either admission is off here, or nothing could be tried");
        }
        Ok(())
    }
}

fn write_report(report: &Report, form: Form) -> Result<String, Failure> {
    match form {
        Form::Text => Ok(report.write_text()),
        Form::Json => output::write_json(report),
        Form::Html => Ok(write_html(report)),
    }
}

/// The client of each user that sends requests of an attack or a control.
type SenderClients = BTreeMap<Sender, kube::Client>;

/// Tries an attack. The control comes first, because a burst would use up its quota.
async fn try_one(cast: &SenderClients, attack: &Attack) -> tenure_inspection::attestation::AttackResult {
    let control = ask_attack(cast, &attack.control, 0, |_| true).await;
    let count = attack.burst.map_or(1, |burst| burst.count);
    let attempts =
        (0..count).map(|number| ask_attack(cast, &attack.attempt, number, |answer| attack.has_effect(answer)));
    let attempts = futures::future::join_all(attempts).await;
    assess_attack(attack, &attempts, &control)
}

/// Waits until a refusal that needs a moment takes effect, at most until the deadline. The later result counts in both cases.
async fn wait_until_refused(cast: &SenderClients, attack: &Attack, deadline: Instant) {
    while ask_attack(cast, &attack.attempt, 0, |_| true).await.is_done() && Instant::now() < deadline {
        tokio::time::sleep(fixtures::PAUSE).await;
    }
}

/// Sends one request; the content of the answer is not stored.
async fn ask_attack(
    cast: &SenderClients,
    ask: &AttackRequest,
    number: u32,
    has_effect: impl Fn(&serde_json::Value) -> bool,
) -> AttemptResult {
    let nobody = |message: String| AttemptResult {
        message,
        ..AttemptResult::default()
    };
    let Some(client) = cast.get(&ask.who) else {
        return nobody("its account does not exist".to_owned());
    };
    let number = number.to_string();
    let method = match ask.verb {
        Verb::Read => Method::GET,
        Verb::Create => Method::POST,
        Verb::Replace => Method::PUT,
        Verb::Change | Verb::Apply => Method::PATCH,
        Verb::Delete => Method::DELETE,
    };
    let path = ask.path.replace("{n}", &number);
    let sign = if path.contains('?') { '&' } else { '?' };
    let path = match (ask.verb, ask.dry_run) {
        (Verb::Read, _) => format!("{path}{sign}limit=1"),
        (_, true) => format!("{path}{sign}dryRun=All"),
        (_, false) => path,
    };
    let text = ask.body.to_string().replace("{n}", &number);
    let body = match serde_json::from_str(&text) {
        Ok(body) if ask.verb != Verb::Read => body,
        _ => serde_json::Value::Null,
    };
    let sent = async {
        match ask.verb {
            Verb::Apply => apply_object(client, &path, &body).await,
            _ => send_request(client, method, &path, &body).await,
        }
    };
    match tokio::time::timeout(PATIENCE, sent).await {
        Ok(Ok(answer)) => AttemptResult {
            code: answer.code,
            has_effect: has_effect(&answer.object),
            message: answer.message,
        },
        Ok(Err(error)) => nobody(error),
        Err(_) => nobody(format!("there was no answer within {} s", PATIENCE.as_secs())),
    }
}
