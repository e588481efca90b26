//! The table cells of a Service.

use jiff::Timestamp;
use serde_json::Value;

use crate::table::cells;

pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = cells::get_text(object, "/spec/type");
    let external = cells::join_texts(object, "/spec/externalIPs");
    let external = match kind {
        "ClusterIP" | "NodePort" => cells::non_empty_or(&external, cells::NONE).to_owned(),
        "LoadBalancer" => {
            let both: Vec<String> = [cells::format_load_balancer(object), external]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            cells::non_empty_or(&both.join(","), "<pending>").to_owned()
        }
        "ExternalName" => cells::get_text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = cells::list_items(object, "/spec/ports")
        .iter()
        .map(|port| match cells::get_number(port, "/nodePort") {
            0 => format!(
                "{}/{}",
                cells::get_number(port, "/port"),
                cells::get_text(port, "/protocol")
            ),
            node => format!(
                "{}:{node}/{}",
                cells::get_number(port, "/port"),
                cells::get_text(port, "/protocol")
            ),
        })
        .collect();
    let internal = cells::list_items(object, "/spec/clusterIPs")
        .first()
        .and_then(Value::as_str);
    vec![
        cells::name_cell(object),
        kind.into(),
        internal.unwrap_or(cells::NONE).into(),
        external.into(),
        cells::non_empty_or(&ports.join(","), cells::NONE).into(),
        cells::format_age(object, now),
        cells::format_labels(object, "/spec/selector").into(),
    ]
}
