//! IPAddresses. They have table cells, but the server does not serve them.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::table::cells;

/// IPAddresses.
pub(super) static IP_ADDRESS: Kind = Kind {
    cells: show,
    ..Kind::new("networking.k8s.io", "IPAddress", "ipaddresses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = object.pointer("/spec/parentRef").filter(|parent| !parent.is_null());
    let parent = parent.map_or(cells::NONE.to_owned(), |parent| {
        let parts = ["/group", "/resource", "/namespace", "/name"].map(|pointer| cells::get_text(parent, pointer));
        let [group, resource, namespace, name] = parts;
        let resource = if group.is_empty() {
            resource.to_owned()
        } else {
            format!("{resource}.{group}")
        };
        if namespace.is_empty() {
            format!("{resource}/{name}")
        } else {
            format!("{resource}/{namespace}/{name}")
        }
    });
    // The real server has no column for the age, but sends the value.
    vec![cells::name_cell(object), parent.into(), cells::format_age(object, now)]
}
