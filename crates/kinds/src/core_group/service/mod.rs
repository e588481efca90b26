//! Services: the cluster address and the node ports, which the server chooses and keeps.

mod addresses;
mod cells;
mod defaulting;
mod node_ports;
mod status;
mod usage;
mod validation;
mod warnings;

use serde_json::Value;

use crate::kind::{Kind, Request, Shared};
use crate::object::ObjectExt;
use crate::schema::validation::names::NameRule;
use crate::schema::{FieldError, defaults};

use addresses::{check, find_unnamed_address_errors};

/// Services.
pub(super) static SERVICE: Kind = Kind {
    names: NameRule::Label,
    etcd_folder: Some("services/specs"),
    selectable_fields: &["spec.clusterIP", "spec.type"],
    is_created_by_update: true,
    is_answered_when_deleted: true,
    shares: Shared::Allocated,
    prepare_create: addresses::prepare_create,
    prepare_update: addresses::prepare_update,
    check_create,
    check_update: |request, new, live| match request.subresource {
        None => check(request, new, Some(live)),
        Some(_) => Vec::new(),
    },
    defaults: |_, object| {
        defaults::with_spec(object, defaulting::fill_in);
        defaulting::balancer_modes(object);
    },
    validate_create: |value, errors| validation::validate_service(value, None, errors),
    validate_update: validation::service_update,
    validate_status: status::validate_status,
    warnings: |object, _| warnings::list_warnings(object),
    cells: cells::show,
    is_counted_by_plural: true,
    usage: Some(usage::USAGE),
    ..Kind::new("", "Service", "services")
};

fn check_create(request: &Request<'_>, object: &Value) -> Vec<FieldError> {
    if request.subresource.is_some() {
        return Vec::new();
    }
    // Kubernetes records the owner of an address by name, unless the request is a dry run. So a Service without a name can't own an
    // address.
    if object.name().is_empty() && !request.dry_run {
        return find_unnamed_address_errors(object);
    }
    check(request, object, None)
}
