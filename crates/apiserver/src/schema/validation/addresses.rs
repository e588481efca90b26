//! IP addresses and ranges of them as fields have them, and the complaints about those that mean nothing there.

use std::net::IpAddr;

use crate::schema::{FieldError, FieldPath};

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An address, or a complaint that it is none.
pub(super) fn address(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        errors.push(FieldError::invalid(at, text, NO_ADDRESS));
    }
    parsed
}

/// Complains about an address at which nobody else can be: unspecified, of the machine itself, of the link.
pub(super) fn not_special(address: IpAddr, text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
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
pub(super) struct Range {
    first: IpAddr,
    bits: u8,
}

impl Range {
    /// Whether another range is part of this one, and smaller.
    pub(super) fn strictly_contains(self, other: Self) -> bool {
        let same_family = self.first.is_ipv4() == other.first.is_ipv4();
        same_family && other.bits > self.bits && masked(other.first, self.bits) == self.first
    }
}

/// A range, or complaints about it.
pub(super) fn range(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Range> {
    let parsed = text.split_once('/').and_then(|(first, bits)| {
        let first: IpAddr = first.parse().ok()?;
        let plain = bits == "0" || (!bits.starts_with('0') && bits.bytes().all(|byte| byte.is_ascii_digit()));
        let bits: u8 = bits.parse().ok().filter(|_| plain)?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some((first, bits))
    });
    let Some((address, bits)) = parsed else {
        errors.push(FieldError::invalid(at, text, NO_RANGE));
        return None;
    };
    let first = masked(address, bits);
    if first != address {
        let why = "must not have bits set beyond the prefix length";
        errors.push(FieldError::invalid(at, text, why));
    }
    Some(Range { first, bits })
}

/// An address without what is behind its first bits.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
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
    fn ranges() {
        let read = |text: &str| {
            let mut errors = Vec::new();
            let range = range(text, &FieldPath::new("x"), &mut errors);
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
