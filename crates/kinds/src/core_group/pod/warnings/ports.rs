//! Ports of containers that conflict.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{FieldPath, MOST_TEXTS, get_number, get_text, go_quoted, list_items};

/// Ports with equal number and protocol.
#[derive(Default)]
struct SamePorts<'a> {
    all: Vec<(&'a Value, FieldPath)>,
    /// Their places in the list, by their port on the host and the address there.
    on_host: BTreeMap<i64, BTreeMap<&'a str, Vec<usize>>>,
}

impl<'a> SamePorts<'a> {
    fn add(&mut self, port: &'a Value, at: &FieldPath) {
        let by_address = self.on_host.entry(get_number(port, "hostPort")).or_default();
        by_address
            .entry(get_text(port, "hostIP"))
            .or_default()
            .push(self.all.len());
        self.all.push((port, at.clone()));
    }

    /// Returns the ports that conflict with a port, in the order of the list. Their number has a limit, because the number of warnings has
    /// one.
    fn list_conflicting_ports(&self, ip: &str, host: i64) -> impl Iterator<Item = &(&'a Value, FieldPath)> {
        let on = |host: i64| self.on_host.get(&host).into_iter().flatten();
        let mut places: Vec<usize> = if host == 0 {
            (0..self.all.len()).take(MOST_TEXTS).collect()
        } else {
            // Two explicit addresses of the host have separate ports.
            let same: Vec<&Vec<usize>> = if ip.is_empty() {
                on(host).map(|(_, places)| places).collect()
            } else {
                let by_address = self.on_host.get(&host);
                let of = |ip: &str| by_address.and_then(|by_address| by_address.get(ip));
                of("").into_iter().chain(of(ip)).collect()
            };
            let anywhere = on(0).map(|(_, places)| places);
            anywhere.chain(same).flatten().copied().take(MOST_TEXTS).collect()
        };
        places.sort_unstable();
        places.into_iter().filter_map(|place| self.all.get(place))
    }
}

pub(super) fn warn_about_ports(containers: &[(&Value, FieldPath)], found: &mut Vec<String>) {
    let mut known: BTreeMap<(i64, &str), SamePorts<'_>> = BTreeMap::new();
    let all: Vec<(&Value, FieldPath)> = containers
        .iter()
        .flat_map(|(container, at)| list_items(container, "ports", at))
        .collect();
    for (port, at) in &all {
        let (ip, host) = (get_text(port, "hostIP"), get_number(port, "hostPort"));
        if !ip.is_empty() && host == 0 {
            found.push(format!(
                "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                get_text(port, "name"),
                get_number(port, "containerPort"),
                get_text(port, "protocol"),
            ));
        }
        let others = known
            .entry((get_number(port, "containerPort"), get_text(port, "protocol")))
            .or_default();
        if found.len() < MOST_TEXTS {
            for (other, at_other) in others.list_conflicting_ports(ip, host) {
                if let Some(what) =
                    find_port_conflict((ip, host), (get_text(other, "hostIP"), get_number(other, "hostPort")))
                {
                    found.push(format!("{at}: {what} port definition with {at_other}"));
                }
            }
        }
        others.add(port, at);
    }
    let mut named: BTreeMap<&str, &FieldPath> = BTreeMap::new();
    for (port, at) in &all {
        let name = get_text(port, "name");
        if name.is_empty() {
            continue;
        }
        match named.get(name) {
            Some(other) => found.push(format!(
                "{at}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                go_quoted(name)
            )),
            None => {
                named.insert(name, at);
            }
        }
    }
}

/// Returns the kind of conflict between two ports with one number, by their addresses and ports on the host.
fn find_port_conflict((ip, host): (&str, i64), (other_ip, other_host): (&str, i64)) -> Option<&'static str> {
    if ip == other_ip && host == other_host {
        Some("duplicate")
    } else if host == 0 || other_host == 0 {
        Some("overlapping")
    } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list_warnings(all: Vec<Value>) -> Vec<String> {
        let container = json!({"ports": all});
        let mut found = Vec::new();
        warn_about_ports(&[(&container, FieldPath::new("c"))], &mut found);
        found
    }

    fn port(ip: &str, host: i64) -> Value {
        json!({"containerPort": 80, "protocol": "TCP", "hostIP": ip, "hostPort": host})
    }

    #[test]
    fn collisions_are_reported_in_the_order_of_the_list() {
        let all = vec![
            port("1.1.1.1", 1),
            port("2.2.2.2", 1),
            port("", 1),
            port("", 2),
            port("", 0),
            port("1.1.1.1", 1),
        ];
        assert_eq!(
            list_warnings(all),
            [
                "c.ports[2]: dangerously ambiguous port definition with c.ports[0]",
                "c.ports[2]: dangerously ambiguous port definition with c.ports[1]",
                "c.ports[4]: overlapping port definition with c.ports[0]",
                "c.ports[4]: overlapping port definition with c.ports[1]",
                "c.ports[4]: overlapping port definition with c.ports[2]",
                "c.ports[4]: overlapping port definition with c.ports[3]",
                "c.ports[5]: duplicate port definition with c.ports[0]",
                "c.ports[5]: dangerously ambiguous port definition with c.ports[2]",
                "c.ports[5]: overlapping port definition with c.ports[4]",
            ]
        );
    }

    #[test]
    fn many_ports_are_not_compared_with_each_other() {
        assert!(list_warnings((1..60_000).map(|host| port("", host)).collect()).is_empty());
        assert!(list_warnings((1..60_000).map(|ip| port(&format!("10.0.{ip}"), 1)).collect()).is_empty());
        let same = list_warnings(vec![port("", 1); 60_000]);
        assert!(
            (MOST_TEXTS..2 * MOST_TEXTS).contains(&same.len()),
            "the warnings are longer than a response may be: {}",
            same.len()
        );
    }
}
