//! `tenure access approve`, `deny` and `revoke`: an approver answers a request. The module asks for confirmation and reports the result. The API server decides who may
//! answer, and `tenure_git_access::answer` decides which answers count.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tenure_admission_rules::Question;
use tenure_api::access::{FluxAccessGrant, FluxAccessRequest, Period, name_target};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::visible_line;
use tenure_api::time::Time;
use tenure_git_access::answer::{self, AnswerInput, Answers};
use tenure_inspection::access_reports::name_asker;
use tenure_inspection::access_reports::receivers::Receiver;
use tenure_inspection::access_reports::{APPROVED, receivers};
use tenure_tenancy::access::Verdict;
use tenure_tenancy::rights::{APPROVE, APPROVE_OWN};

use super::cluster_reads::AccessReader;
use super::output::{Output, Printed, describe};
use super::show::list_asked;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::{caller, confirmation, output};

/// The field manager of the writes.
const FIELD_MANAGER: &str = "tenure-access";
/// The number of namespaces that are shown before the question.
const SHOWN: usize = 10;

/// Approve a request as yourself. The command shows the request and its author, and asks for confirmation.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    how: AnswerFlags,
}

/// Limits of an approval.
#[derive(Debug, Args)]
pub(super) struct Bounds {
    /// Reason for the approval. Others can read it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// End of the approval: a day (its beginning in UTC), such as 2027-01-31, or a time, such as 2027-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    not_after: Option<Timestamp>,
    /// Longest time between two replacements of the credential, such as 30d. With a longer time the approval does not count.
    #[arg(long, value_name = "PERIOD")]
    max_rotate: Option<Period>,
}

impl Bounds {
    pub(super) fn wording(&self) -> AnswerInput {
        AnswerInput {
            reason: self.reason.clone(),
            not_after: self.not_after.map(Time),
            max_rotate: self.max_rotate,
        }
    }
}

/// Deny a request as yourself. A denial wins over every approval of the request.
#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    /// Reason for the denial. The author of the request can read it.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    how: AnswerFlags,
}

/// Revoke the approvals of a request: delete its grants.
///
/// If a standing grant approves the request, too, the command writes a denial.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    /// Reason for the denial, if one is written. Others can read it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    how: AnswerFlags,
}

/// Flags that all these commands have.
#[derive(Debug, Args)]
pub(super) struct AnswerFlags {
    /// Skip the confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(super) form: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Reads a time, or a date as its first moment.
fn read_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let day = text.parse::<Date>().ok();
    let begin = day.and_then(|day| day.to_zoned(TimeZone::UTC).ok());
    begin
        .map(|begin| begin.timestamp())
        .ok_or_else(|| "write a day, such as 2027-01-31, or a time, such as 2027-01-31T12:00:00Z".to_owned())
}

/// A request that the user is about to answer, with the user's name and the reader of the cluster.
pub(super) struct OpenRequest {
    pub(super) reader: AccessReader,
    pub(super) request: FluxAccessRequest,
    pub(super) user: String,
}

impl OpenRequest {
    pub(super) async fn read_request(how: &AnswerFlags, name: &str) -> Result<Self, Failure> {
        let reader = AccessReader::connect(&how.connect).await?;
        let request = reader.find_request(name).await?;
        let user = caller::ask_who(&reader.client).await?;
        Ok(Self { reader, request, user })
    }

    pub(super) fn target(&self) -> String {
        name_target(&self.request.spec.provider, self.request.spec.target.id)
    }

    /// Reports a missing right before any question. Admission checks the right again.
    async fn check_rights(&self) -> Result<(), Failure> {
        check_approver(&self.reader.client, &self.user, &self.target()).await?;
        let is_own = self.request.spec.requested_by == self.user;
        if is_own && !caller::has_right(&self.reader.client, &Question::about_target(APPROVE_OWN, "")).await? {
            return Err(Failure::environment(format!("{} asked for this access itself", self.user)).hint(format!(
                "ask another approver to answer; an approver needs the verb {APPROVE_OWN} on fluxaccesstargets.tenure.dev to answer its own request"
            )));
        }
        Ok(())
    }

    /// Shows the request and the answer, and asks for confirmation.
    pub(super) async fn confirm(&self, how: &AnswerFlags, what: &str) -> Result<(), Failure> {
        let spec = &self.request.spec;
        let name = self.request.metadata.name.as_deref().unwrap_or_default();
        output::print_note(format!(
            "{} FluxAccessRequest {}, as {}:",
            what,
            visible_line(name),
            visible_line(&self.user)
        ));
        for line in list_asked(&spec.requested_by, &name_asker(&self.request), spec) {
            output::print_note(line);
        }
        let seen = self.reader.see().await;
        match receivers::list(&seen, &self.request) {
            Ok(all) => print_receivers(&all),
            Err(why) => output::print_note(describe("goes to", &format!("isn't known: {why}"))),
        }
        let follows = answer::list_consequences(&self.request);
        if what != APPROVING {
            print_lines("then", &follows);
        }
        match how.yes {
            true => Ok(()),
            false => confirmation::ask_confirmation("--yes does it without a question"),
        }
    }

    /// Prints an existing approval, and returns the exit code; `None` if no answer approves the request.
    pub(super) fn report_approval(
        &self,
        how: &AnswerFlags,
        bounds: &Bounds,
        name: &str,
        answers: Answers<'_>,
    ) -> Result<Option<ExitCode>, Failure> {
        let Verdict::Approved(word) = answers.judge(&self.request) else {
            return Ok(None);
        };
        let is_bounded = bounds.not_after.is_some() || bounds.max_rotate.is_some();
        let approval = format!("{} approves it already ({})", word.by, word.object);
        if is_bounded && !word.is_standing {
            return Err(
                Failure::negative(format!("{approval}, and the bounds of one grant don't limit another"))
                    .hint(format!("tenure access revoke {name} first")),
            );
        }
        output::print_note(visible_line(&approval));
        let existing = json!({ "request": name, "state": APPROVED, "object": word.object, "by": word.by });
        how.form.print(&existing)?;
        Ok(Some(ExitCode::SUCCESS))
    }

    /// Writes a grant.
    pub(super) async fn write(&self, grant: &FluxAccessGrant) -> Result<Value, Failure> {
        let body = serde_json::to_vec(grant).map_err(|error| Failure::internal(error.to_string()))?;
        let path = AccessReader::write_path("fluxaccessgrants", None);
        let request = http::Request::post(format!("{path}?fieldManager={FIELD_MANAGER}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Failure::internal(error.to_string()))?;
        Ok(self.reader.client.request(request).await?)
    }

    /// Deletes exactly this grant, and no later grant with its name.
    async fn delete(&self, name: &str, uid: &str) -> Result<(), Failure> {
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
        let request = http::Request::delete(AccessReader::write_path("fluxaccessgrants", Some(name)))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| Failure::internal(error.to_string()))?;
        match self.reader.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks whether a user may answer for a target.
pub(super) async fn check_approver(client: &kube::Client, user: &str, target: &str) -> Result<(), Failure> {
    let given = "ask an administrator for it, or ask an approver who has it to answer";
    check_right(client, user, APPROVE, target, given).await
}

/// Reports a missing right for a target, and the way to get it. Admission checks the right again.
pub(super) async fn check_right(
    client: &kube::Client,
    user: &str,
    verb: &'static str,
    target: &str,
    given: &str,
) -> Result<(), Failure> {
    if caller::has_right(client, &Question::about_target(verb, target)).await? {
        return Ok(());
    }
    Err(
        Failure::environment(format!("{user} may not {verb} for {target}")).hint(format!(
            "it takes the verb {verb} on fluxaccesstargets.tenure.dev/{target}: {given}"
        )),
    )
}

const APPROVING: &str = "Approves";

fn print_receivers(all: &[Receiver]) {
    let lines = all.iter().map(|receiver| match &receiver.why {
        None => receiver.namespace.clone(),
        Some(why) => format!("not {}: {why}", receiver.namespace),
    });
    print_lines("goes to", &lines.collect::<Vec<_>>());
}

fn print_lines(title: &str, lines: &[String]) {
    for line in lines.iter().take(SHOWN) {
        output::print_note(describe(title, line));
    }
    if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        output::print_note(describe(
            title,
            &format!("and {more} more; tenure access show tells all"),
        ));
    }
}

pub(super) fn name_of(object: &Value) -> String {
    let name = tenure_api::ObjectView::new(object)
        .read_text("/metadata/name")
        .to_owned();
    visible_line(&name).into_owned()
}

impl Approve {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let answering = OpenRequest::read_request(&self.how, &self.name).await?;
        let given = answering.reader.list_answers().await;
        let answers = given.as_answers(&answering.reader.now);
        if let Some(code) = answering.report_approval(&self.how, &self.bounds, &self.name, answers)? {
            return Ok(code);
        }
        let grant = answer::approve(&answering.request, &answering.user, self.bounds.wording(), answers);
        let grant = grant.map_err(Failure::negative)?;
        answering.check_rights().await?;
        answering.confirm(&self.how, APPROVING).await?;
        let made = answering.write(&grant).await?;
        if self.how.form.print(&made)? == Printed::ForPeople {
            output::print_line(format!("FluxAccessGrant {}: approved", name_of(&made)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Deny {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let answering = OpenRequest::read_request(&self.how, &self.name).await?;
        let given = answering.reader.list_answers().await;
        let answers = given.as_answers(&answering.reader.now);
        if let Verdict::Denied(word) = answers.judge(&answering.request) {
            return Err(Failure::negative(format!(
                "{} denied it already (FluxAccessGrant {})",
                word.by, word.object
            )));
        }
        let grant = answer::deny(&answering.request, &answering.user, Some(self.reason.clone()), answers);
        let grant = grant.map_err(Failure::negative)?;
        answering.check_rights().await?;
        answering.confirm(&self.how, "Denies").await?;
        let made = answering.write(&grant).await?;
        if self.how.form.print(&made)? == Printed::ForPeople {
            output::print_line(format!("FluxAccessGrant {}: denied", name_of(&made)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Revoke {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let answering = OpenRequest::read_request(&self.how, &self.name).await?;
        let given = answering.reader.list_answers().await;
        let answers = given.as_answers(&answering.reader.now);
        let revocation = answer::revoke(&answering.request, &answering.user, self.reason.clone(), answers);
        let revocation = revocation.map_err(Failure::negative)?;
        if revocation.denial.is_some() {
            answering.check_rights().await?;
        }
        answering.confirm(&self.how, "Revokes").await?;
        let mut done = Vec::new();
        // The denial is written first, so the request stays unapproved even if a later step fails.
        let mut denial = None;
        if let Some(grant) = &revocation.denial {
            let made = name_of(&answering.write(grant).await?);
            let standing_grant = revocation.standing_grant.as_deref().unwrap_or_default();
            done.push(format!(
                "FluxAccessGrant {made}: denied, as FluxAccessStandingGrant {standing_grant} approves it and also approves others"
            ));
            denial = Some(made);
        }
        for (name, uid) in &revocation.deleted {
            answering.delete(name, uid).await?;
            done.push(format!("FluxAccessGrant {name}: deleted"));
        }
        let follows = answer::list_consequences(&answering.request);
        let deleted: Vec<&String> = revocation.deleted.iter().map(|(name, _)| name).collect();
        let result = json!({
            "request": self.name, "namespace": PLATFORM_NAMESPACE, "deleted": deleted, "denial": denial, "standing": revocation.standing_grant, "follows": follows
        });
        if self.how.form.print(&result)? == Printed::ForPeople {
            for line in done.iter().chain(&follows) {
                output::print_line(visible_line(line));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_means_beginning_of_day() {
        let read = |text: &str| read_time(text).map(|time| time.to_string());
        assert_eq!(read("2027-01-31").as_deref(), Ok("2027-01-31T00:00:00Z"));
        assert_eq!(read("2027-01-31T12:00:00Z").as_deref(), Ok("2027-01-31T12:00:00Z"));
        assert_eq!(read("2027-01-31T12:00:00+02:00").as_deref(), Ok("2027-01-31T10:00:00Z"));
        for text in ["", "tomorrow", "2027-02-31", "90d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
