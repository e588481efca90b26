//! Values that only one object can hold: the addresses and node ports of Services.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::Deserialize;

/// A value that only one Service can hold at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allocated {
    /// An address in the cluster (`spec.clusterIP`).
    ClusterIp(Ipv4Addr),
    /// A port of all nodes (`spec.ports[].nodePort`, `spec.healthCheckNodePort`).
    NodePort(i64),
}

impl Allocated {
    /// Returns the values that a Service holds. The function reads only these fields of the stored JSON. If the JSON can't be read, the
    /// result is empty.
    #[must_use]
    pub fn list(stored: &[u8]) -> BTreeSet<Self> {
        let service: Stored = serde_json::from_slice(stored).unwrap_or_default();
        let address = service.spec.cluster_ip.parse().ok().map(Self::ClusterIp);
        let ports = service.spec.ports.into_iter().map(|port| port.node_port);
        let ports = ports.chain([service.spec.health_check_node_port]);
        address
            .into_iter()
            .chain(ports.filter(|port| *port != 0).map(Self::NodePort))
            .collect()
    }
}

/// The part of a stored Service that has allocated values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    spec: StoredSpec,
}

/// The fields of a Service's spec that have allocated values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "healthCheckNodePort")]
    health_check_node_port: i64,
    ports: Vec<StoredPort>,
}

/// The field of a Service's port that has an allocated value.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredPort {
    #[serde(rename = "nodePort")]
    node_port: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_holds_its_address_and_its_ports() {
        let held = |text: &str| Allocated::list(text.as_bytes()).into_iter().collect::<Vec<_>>();
        let address = Allocated::ClusterIp(Ipv4Addr::new(10, 96, 0, 7));
        let all = r#"{"spec":{"clusterIP":"10.96.0.7","ports":[{"port":80,"nodePort":30080},{"port":81}],"healthCheckNodePort":30081}}"#;
        let ports = [Allocated::NodePort(30_080), Allocated::NodePort(30_081)];
        assert_eq!(held(all), [address, ports[0], ports[1]]);
        assert_eq!(
            held(r#"{"spec":{"clusterIP":"None","ports":[{"port":80}]}}"#),
            [],
            "headless"
        );
        assert_eq!(
            held(r#"{"metadata":{"annotations":{"a":"10.96.0.7"}}}"#),
            [],
            "mentioned only"
        );
        assert_eq!(held("{"), []);
    }
}
