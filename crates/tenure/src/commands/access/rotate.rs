//! `tenure access rotate`: orders credentials to be replaced before they are due. Owns the question whether somebody may, asked before it is written. Refuses to
//! make one: the controllers carry the order out, and prove the new one before the old one ends.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tenure_api::access::{FluxAccessRequest, name_target};
use tenure_api::text::visible_line;
use tenure_planner::access::inspection::receivers;
use tenure_planner::access::order::{self, LONGEST_CAUSE, Written};

use super::answer::check_approver;
use super::form::{Output, Printed};
use super::look::Look;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::{caller, output};

/// Who writes, as managedFields will show it.
const FIELD_MANAGER: &str = "tenure-access";

/// Order the credentials of a request to be replaced now, in all its namespaces or in one. The old ones live on until the new ones are proven, and then for their
/// overlap; with --leak they end as soon as that.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// The FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    /// Only in this namespace.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Others know it: the old one ends as soon as the new one is proven.
    #[arg(long)]
    leak: bool,
    /// Why; others read it.
    #[arg(long, value_name = "TEXT")]
    cause: String,
    #[command(flatten)]
    form: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Rotate {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        if self.cause.trim().is_empty() || self.cause.chars().count() > LONGEST_CAUSE {
            return Err(Failure::usage(format!(
                "--cause says why, in {LONGEST_CAUSE} characters at most"
            )));
        }
        let look = Look::connect(&self.connect).await?;
        let request = look.find_request(&self.name).await?;
        let places = self.list_places(&look, &request).await?;
        let user = caller::ask_who(&look.client).await?;
        let target = name_target(&request.spec.provider, request.spec.target.id);
        check_approver(&look.client, &user, &target).await?;
        let orders = order::list_all(request.metadata.annotations.as_ref());
        let same = orders.iter().find(|order| order.namespace == self.namespace);
        // What is ordered again keeps what is urgent about it, as it may not have been carried out.
        let is_leak = self.leak || same.is_some_and(|order| order.is_leak && order.is_open(&request));
        let written = Written {
            namespace: self.namespace.clone(),
            by: user,
            at: look.now.0,
            is_leak,
            cause: self.cause.clone(),
        };
        write(&look, &self.name, &written).await?;
        let told = json!({ "request": self.name, "order": written, "namespaces": places });
        if self.form.print(&told)? == Printed::AsData {
            return Ok(ExitCode::SUCCESS);
        }
        let end = if is_leak {
            "as soon as the new one is proven"
        } else {
            "after its overlap"
        };
        output::print_line(format!("FluxAccessRequest {}: ordered", visible_line(&self.name)));
        for place in &places {
            let line = format!("{place}: another one is made and delivered, and the old one ends {end}");
            output::print_line(visible_line(&line));
        }
        if places.is_empty() {
            output::print_line("nothing was delivered yet, so nothing is replaced");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The namespaces that it concerns: those that have a credential.
    async fn list_places(&self, look: &Look, request: &FluxAccessRequest) -> Result<Vec<String>, Failure> {
        let ledgers = request.status.iter().flat_map(|status| &status.credentials);
        let mut places: Vec<String> = ledgers.map(|ledger| ledger.namespace.clone()).collect();
        places.sort_unstable();
        let Some(named) = &self.namespace else {
            return Ok(places);
        };
        if places.contains(named) {
            return Ok(vec![named.clone()]);
        }
        let reached = receivers::list(&look.see().await, request).unwrap_or_default();
        if reached
            .iter()
            .any(|receiver| receiver.receives && receiver.namespace == *named)
        {
            return Ok(Vec::new());
        }
        Err(Failure::usage(format!(
            "namespace {named} has no credential of FluxAccessRequest {}",
            self.name
        ))
        .hint(match places.is_empty() {
            true => "no namespace has one yet".to_owned(),
            false => format!("these have: {}", places.join(", ")),
        }))
    }
}

async fn write(look: &Look, name: &str, order: &Written) -> Result<(), Failure> {
    let (key, value) = order.write();
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let path = Look::write_path("fluxaccessrequests", Some(name));
    let request = http::Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(|error| Failure::internal(error.to_string()))?;
    look.client.request::<Value>(request).await?;
    Ok(())
}
