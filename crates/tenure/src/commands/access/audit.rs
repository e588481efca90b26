//! `tenure access audit`: prints every credential that a source uses, with its form, its age, its recipients and its readers, and sets the exit code. No value, part of
//! a value or length is printed: the inputs have none.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::access::Period;
use tenure_api::text::{count_of, visible_line};
use tenure_inspection::access_audit::{Row, SecretRead, Verdict};
use tenure_tenancy::access::readers::{self, AccessPath, OtherReader};

use super::audit_reads::AuditReads;
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::output;

/// List every credential that sources and other objects use, also if Tenure did not make them: form, age, hosts and readers.
///
/// The command reads with your rights, and reports where a right is missing. It never prints values. It exits with 1 if a credential is older than
/// --older-than, has ended or can't be judged, or if something was left out.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Maximum age of a credential, from 1d to 365d.
    #[arg(long, value_name = "PERIOD", default_value = "90d")]
    older_than: Period,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Text)]
    output: Form,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl Audit {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let client = self.connect.client().await?;
        let now = Timestamp::now();
        let survey = AuditReads::make(&client, self.scope.namespace(&client).as_deref(), now).await?;
        let judged: Vec<(&Row, Verdict)> = survey
            .rows
            .iter()
            .map(|row| (row, row.judge_age(self.older_than, now)))
            .collect();
        let found = judged.iter().filter(|(_, verdict)| verdict.is_finding()).count();
        match self.output {
            Form::Json => {
                let credentials: Vec<Value> = judged
                    .iter()
                    .map(|(row, verdict)| describe_for_programs(row, verdict, now))
                    .collect();
                let report = json!({"credentials": credentials, "leftOut": survey.notes, "olderThan": self.older_than.to_string()});
                output::print_json(&report)?;
            }
            Form::Text => {
                for (row, verdict) in &judged {
                    print_row(row, verdict, self.older_than, now);
                }
                for note in &survey.notes {
                    output::print_note(visible_line(note));
                }
                output::print_line(format!(
                    "{}: {found} older than {}, ended, or of unknown age",
                    count_of(judged.len(), "credential"),
                    self.older_than
                ));
            }
        }
        Ok(ExitCode::from(u8::from(found > 0 || !survey.notes.is_empty())))
    }
}

fn print_row(row: &Row, verdict: &Verdict, older_than: Period, now: Timestamp) {
    let line = |title: &str, text: &str| {
        output::print_line(format!("  {title:<13}{}", visible_line(text)));
    };
    let state = match verdict {
        Verdict::Young => output::good("young enough"),
        Verdict::Public => output::good("nothing secret in it"),
        Verdict::Absent => output::bad("does not exist"),
        Verdict::Old => output::bad(&format!("older than {older_than}")),
        Verdict::Ended => output::bad("has ended"),
        Verdict::Unjudged(why) => output::bad(&visible_line(why)),
    };
    let name = row.secret.to_string();
    output::print_line(format!("{}  {state}", output::bold(&visible_line(&name))));
    let forms = list_forms(row);
    if !forms.is_empty() {
        line("form", &forms.join(", "));
    }
    if let SecretRead::Seen(facts) = &row.secret_read {
        if let (Some(at), Some(age)) = (facts.written_at, row.find_age(now)) {
            line("written", &format!("{at}, {} ago", describe_age(age)));
        }
        if let Some(end) = facts.ends_at {
            line("ends", &end.to_string());
        }
        if let Some(made_as) = &facts.made_as {
            line("labelled", &format!("{made_as}, made by Tenure"));
        }
        if !facts.registries.is_empty() {
            line("registries", &join_texts(&facts.registries));
        }
    }
    if let Some(fingerprint) = row.find_fingerprint() {
        line("public key", fingerprint);
    }
    let uses: Vec<String> = row
        .usage
        .uses
        .iter()
        .map(|one| format!("{} {}", one.by, one.field))
        .collect();
    let more = match row.usage.more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    line("used by", &format!("{}{more}", uses.join(", ")));
    if !row.usage.shown_to.is_empty() {
        line("shown to", &join_texts(&row.usage.shown_to));
    }
    for (title, readers) in [
        ("namespace", row.readers.by_namespace.as_deref().map(list_readers)),
        ("cluster", row.readers.by_cluster.as_deref().map(list_ways)),
    ] {
        match readers {
            Err(why) => line(title, &format!("its readers are not known: {why}")),
            Ok(texts) => texts.iter().for_each(|text| line(title, text)),
        }
    }
}

/// Lists the readers by RoleBindings, one for each line.
fn list_readers(readers: &[OtherReader]) -> Vec<String> {
    let all = readers.iter();
    let all = all.map(|reader| format!("{} {} (RoleBinding {})", reader.who, reader.way, reader.binding));
    all.chain(describe_cut(readers)).collect()
}

/// Lists the ways by ClusterRoleBindings, one for each line, since Kubernetes' own accounts alone are a dozen for each way.
fn list_ways(readers: &[OtherReader]) -> Vec<String> {
    let mut ways: Vec<(&AccessPath, Vec<String>)> = Vec::new();
    for reader in readers {
        let who = format!("{} (ClusterRoleBinding {})", reader.who, reader.binding);
        match ways.iter_mut().find(|(known, _)| **known == reader.way) {
            Some((_, all)) => all.push(who),
            None => ways.push((&reader.way, vec![who])),
        }
    }
    let ways = ways.iter().map(|(way, all)| format!("{way}: {}", join_texts(all)));
    ways.chain(describe_cut(readers)).collect()
}

fn list_forms(row: &Row) -> Vec<&'static str> {
    row.list_forms().into_iter().map(|form| form.as_str()).collect()
}

fn join_texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    texts.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn describe_cut(readers: &[OtherReader]) -> Option<String> {
    is_cut(readers).then(|| "and more ways, which are left out".to_owned())
}

fn is_cut(readers: &[OtherReader]) -> bool {
    readers.len() >= readers::MOST
}

fn describe_age(age: SignedDuration) -> String {
    match age.as_hours() {
        hours if hours < 48 => count_of(hours, "hour"),
        hours => count_of(hours / 24, "day"),
    }
}

fn describe_for_programs(row: &Row, verdict: &Verdict, now: Timestamp) -> Value {
    let facts = match &row.secret_read {
        SecretRead::Seen(facts) => Some(facts),
        SecretRead::Absent | SecretRead::Refused | SecretRead::Failed(_) => None,
    };
    let why = match verdict {
        Verdict::Unjudged(why) => Some(why),
        _ => None,
    };
    let uses: Vec<Value> = row
        .usage
        .uses
        .iter()
        .map(|one| json!({"by": one.by, "field": one.field}))
        .collect();
    json!({
        "namespace": row.secret.namespace, "name": row.secret.name, "verdict": verdict.as_str(), "why": why, "forms": list_forms(row),
        "writtenAt": facts.and_then(|facts| facts.written_at).map(|at| at.to_string()),
        "ageSeconds": row.find_age(now).map(|age| age.as_secs()),
        "endsAt": facts.and_then(|facts| facts.ends_at).map(|at| at.to_string()),
        "madeAs": facts.and_then(|facts| facts.made_as.as_ref()),
        "registries": facts.map(|facts| &facts.registries),
        "fingerprint": row.find_fingerprint(),
        "uses": uses, "moreUses": row.usage.more, "shownTo": row.usage.shown_to,
        "readers": {"namespace": describe_readers(&row.readers.by_namespace), "cluster": describe_readers(&row.readers.by_cluster)},
    })
}

fn describe_readers(readers: &Result<Vec<OtherReader>, String>) -> Value {
    match readers {
        Err(why) => json!({"known": false, "why": why}),
        Ok(readers) => {
            let ways = readers
                .iter()
                .map(|reader| json!({"who": reader.who, "way": reader.way.to_string(), "binding": reader.binding}));
            json!({"known": true, "leftOut": is_cut(readers), "ways": ways.collect::<Vec<_>>()})
        }
    }
}
