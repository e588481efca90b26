//! `tenure who`: the owner of each field of an object, and the commit, file and line of fields from Git. It shows the layer of a Package's values, and by an audit log the
//! users behind managers. The content of a
//! Secret is never printed.

use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use structured_merge::FieldPath;
use tenure_api::text::{count_of, visible};
use tenure_inspection::ownership::fields::{self, OwnedField};
use tenure_inspection::ownership::writers::{Address, WriterSearch};

use crate::artifact_client::ArtifactFlags;
use crate::audit_log::{AuditLog, describe_writers};
use crate::chart_origin::ChartOrigin;
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::{output, resources};

/// Show who owns each field of an object, and from which commit, file and line it came.
///
/// Of a HelmRelease that a Package generated, the command also shows the layer that sets a value. Of an object of a chart, it names the HelmRelease.
///
/// The name of a field manager is only the writer's own claim. With --audit-log, the command shows the user that the API server recorded, too.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Object as KIND/NAME, such as deployment/web.
    #[arg(value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: String,
    /// Only this field and the fields in it: .spec.replicas, '.spec.template.spec.containers[name="web"].image'.
    field: Option<String>,
    /// Show the fields of .status, too, which controllers write.
    #[arg(long)]
    status: bool,
    #[command(flatten)]
    artifacts: ArtifactFlags,
    #[command(flatten)]
    log: AuditLog,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

impl Who {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let (kind, name) = self
            .object
            .split_once('/')
            .ok_or_else(|| Failure::usage(format!("{:?}: write KIND/NAME, such as deployment/web", self.object)))?;
        let field = match &self.field {
            Some(field) => Some(FieldPath::from_str(field).map_err(|error| {
                Failure::usage(format!("{field:?} is no field: {error}"))
                    .hint("fields look like .spec.replicas or '.spec.ports[port=80].name'")
            })?),
            None => None,
        };
        let artifacts = self.artifacts.open(&self.connect).await?;
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        let resource = resources::find_resource(&served, kind)?;
        let namespace = match resource.namespaced {
            true => self
                .scope
                .namespace(&client)
                .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?,
            false => String::new(),
        };
        let api: kube::Api<DynamicObject> = if resource.namespaced {
            kube::Api::namespaced_with(client.clone(), &namespace, &resource.api())
        } else {
            kube::Api::all_with(client.clone(), &resource.api())
        };
        let object = match api.get(name).await {
            Ok(object) => object,
            Err(error) => {
                return Err(resources::explain_read(&client, resource, (Some(&namespace), name), error).await);
            }
        };
        let object = serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))?;
        let mut owned = self.list_fields(&object, field.as_ref())?;
        let all = owned.len();
        // A field in the status that the user names is shown.
        owned.retain(|owned| self.status || field.is_some() || !owned.is_status());
        let left_out = all - owned.len();
        let provenance = Provenance::find(&client, &object, &artifacts).await;
        let address = Address {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            namespace,
            name: name.to_owned(),
        };
        let search = self.search(&address, &owned)?;
        let chart = ChartOrigin::find(&client, &object, &artifacts).await;
        for line in chart.summary() {
            output::print_line(visible(line));
        }
        for line in provenance.summary() {
            // Of an object of a chart, the first lines say all.
            if provenance.is_applied() || chart.summary().is_empty() {
                output::print_line(visible(line));
            }
        }
        let describe_writer = |field: &OwnedField| {
            let search = search.as_ref()?;
            Some(describe_writers(search, &address, &field.entry))
        };
        let describe_origin = |field: &OwnedField| {
            let is_from_git = provenance.is_by(&field.entry.manager);
            let line = provenance.line_of(&field.path).filter(|_| is_from_git);
            line.or_else(|| chart.describe_value(field))
        };
        let (headers, rows) = fields::write_table(&owned, &describe_origin, &describe_writer, Timestamp::now());
        if !rows.is_empty() {
            output::print_line(output::table(&headers, rows));
        }
        if left_out > 0 {
            output::print_note(format!(
                "left out: {} of .status (--status shows them)",
                count_of(left_out, "field")
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the owned fields, and fails without any.
    fn list_fields(&self, object: &Value, field: Option<&FieldPath>) -> Result<Vec<OwnedField>, Failure> {
        let list = |field: Option<&FieldPath>| {
            fields::list_owned_fields(object, field)
                .map_err(|error| Failure::environment(format!("managedFields can't be read: {error}")))
        };
        let owned = list(field)?;
        if !owned.is_empty() {
            return Ok(owned);
        }
        let Some(field) = &self.field else {
            let object = &self.object;
            return Err(Failure::negative(format!(
                "no manager owns a field of {object}: it has no managedFields"
            )));
        };
        let failure = Failure::negative(format!("no manager owns {field} of {}", self.object));
        Err(match fields::suggest_fields(&list(None)?, field) {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    }

    /// Searches for the users of the managers.
    fn search(&self, address: &Address, owned: &[OwnedField]) -> Result<Option<WriterSearch>, Failure> {
        if !self.log.is_given() {
            return Ok(None);
        }
        let mut search = WriterSearch::default();
        search.add_object(address.clone(), owned.iter().map(|field| &*field.entry));
        self.log.read(&mut search)?;
        Ok(Some(search))
    }
}
