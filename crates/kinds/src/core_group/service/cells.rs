//! The table cells of a Service.

use jiff::Timestamp;
use serde_json::Value;

use crate::table::cells;

pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = cells::text(object, "/spec/type");
    let external = cells::joined(object, "/spec/externalIPs");
    let external = match kind {
        "ClusterIP" | "NodePort" => cells::or(&external, cells::NONE).to_owned(),
        "LoadBalancer" => {
            let both: Vec<String> = [cells::balancer(object), external]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            cells::or(&both.join(","), "<pending>").to_owned()
        }
        "ExternalName" => cells::text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = cells::list(object, "/spec/ports")
        .iter()
        .map(|port| match cells::number(port, "/nodePort") {
            0 => format!("{}/{}", cells::number(port, "/port"), cells::text(port, "/protocol")),
            node => format!(
                "{}:{node}/{}",
                cells::number(port, "/port"),
                cells::text(port, "/protocol")
            ),
        })
        .collect();
    let internal = cells::list(object, "/spec/clusterIPs").first().and_then(Value::as_str);
    vec![
        cells::name(object),
        kind.into(),
        internal.unwrap_or(cells::NONE).into(),
        external.into(),
        cells::or(&ports.join(","), cells::NONE).into(),
        cells::age(object, now),
        cells::labels(object, "/spec/selector").into(),
    ]
}
