//! The advertised address of an embedded control plane, and the names in its certificate. Both follow from flags and from the addresses of this machine, and never from
//! a request.

use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// The names in a server's certificate, and the address that the server gives to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdvertisedAddress {
    /// Names, in addition to the loopback names, by which clients may call the server.
    pub(crate) names: Vec<String>,
    /// The address that clients get.
    pub(crate) host: IpAddr,
}

/// Computes the names of a server that listens on `bound` of a machine with these addresses, in the order of its interfaces.
pub(crate) fn choose_advertised(bound: IpAddr, given: Option<IpAddr>, addresses: &[IpAddr]) -> AdvertisedAddress {
    let mut reached: Vec<IpAddr> = if bound.is_unspecified() {
        // The IPv6 wildcard also accepts IPv4.
        let fits = |address: &&IpAddr| (bound.is_ipv6() || address.is_ipv4()) && is_of_use(**address);
        addresses.iter().filter(fits).copied().collect()
    } else {
        vec![bound]
    };
    reached.retain(|address| !address.is_loopback());
    let same_family = reached.iter().find(|address| address.is_ipv4() == bound.is_ipv4());
    let loopback = match bound {
        _ if bound.is_loopback() => bound,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
    };
    let host = given.or(same_family.copied()).or(reached.first().copied());
    reached.extend(given);
    let mut names: Vec<String> = reached.iter().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    AdvertisedAddress {
        names,
        host: host.unwrap_or(loopback),
    }
}

/// Returns the address for clients on this machine of a listener on `bound`.
pub(crate) fn find_nearest(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, bound.port())
}

/// Whether an address works in a URL: a link-local address has no meaning without its link.
fn is_of_use(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => !four.is_unspecified() && !four.is_link_local(),
        IpAddr::V6(six) => !six.is_unspecified() && !six.is_unicast_link_local(),
    }
}

/// Returns the addresses of this machine's interfaces; empty if the system doesn't report them.
pub(crate) fn interface_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    interfaces
        .filter_map(|interface| interface.address)
        .filter_map(|address| read_ip(&address))
        .collect()
}

fn read_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| IpAddr::from(four.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::from(six.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bound: &str, given: Option<&str>, names: &[&str], host: &str) {
        let machine = [
            "127.0.0.1",
            "192.168.7.4",
            "10.0.0.9",
            "169.254.3.3",
            "::1",
            "2001:db8::7",
            "fe80::1",
        ];
        let machine = machine.map(|address| address.parse().unwrap());
        let found = choose_advertised(
            bound.parse().unwrap(),
            given.map(|given| given.parse().unwrap()),
            &machine,
        );
        assert_eq!(found.names, names, "{bound}, {given:?}");
        assert_eq!(found.host.to_string(), host, "{bound}, {given:?}");
    }

    #[test]
    fn names_and_host_follow_from_flags_and_interfaces() {
        check("127.0.0.1", None, &[], "127.0.0.1");
        check("::1", None, &[], "::1");
        check("10.0.0.9", None, &["10.0.0.9"], "10.0.0.9");
        check("0.0.0.0", None, &["10.0.0.9", "192.168.7.4"], "192.168.7.4");
        check("::", None, &["10.0.0.9", "192.168.7.4", "2001:db8::7"], "2001:db8::7");
        check(
            "0.0.0.0",
            Some("203.0.113.5"),
            &["10.0.0.9", "192.168.7.4", "203.0.113.5"],
            "203.0.113.5",
        );
        check("127.0.0.1", Some("203.0.113.5"), &["203.0.113.5"], "203.0.113.5");
        check("0.0.0.0", Some("10.0.0.9"), &["10.0.0.9", "192.168.7.4"], "10.0.0.9");
    }

    #[test]
    fn a_machine_without_a_network_advertises_its_loopback() {
        let loopback = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        for (bound, host) in [("0.0.0.0", "127.0.0.1"), ("::", "::1")] {
            let found = choose_advertised(bound.parse().unwrap(), None, &loopback);
            assert_eq!(found.host.to_string(), host);
            assert!(found.names.is_empty());
        }
        let only_four = ["192.168.7.4".parse().unwrap()];
        assert_eq!(
            choose_advertised("::".parse().unwrap(), None, &only_four)
                .host
                .to_string(),
            "192.168.7.4"
        );
    }

    #[test]
    fn interface_addresses_include_loopback() {
        assert!(interface_addresses().iter().any(IpAddr::is_loopback));
    }
}
