//! `tenure access show`: prints everything about one request. Its inputs have no values of credentials.

use std::process::ExitCode;

use clap::Args;
use futures::StreamExt as _;
use jiff::Timestamp;
use tenure_api::access::FluxAccessRequest;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::{count_of, visible_line};
use tenure_api::time::Time;
use tenure_inspection::access_audit::{NamedObject, find_other_readers};
use tenure_inspection::access_reports::ObservedFacts;
use tenure_inspection::access_reports::detail::{
    self, Credential, CredentialDetail, Detail, MaybeUnknown, OtherReaders,
};
use tenure_inspection::access_reports::receivers;
use tenure_inspection::ages::write_distance;

use super::audit_reads;
use super::cluster_reads::AccessReader;
use super::output::{Output, Printed, describe, join_texts};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::output;

/// The largest number of namespaces whose readers are listed, and the number of concurrent reads.
const MOST_READ: usize = 50;
const AT_ONCE: usize = 4;
/// The number of printed lines of a kind for people; data output has all.
const SHOWN: usize = 20;

/// Show everything about one request: its purpose, receivers, other readers of the Secret, credentials and history.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    form: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Show {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let reader = AccessReader::connect(&self.connect).await?;
        let request = reader.find_request(&self.name).await?;
        let seen = reader.see().await;
        let readers = find_readers(&reader, &seen, &request).await;
        let detail = detail::describe_request(&seen, &request, readers);
        if self.form.print(&detail)? == Printed::ForPeople {
            print_detail(&detail);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Finds the readers of the Secret by RBAC, in the namespaces that have or would have it.
async fn find_readers(reader: &AccessReader, seen: &ObservedFacts, request: &FluxAccessRequest) -> Vec<OtherReaders> {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let mut names: Vec<String> = ledgers.map(|ledger| ledger.namespace.clone()).collect();
    if let Ok(receivers) = receivers::list(seen, request) {
        let receiving = receivers.into_iter().filter(|receiver| receiver.receives);
        names.extend(receiving.map(|receiver| receiver.namespace));
    }
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST_READ);
    if names.is_empty() {
        return Vec::new();
    }
    let cluster = audit_reads::list_of_cluster(&reader.client).await;
    let provider = seen.providers.iter().flatten();
    let mut provider = provider.filter(|one| one.metadata.name.as_ref() == Some(&request.spec.provider));
    let writer = provider.next().map(|one| one.spec.name_writer());
    let others: Vec<String> = writer
        .map(|writer| format!("system:serviceaccount:{PLATFORM_NAMESPACE}:{writer}"))
        .into_iter()
        .collect();
    let (cluster, others) = (&cluster, &others);
    let looks = names.into_iter().map(|namespace| async move {
        let own = audit_reads::list_of_namespace(&reader.client, &namespace, cluster).await;
        let secret = NamedObject {
            namespace: namespace.clone(),
            name: request.spec.secret_name.clone(),
        };
        let meant = (request.spec.service_accounts.as_slice(), others.as_slice());
        OtherReaders::from_readers(&namespace, find_other_readers(&secret, meant, &own, &cluster.bindings))
    });
    futures::stream::iter(looks).buffered(AT_ONCE).collect().await
}

/// Prints lines, and the number of those left out.
fn print_all(title: &str, lines: &[String]) {
    for line in lines.iter().take(SHOWN) {
        output::print_line(describe(title, line));
    }
    if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        output::print_line(describe(title, &format!("and {more} more; -o json has all")));
    }
}

fn print_detail(detail: &Detail) {
    let (row, spec) = (&detail.row, &detail.spec);
    output::print_line(format!(
        "{}  {}",
        output::bold(&visible_line(&row.name)),
        visible_line(&row.state.word)
    ));
    let line = |title: &str, text: &str| output::print_line(describe(title, text));
    if let Some(answer) = &row.state.answer {
        let until = answer.not_after.as_ref().map(|end| format!(", until {}", end.0));
        let reason = answer.reason.as_ref().map(|reason| format!(": {reason}"));
        line(
            "answered",
            &format!(
                "by {} ({}{}){}",
                answer.by,
                answer.object,
                until.unwrap_or_default(),
                reason.unwrap_or_default()
            ),
        );
    }
    print_all("note", &row.state.notes);
    print_asked(&row.requested_by, &row.asked_in, spec);
    line("hash", &detail.spec_hash);
    if !detail.hash_matches {
        line(
            "",
            "the specHash of the request differs: the controllers did not write it",
        );
    }
    if let Some(ready) = &row.ready {
        line("ready", &format!("{ready}: {}", row.message));
    }
    match &detail.receivers {
        MaybeUnknown::Unknown { unknown } => {
            let recorded = &detail.recorded_receivers;
            let mut lines = recorded.namespaces.clone();
            lines.extend((recorded.more > 0).then(|| format!("and {} more namespaces", recorded.more)));
            match lines.is_empty() {
                true => line("would go to", &format!("isn't known: {unknown}")),
                false => print_all("would go to", &lines),
            }
        }
        MaybeUnknown::Known { known } => {
            let lines = known.iter().map(|receiver| match &receiver.why {
                None => receiver.namespace.clone(),
                Some(why) => format!("not {}: {why}", receiver.namespace),
            });
            print_all("would go to", &lines.collect::<Vec<_>>());
        }
    }
    for readers in &detail.readers {
        for (title, found) in [("read also", &readers.by_namespace), ("cluster", &readers.by_cluster)] {
            match found {
                MaybeUnknown::Unknown { unknown } => line(
                    title,
                    &format!("{}: its readers are not known: {unknown}", readers.namespace),
                ),
                MaybeUnknown::Known { known } => {
                    let lines = known
                        .iter()
                        .map(|other| format!("{}: {} {} ({})", readers.namespace, other.who, other.way, other.binding));
                    print_all(title, &lines.collect::<Vec<_>>());
                }
            }
        }
    }
    for credential in &detail.ledger {
        line("credential", &describe_credential(credential));
    }
    for order in &detail.orders {
        let place = order.namespace.as_deref().unwrap_or("all namespaces");
        let leak = if order.is_leak { ", as it has leaked" } else { "" };
        line(
            "ordered",
            &format!("{place} by {} at {}{leak}: {}", order.by, order.at, order.cause),
        );
    }
    for entry in &detail.history {
        let place = entry.namespace.as_deref().map(|namespace| format!(" in {namespace}"));
        let id = entry.id.map(|id| format!(", number {id}"));
        line(
            "history",
            format!(
                "{} {} {}{}{} {}",
                entry.at.0,
                entry.actor,
                entry.action,
                place.unwrap_or_default(),
                id.unwrap_or_default(),
                entry.cause
            )
            .trim_end(),
        );
    }
}

/// Lists the request as every approver sees it before the answer.
pub(super) fn list_asked(
    requested_by: &str,
    asked_in: &str,
    spec: &tenure_api::access::FluxAccessRequestSpec,
) -> Vec<String> {
    let target = tenure_api::access::name_target(&spec.provider, spec.target.id);
    let strict = if spec.strict { ", strict" } else { "" };
    let images = if spec.image_pull_secrets {
        ", and fetch images with it"
    } else {
        ""
    };
    let readers = join_texts(&spec.service_accounts, "all accounts that RBAC permits");
    vec![
        describe("asked by", &format!("{requested_by}, in {asked_in}")),
        describe(
            "target",
            &format!("{} {target}, {}", spec.target.scope, spec.target.path),
        ),
        describe("role", &spec.role),
        describe("rotate", &spec.rotate),
        describe(
            "Secret",
            &format!("{} in {}", spec.secret_name, spec.namespaces.join(", ")),
        ),
        describe("read by", &format!("{readers}{images}{strict}")),
    ]
}

fn print_asked(requested_by: &str, asked_in: &str, spec: &tenure_api::access::FluxAccessRequestSpec) {
    list_asked(requested_by, asked_in, spec)
        .iter()
        .for_each(output::print_line);
}

fn describe_credential(credential: &Credential) -> String {
    let now = Timestamp::now();
    let describe_time = |time: Option<&Time>| time.map(|time| write_distance(time.0, now));
    let one = |one: &CredentialDetail| {
        let number = one.id.map_or_else(|| one.name.clone(), |id| format!("number {id}"));
        let fingerprint: String = one.fingerprint.chars().take(16).collect();
        format!(
            "{number}, {} old, fingerprint {fingerprint}",
            count_of(one.age_seconds / 86_400, "day")
        )
    };
    let mut parts = vec![format!("{}: {}", credential.namespace, credential.phase)];
    if let Some(current) = &credential.current {
        parts.push(one(current));
        if let Some(end) = describe_time(current.expires_at.as_ref()) {
            parts.push(format!("ends {end}"));
        }
        parts.push(match describe_time(current.verified_at.as_ref()) {
            Some(time) => format!("seen in use {time}"),
            None => "not seen in use yet".to_owned(),
        });
    }
    if let Some(next) = describe_time(credential.next_rotation.as_ref()) {
        parts.push(format!("replaced {next}"));
    }
    for old in &credential.retiring {
        let end = describe_time(old.retire_at.as_ref()).map(|time| format!(", revoked {time}"));
        parts.push(format!("retiring {}{}", one(old), end.unwrap_or_default()));
    }
    parts.extend(credential.ordered.clone());
    parts.extend(credential.trouble.clone());
    parts.join("; ")
}
