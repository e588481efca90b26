//! The range of addresses for Services.

use std::net::Ipv4Addr;

/// The range of cluster addresses; nothing routes to them here, but clients expect them to be there and unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u32,
}

/// The error in the text of a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv4 range of 4 to 1,048,576 addresses, such as 10.96.0.0/16")]
pub struct InvalidRange(String);

impl Default for ServiceRange {
    fn default() -> Self {
        Self {
            network: u32::from(Ipv4Addr::new(10, 96, 0, 0)),
            prefix: 16,
        }
    }
}

impl std::str::FromStr for ServiceRange {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix: u32 = prefix.parse().ok().filter(|prefix| (12..=30).contains(prefix))?;
            let size = 1_u32 << (32 - prefix);
            Some(Self {
                network: u32::from(address) & !(size - 1),
                prefix,
            })
        };
        read().ok_or_else(|| InvalidRange(text.to_owned()))
    }
}

impl ServiceRange {
    /// Returns the number of addresses, including the first and the last one, which are not allocated.
    #[must_use]
    pub fn size(self) -> u32 {
        1_u32 << (32 - self.prefix)
    }

    /// Returns the length of the prefix in bits.
    #[must_use]
    pub fn prefix(self) -> u32 {
        self.prefix
    }

    /// Returns the network address of the range.
    #[must_use]
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network)
    }

    /// Returns the address at an offset from the network address.
    #[must_use]
    pub fn address(self, offset: u32) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(self.network.checked_add(offset)?))
    }

    /// Returns the address of the API server itself.
    #[must_use]
    pub fn first(self) -> String {
        Ipv4Addr::from(self.network.saturating_add(1)).to_string()
    }

    /// Returns whether the address may be allocated.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        0 < offset && offset < self.size() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range: ServiceRange = "10.0.0.7/24".parse().unwrap();
        assert_eq!(range.address(1), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(range.address(range.size() - 2), Some(Ipv4Addr::new(10, 0, 0, 254)));
        for (address, inside) in [
            ([10, 0, 0, 0], false),
            ([10, 0, 0, 1], true),
            ([10, 0, 0, 254], true),
            ([10, 0, 0, 255], false),
            ([9, 255, 255, 255], false),
        ] {
            assert_eq!(range.contains(address.into()), inside, "{address:?}");
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "fd00::/112",
            "10.0.0.0/24,fd00::/112",
        ] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }
}
