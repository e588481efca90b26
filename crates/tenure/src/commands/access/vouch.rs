//! `tenure access vouch`: approves a request for a person who proves in a browser to own the project at its host. The module shows the request and the code, and bounds
//! the wait. `tenure_git_access::vouching` decides who may answer, and the API server decides who may vouch.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use git_hosts::DeviceFlow;
use jiff::Timestamp;
use tenure_api::access::AccessProvider;
use tenure_api::text::visible_line;
use tenure_git_access::answer;
use tenure_git_access::request::{name_scope, read_target};
use tenure_git_access::vouching::{Next, check_same, decide_next, find_application};
use tenure_remote_requests::git_host::{HostError, Target};
use tenure_sources::{BaseUrl, Connector, Policy, TlsOptions};
use tenure_tenancy::rights::VOUCH;

use super::answer::{AnswerFlags, Bounds, OpenRequest, check_right, name_of};
use super::cluster_reads::AccessReader;
use super::output::Printed;
use crate::failure::Failure;
use crate::output;

/// The way to get the right.
const GIVEN: &str = "an administrator gives it to one trusted account";

/// Approve a request on behalf of the project's owner at the Git host, who has no account in this cluster.
///
/// The owner proves in a browser to be Maintainer of the project, or Owner of the group. You write the grant, and so vouch for the person.
#[derive(Debug, Args)]
pub(crate) struct Vouch {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    bounds: Bounds,
    /// CA certificates in PEM to accept for the Git host, besides those of this system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    how: AnswerFlags,
}

impl Vouch {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let answering = OpenRequest::read_request(&self.how, &self.name).await?;
        let given = answering.reader.list_answers().await;
        let answers = given.as_answers(&answering.reader.now);
        if let Some(code) = answering.report_approval(&self.how, &self.bounds, &self.name, answers)? {
            return Ok(code);
        }
        let provider = find_provider(&answering.reader, &answering.request.spec.provider).await?;
        let flow = self.open_flow(&provider)?;
        check_right(
            &answering.reader.client,
            &answering.user,
            VOUCH,
            &answering.target(),
            GIVEN,
        )
        .await?;
        answering.confirm(&self.how, "Vouches for who answers").await?;
        let person = show_code(&flow, &read_target(&answering.request.spec.target)).await?;
        // The answer must be for the request that was shown.
        let now = answering.reader.find_request(&self.name).await?;
        check_same(&answering.request, &now).map_err(Failure::negative)?;
        let grant = answer::approve(&now, &person, self.bounds.wording(), answers).map_err(Failure::negative)?;
        let made = answering.write(&grant).await?;
        if self.how.form.print(&made)? == Printed::ForPeople {
            output::print_line(format!("FluxAccessGrant {}: approved by {person}", name_of(&made)));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn open_flow(&self, provider: &AccessProvider) -> Result<DeviceFlow, Failure> {
        let client_id = find_application(provider).map_err(|why| {
            Failure::environment(why).hint(
                "an administrator registers an application at the host, with the device flow and the scope read_api, and writes its id into spec.deviceFlow.clientId",
            )
        })?;
        let address = &provider.spec.address;
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| Failure::environment(format!("{}: {error}", path.display())))
        };
        let tls = TlsOptions {
            ca: self.ca.as_ref().map(read).transpose()?,
            ..TlsOptions::default()
        };
        let unusable = |why: String| Failure::environment(format!("spec.address of the AccessProvider: {why}"));
        let base =
            BaseUrl::parse(address).ok_or_else(|| unusable(format!("{} is no address", visible_line(address))))?;
        // The connection may go to the host that the administrator named, at every address, and to no other host.
        let policy = Policy {
            allow: vec![base.endpoint().clone()],
            ..Policy::default()
        };
        DeviceFlow::new(address, client_id, tls, Connector::Here(policy)).map_err(|why| unusable(why.to_owned()))
    }
}

async fn find_provider(reader: &AccessReader, name: &str) -> Result<AccessProvider, Failure> {
    let path = AccessReader::write_path("accessproviders", Some(name));
    match reader.find(&path, "application/json").await {
        Ok(Some(provider)) => Ok(provider),
        Ok(None) => Err(Failure::negative(format!("there is no AccessProvider {name} any more"))),
        Err(why) => Err(Failure::environment(format!("AccessProvider {name}: {why}"))),
    }
}

/// Shows a code, and waits until an allowed person has entered it. Returns their name.
async fn show_code(flow: &DeviceFlow, target: &Target) -> Result<String, Failure> {
    let failed = |trouble: HostError| Failure::environment(trouble.to_string());
    let (code, secret) = flow.start(Timestamp::now()).await.map_err(failed)?;
    output::print_note(format!(
        "open {} and enter {} until {}: an owner of the {} who does so approves this request",
        code.verification_url,
        code.user_code,
        code.expires_at,
        name_scope(target.scope)
    ));
    let mut pace = Duration::from_secs(code.interval_seconds);
    loop {
        // The polls keep the host's interval: RFC 8628, section 3.5.
        tokio::time::sleep(pace).await;
        let answer = flow.poll(&secret, target, Timestamp::now()).await;
        match decide_next(answer, target.scope, pace, (Timestamp::now(), code.expires_at)) {
            Next::Ask(after) => pace = after,
            Next::Answered(person) => return Ok(person),
            Next::Over(why) => return Err(Failure::negative(why)),
        }
    }
}
