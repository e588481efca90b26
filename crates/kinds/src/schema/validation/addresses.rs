//! IP addresses and ranges in fields, and the errors for addresses that a field does not allow.

use std::net::{IpAddr, Ipv4Addr};

use crate::schema::{FieldError, FieldPath};

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads an address by the old rules, which allow leading zeros in its numbers.
pub(crate) fn parse_lenient_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|_| {
                // Nothing but zeros.
                if part.bytes().all(|byte| byte == b'0') {
                    Ok(0)
                } else {
                    Err(())
                }
            })
            .ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Returns whether the address is an IPv4-mapped IPv6 address.
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Reads an address, or adds an error.
pub(crate) fn parse_address(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let why = match (parse_lenient_address(text), text.parse::<IpAddr>()) {
        (None, _) => NO_ADDRESS,
        (Some(_), Err(_)) => "must not have leading 0s",
        (Some(address), Ok(_)) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        (found, _) => return found,
    };
    errors.push(FieldError::invalid(at, text, why));
    None
}

/// Checks that other machines can reach an address: it must not be unspecified, of the loopback, or link-local.
pub(crate) fn validate_reachable(address: IpAddr, text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let link_multicast = match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    };
    let why = if address.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(at, text, why));
}

/// A range of addresses: its first one and how many bits of it are fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    first: IpAddr,
    bits: u8,
}

impl Range {
    /// Returns whether another range is part of this one, and smaller.
    pub(crate) fn strictly_contains(self, other: Self) -> bool {
        let same_family = self.first.is_ipv4() == other.first.is_ipv4();
        same_family && other.bits > self.bits && mask_address(other.first, self.bits) == self.first
    }
}

/// Reads a range, or adds errors.
pub(crate) fn parse_range(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Range> {
    let parsed = text.split_once('/').and_then(|(first, bits)| {
        let plain = first.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0'));
        let first = parse_lenient_address(first)?;
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| digits)?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some((first, bits, plain))
    });
    let why = match parsed {
        None => NO_RANGE,
        Some((_, _, false)) => "must not have leading 0s in IP or prefix length",
        Some((address, ..)) if is_mapped(address) => "must not have an IPv4-mapped IPv6 address",
        Some((address, bits, _)) => return Some(whole_range(address, bits, text, at, errors)),
    };
    errors.push(FieldError::invalid(at, text, why));
    None
}

/// Returns a range. The address must have no bits behind the prefix.
fn whole_range(address: IpAddr, bits: u8, text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Range {
    let first = mask_address(address, bits);
    if first != address {
        let why = "must not have bits set beyond the prefix length";
        errors.push(FieldError::invalid(at, text, why));
    }
    Range { first, bits }
}

/// Returns an address with all bits behind the prefix cleared.
fn mask_address(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_in_front() {
        assert_eq!(
            parse_lenient_address("010.002.000.4")
                .map(|it| it.to_string())
                .as_deref(),
            Some("10.2.0.4")
        );
        for text in ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "1..2.3", "a.b.c.d", "+1.2.3.4"] {
            assert_eq!(parse_lenient_address(text), None, "{text}");
        }
    }

    #[test]
    fn ranges() {
        let read = |text: &str| {
            let mut errors = Vec::new();
            let range = parse_range(text, &FieldPath::new("x"), &mut errors);
            (range, errors.len())
        };
        let (Some(outer), 0) = read("10.0.0.0/8") else { panic!() };
        let (Some(inner), 0) = read("10.1.0.0/16") else {
            panic!()
        };
        assert!(outer.strictly_contains(inner) && !inner.strictly_contains(outer) && !outer.strictly_contains(outer));
        assert_eq!(read("10.0.0.1/8").1, 1);
        assert_eq!(read("0.0.0.0/0").1, 0);
        assert_eq!(read("::/0").1, 0);
        for text in [
            "x",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/08",
            "::/129",
            "/8",
        ] {
            assert_eq!(read(text), (None, 1), "{text}");
        }
    }
}
