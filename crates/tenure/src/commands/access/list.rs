//! `tenure access list`: prints the requests and their states.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::json;
use tenure_api::text::visible_line;
use tenure_inspection::access_reports::rows::{self, Row};
use tenure_inspection::access_reports::{APPROVED, DENIED, PENDING, REVOKED};
use tenure_inspection::ages::{write_distance, write_time_since};

use super::cluster_reads::AccessReader;
use super::output::{Output, Printed};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::output;

/// List requests for credentials: state, project or group, role, author, namespaces, creation time, and next replacement.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only requests in this state.
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<Wanted>,
    /// Only requests of this Tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    form: Output,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// Requests without an answer.
    Pending,
    /// Requests with an approval that counts.
    Approved,
    /// Requests that an approver denied.
    Denied,
    /// Requests that were approved, and no longer are.
    Revoked,
}

impl Wanted {
    fn word(self) -> &'static str {
        match self {
            Self::Pending => PENDING,
            Self::Approved => APPROVED,
            Self::Denied => DENIED,
            Self::Revoked => REVOKED,
        }
    }
}

impl List {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let reader = AccessReader::connect(&self.connect).await?;
        let seen = reader.see().await;
        let mut rows = rows::list(&seen).map_err(|why| {
            Failure::environment(format!("requests can't be listed: {why}"))
                .hint("the requests of one tenant are in its own objects: tenure get fluxaccesses -n NAMESPACE")
        })?;
        rows.retain(|row| self.state.is_none_or(|state| row.state.word == state.word()));
        rows.retain(|row| self.tenant.is_none() || row.tenant == self.tenant);
        if self.form.print(&json!({ "requests": rows }))? == Printed::AsData {
            return Ok(ExitCode::SUCCESS);
        }
        if rows.is_empty() {
            output::print_note("there are no requests");
            return Ok(ExitCode::SUCCESS);
        }
        let headers = [
            "name",
            "state",
            "target",
            "path",
            "role",
            "by",
            "namespaces",
            "age",
            "next rotation",
            "ready",
        ];
        let headers: Vec<String> = headers.map(str::to_owned).to_vec();
        let now = Timestamp::now();
        let rows = rows.iter().map(|row| {
            let cells = write_cells(row, now);
            cells.iter().map(|cell| visible_line(cell).into_owned()).collect()
        });
        output::print_line(output::table(&headers, rows.collect()));
        Ok(ExitCode::SUCCESS)
    }
}

fn write_cells(row: &Row, now: Timestamp) -> [String; 10] {
    let age = row
        .since
        .as_ref()
        .map(|time| write_time_since(&time.0.to_string(), now));
    let rotation = row.next_rotation.as_ref().map(|time| write_distance(time.0, now));
    [
        row.name.clone(),
        row.state.word.clone(),
        row.target.clone(),
        row.path.clone(),
        row.role.clone(),
        row.requested_by.clone(),
        row.namespaces.join(","),
        age.unwrap_or_default(),
        rotation.unwrap_or_default(),
        row.ready.clone().unwrap_or_default(),
    ]
}
