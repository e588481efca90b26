//! `tenure access rotate`: orders the early replacement of credentials. The module checks the user's right before the write. The controllers execute the order, and
//! prove the new credential before the old one ends.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tenure_api::access::{FluxAccessRequest, name_target};
use tenure_api::text::visible_line;
use tenure_git_access::rotation_order::{self, LONGEST_CAUSE, RotationOrder};
use tenure_inspection::access_reports::receivers;

use super::answer::check_approver;
use super::cluster_reads::AccessReader;
use super::output::{Output, Printed};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::{caller, output};

/// The field manager of the writes.
const FIELD_MANAGER: &str = "tenure-access";

/// Order a replacement of a request's credentials now, in all of its namespaces or in one.
///
/// The old credentials work until the new ones are in use, and then for their overlap. With --leak they end as soon as the new ones are in use.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// Name of the FluxAccessRequest.
    #[arg(value_name = "NAME")]
    name: String,
    /// Replace only the credential in this namespace.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// End the old credential as soon as the new one is in use, because others know the old one.
    #[arg(long)]
    leak: bool,
    /// Reason for the replacement, in 256 characters at most. Others can read it.
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
        let reader = AccessReader::connect(&self.connect).await?;
        let request = reader.find_request(&self.name).await?;
        let places = self.list_places(&reader, &request).await?;
        let user = caller::ask_who(&reader.client).await?;
        let target = name_target(&request.spec.provider, request.spec.target.id);
        check_approver(&reader.client, &user, &target).await?;
        let orders = rotation_order::list_all(request.metadata.annotations.as_ref());
        let same = orders.iter().find(|order| order.namespace == self.namespace);
        // A repeated order keeps the urgency of the earlier one, which may not have been executed.
        let is_leak = self.leak || same.is_some_and(|order| order.is_leak && order.is_open(&request));
        let written = RotationOrder {
            namespace: self.namespace.clone(),
            by: user,
            at: reader.now.0,
            is_leak,
            cause: self.cause.clone(),
        };
        write_order(&reader, &self.name, &written).await?;
        let report = json!({ "request": self.name, "order": written, "namespaces": places });
        if self.form.print(&report)? == Printed::AsData {
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

    /// Returns the namespaces whose credential the order replaces: the chosen namespace, or all with a credential. Fails if the chosen namespace neither has nor
    /// will get a credential.
    async fn list_places(&self, reader: &AccessReader, request: &FluxAccessRequest) -> Result<Vec<String>, Failure> {
        let ledgers = request.status.iter().flat_map(|status| &status.credentials);
        let mut places: Vec<String> = ledgers.map(|ledger| ledger.namespace.clone()).collect();
        places.sort_unstable();
        let Some(named) = &self.namespace else {
            return Ok(places);
        };
        if places.contains(named) {
            return Ok(vec![named.clone()]);
        }
        let reached = receivers::list(&reader.see().await, request).unwrap_or_default();
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

async fn write_order(reader: &AccessReader, name: &str, order: &RotationOrder) -> Result<(), Failure> {
    let (key, value) = order.write();
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let path = AccessReader::write_path("fluxaccessrequests", Some(name));
    let request = http::Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(|error| Failure::internal(error.to_string()))?;
    reader.client.request::<Value>(request).await?;
    Ok(())
}
