//! Decides which addresses a source may connect to. Pure: without a resolver or a socket.
//!
//! The rule is an allow-list: only globally routable unicast addresses pass. Excluded are known addresses of cloud metadata services, and the ranges that an
//! administrator names (the cluster's pods, services and nodes). An administrator can allow exact exceptions. An IPv6 address that carries an IPv4 address is also
//! checked as that IPv4 address. Names are not checked: the decision is about the address that a name resolved to, at the moment of connecting.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The scheme of a connection, as in the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scheme {
    /// Plain HTTP, port 80 unless given.
    Http,
    /// HTTP over TLS, port 443 unless given.
    Https,
    /// Git over ssh, port 22 unless given.
    Ssh,
}

impl Scheme {
    /// Returns the scheme as written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ssh => "ssh",
        }
    }

    /// Returns the port of a URL that names none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Ssh => 22,
        }
    }
}

/// The target of a connection before resolution: the authority of a URL. Credentials belong to exactly one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The scheme.
    pub scheme: Scheme,
    /// Lower-case host name or IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.scheme.as_str(), self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
        }
    }
}

/// The error for a text that is not `scheme://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an allowed endpoint: write http://host:port, https://host:port or ssh://host:port")]
pub struct InvalidEndpoint(String);

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    /// Reads `scheme://host[:port]`. A path or a user is refused, because an exception is exact.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidEndpoint(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "ssh" => Scheme::Ssh,
            _ => return Err(invalid()),
        };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, scheme.default_port()),
            Some((host, port)) => (
                host,
                port.strip_prefix(':')
                    .and_then(|port| port.parse().ok())
                    .ok_or_else(invalid)?,
            ),
            None => match rest.split_once(':') {
                Some((host, port)) => (host, port.parse().map_err(|_| invalid())?),
                None => (rest, scheme.default_port()),
            },
        };
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(known) || host.starts_with('-') || port == 0 {
            return Err(invalid());
        }
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

/// A range of addresses, as `10.0.0.0/8` or `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    network: u128,
    mask: u128,
    v6: bool,
}

/// The error for a text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses such as 10.0.0.0/8 or fd00::/8")]
pub struct InvalidCidr(String);

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidCidr(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let length: u32 = length.parse().map_err(|_| invalid())?;
        let (bits, v6) = match address {
            IpAddr::V4(_) => (32, false),
            IpAddr::V6(_) => (128, true),
        };
        if length > bits {
            return Err(invalid());
        }
        // The mask works on 128 bits; an IPv4 address fills the low 32.
        let host_bits = bits - length;
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        Ok(Self {
            network: to_number(address) & mask,
            mask,
            v6,
        })
    }
}

impl TryFrom<String> for Cidr {
    type Error = InvalidCidr;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(range: Cidr) -> Self {
        range.to_string()
    }
}

impl fmt::Display for Cidr {
    /// Writes the range as in a NetworkPolicy: with the first address of the range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.mask.count_ones();
        if self.v6 {
            return write!(f, "{}/{length}", Ipv6Addr::from(self.network));
        }
        let network = Ipv4Addr::from(u32::try_from(self.network & u128::from(u32::MAX)).unwrap_or_default());
        // Of the 128 bits of the mask, an IPv4 address has the low 32.
        write!(f, "{network}/{}", length.saturating_sub(96))
    }
}

impl Cidr {
    /// Checks whether the range has IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.v6
    }

    /// Checks whether the address is in the range. An IPv4 address is never in an IPv6 range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.v6 && to_number(address) & self.mask == self.network
    }
}

/// Returns an address as a number; an IPv4 address fills the low 32 bits.
fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The addresses that sources may connect to. The default allows only public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The administrator's exceptions: each allows one exact scheme, host (as written in the URL) and port, and nothing else.
    pub allow: Vec<Endpoint>,
    /// Ranges that are refused although they look public: the cluster's own pods, services and nodes.
    pub cluster: Vec<Cidr>,
}

/// The error for a connection that the policy refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "connection to {endpoint} denied: {address} is {class}, which sources may not reach; an administrator allows it by starting the controllers with --allow-source {endpoint}"
)]
pub struct Denied {
    /// The target of the connection.
    pub endpoint: Endpoint,
    /// The address it resolved to.
    pub address: IpAddr,
    /// The kind of address, with its article, as "a loopback address".
    pub class: &'static str,
}

impl Policy {
    /// Decides whether a connection to the endpoint may be opened to this address.
    pub fn check(&self, endpoint: &Endpoint, address: IpAddr) -> Result<(), Denied> {
        if self.allow.contains(endpoint) {
            return Ok(());
        }
        match self.find_class(address) {
            None => Ok(()),
            Some(class) => Err(Denied {
                endpoint: endpoint.clone(),
                address,
                class,
            }),
        }
    }

    /// Returns the kind of a refused address, with its article; `None` if sources may reach the address.
    fn find_class(&self, address: IpAddr) -> Option<&'static str> {
        if self.cluster.iter().any(|range| range.contains(address)) {
            return Some("an address of the cluster");
        }
        match address {
            IpAddr::V4(v4) => class_v4(v4),
            IpAddr::V6(v6) => {
                let carried = find_carried_v4(v6).and_then(|v4| self.find_class(IpAddr::V4(v4)));
                carried.or_else(|| class_v6(v6))
            }
        }
    }
}

/// Classifies IPv4: every block of the IANA special-purpose registry, and the addresses of cloud metadata services.
fn class_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [169, 254, 169, 254] | [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, 192] => {
            Some("a cloud metadata address")
        }
        [0, 0, 0, 0] => Some("the unspecified address"),
        [0, ..] => Some("an address of this network (0.0.0.0/8)"),
        [127, ..] => Some("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("a private address"),
        [169, 254, ..] => Some("a link-local address"),
        [100, 64..=127, ..] => Some("a carrier-grade NAT address"),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18 | 19, ..] => {
            Some("a reserved address")
        }
        [255, 255, 255, 255] => Some("the broadcast address"),
        [224..=239, ..] => Some("a multicast address"),
        [240..=255, ..] => Some("a reserved address"),
        _ => None,
    }
}

/// Returns the IPv4 address in an IPv6 address. The result can only add a refusal.
fn find_carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv4-compatible, IPv4-mapped, IPv4-translated (RFC 2765) and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0, g @ 1..=0xffff, h] | [0, 0, 0, 0, 0, 0xffff, g, h] | [0, 0, 0, 0, 0xffff, 0, g, h] => {
            join(g, h)
        }
        [0x64, 0xff9b, 0, 0, 0, 0, g, h] => join(g, h),
        // 6to4 (RFC 3056) carries it behind the prefix.
        [0x2002, b, c, ..] => join(b, c),
        // ISATAP (RFC 5214) carries it in the interface identifier, with any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, g, h] => join(g, h),
        _ => None,
    }
}

/// Classifies IPv6: the blocks of the IANA special-purpose registry that are not globally reachable, and the unassigned blocks.
fn class_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("the unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // An IPv4 address in another form, and NAT64: the carried address was checked before.
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => None,
        [0x64, 0xff9b, 1, ..] => Some("a local NAT64 address"),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Some("a cloud metadata address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // Teredo, ORCHID, benchmarking and the other protocol assignments of 2001::/23; documentation; segment routing.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("a reserved address"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}
