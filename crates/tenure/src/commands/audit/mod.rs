//! `tenure audit`: contested, stolen and abandoned fields, with their owners and times. The module prints the findings, the planner classifies them, and [`object_reads`]
//! finds the objects. The command reads only the metadata of applied objects.

mod object_reads;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use structured_merge::ManagedFieldsEntry;
use tenure_api::ObjectId;
use tenure_api::text::{count_of, visible_line};
use tenure_inspection::ownership::writers::WriterSearch;
use tenure_inspection::ownership::{Finding, Subject, audit_fields};

use self::object_reads::ObjectReads;
use crate::artifact_client::ArtifactFlags;
use crate::audit_log::{AuditLog, describe_writers};
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::inspection::{Form, print_data};
use crate::output;

/// Find contested, stolen and abandoned fields of applied objects: who owns them, and since when.
///
/// Contested: Git's field manager and another manager have the field. Stolen: Git sets the field, and only another manager has it. The command finds stolen
/// fields only if it has the artifacts. Abandoned: the Kustomization that applied the field is gone, or no longer applies it.
///
/// The command reads the objects that Kustomizations of the namespace applied, with your rights.
///
/// Exit codes: 0 nothing found, 1 something found, 3 nothing found, but not everything could be read.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    artifacts: ArtifactFlags,
    #[command(flatten)]
    log: AuditLog,
    /// Print the findings as data, for programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Form>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

impl Audit {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let artifacts = self.artifacts.open(&self.connect).await?;
        let client = self.connect.client().await?;
        let survey = ObjectReads::make(&client, self.scope.namespace(&client).as_deref(), &artifacts).await?;
        let (findings, unreadable) = find_problems(&survey);
        let search = self.search(&survey, &findings)?;
        let writers = |finding: &Finding, holder: &ManagedFieldsEntry| {
            let address = survey.address_of(&finding.id)?;
            search.as_ref().map(|search| describe_writers(search, &address, holder))
        };
        match self.output {
            Some(form) => {
                let data: Vec<Value> = findings
                    .iter()
                    .map(|finding| describe_for_programs(finding, &writers))
                    .collect();
                print_data(Ok(Value::from(data)), form)?;
            }
            None => print_findings(&findings, &writers),
        }
        let is_complete = survey.is_complete() && unreadable.is_empty();
        for note in survey.notes().chain(unreadable) {
            output::print_note(visible_line(&note));
        }
        if self.output.is_none() {
            let objects: BTreeSet<&ObjectId> = findings.iter().map(|finding| &finding.id).collect();
            output::print_line(match (findings.len(), survey.len()) {
                (0, looked) if is_complete => {
                    format!(
                        "{}: nothing is contested, stolen or abandoned",
                        count_of(looked, "object")
                    )
                }
                (0, looked) => format!("{}: nothing found in what could be read", count_of(looked, "object")),
                (found, looked) => format!(
                    "{} in {} of {}",
                    count_of(found, "finding"),
                    objects.len(),
                    count_of(looked, "object")
                ),
            });
        }
        Ok(ExitCode::from(match (findings.is_empty(), is_complete) {
            (false, _) => 1,
            (true, true) => 0,
            (true, false) => 3,
        }))
    }

    /// Searches the audit log for the writers of the findings.
    fn search(&self, survey: &ObjectReads, findings: &[Finding]) -> Result<Option<WriterSearch>, Failure> {
        if !self.log.is_given() {
            return Ok(None);
        }
        let mut search = WriterSearch::default();
        for finding in findings {
            if let Some(address) = survey.address_of(&finding.id) {
                search.add_object(address, &finding.holders);
            }
        }
        self.log.read(&mut search)?;
        Ok(Some(search))
    }
}

/// Returns all findings, object by object, and the unreadable objects.
fn find_problems(survey: &ObjectReads) -> (Vec<Finding>, Vec<String>) {
    let (mut findings, mut unreadable) = (Vec::new(), Vec::new());
    for seen in survey.objects() {
        let subject = Subject {
            id: seen.id,
            object: seen.object,
            owner: seen.owner,
            keeper: seen.keeper,
            claimants: &seen.claimants,
            declared: seen.declared,
        };
        match audit_fields(&subject) {
            Ok(found) => findings.extend(found),
            Err(error) => unreadable.push(format!("{}: {error}", seen.id.subject())),
        }
    }
    (findings, unreadable)
}

/// A function that returns the user behind a field manager, if an audit log was searched.
type WhoWrote<'a> = dyn Fn(&Finding, &ManagedFieldsEntry) -> Option<String> + 'a;

fn print_findings(findings: &[Finding], writers: &WhoWrote<'_>) {
    let mut by_object: BTreeMap<&ObjectId, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        by_object.entry(&finding.id).or_default().push(finding);
    }
    for (id, findings) in by_object {
        output::print_line(output::bold(&visible_line(&id.subject())));
        let mut last_printed = None;
        for finding in findings {
            let field = match &finding.field {
                Some(field) => field.to_string(),
                None => "the whole object".to_owned(),
            };
            let holders: Vec<String> = finding
                .holders
                .iter()
                .map(|holder| describe_holder(holder, writers(finding, holder)))
                .collect();
            let holders = if holders.is_empty() {
                String::new()
            } else {
                format!(": {}", holders.join(", "))
            };
            output::print_line(format!(
                "  {} {}{}",
                output::bad(finding.fault.as_str()),
                visible_line(&field),
                visible_line(&holders)
            ));
            // The explanation is printed once for all fields that share it.
            let explained = (finding.fault, finding.why.as_str(), finding.remedy.as_str());
            if last_printed != Some(explained) {
                output::print_line(format!(
                    "      {}: {}",
                    visible_line(&finding.why),
                    visible_line(&finding.remedy)
                ));
            }
            last_printed = Some(explained);
        }
    }
}

fn describe_holder(holder: &ManagedFieldsEntry, writers: Option<String>) -> String {
    let since = holder
        .time
        .as_ref()
        .map(|time| format!(" since {time}"))
        .unwrap_or_default();
    let writers = writers.map(|writers| format!(" ({writers})")).unwrap_or_default();
    format!("{}{since}{writers}", holder.manager)
}

fn describe_for_programs(finding: &Finding, writers: &WhoWrote<'_>) -> Value {
    let id = &finding.id;
    let holders: Vec<Value> = finding
        .holders
        .iter()
        .map(|holder| {
            let mut description = json!({"manager": holder.manager, "operation": holder.operation.as_str(),
                "since": holder.time.as_ref().map(ToString::to_string)});
            if let (Some(writers), Some(description)) = (writers(finding, holder), description.as_object_mut()) {
                description.insert("writers".to_owned(), Value::from(writers));
            }
            description
        })
        .collect();
    json!({"group": id.group, "kind": id.kind, "namespace": id.namespace, "name": id.name,
        "field": finding.field.as_ref().map(ToString::to_string), "fault": finding.fault.as_str(), "holders": holders,
        "why": finding.why, "remedy": finding.remedy})
}
