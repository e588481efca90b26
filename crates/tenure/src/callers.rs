//! Which addresses have how many connections to one listener. Owns the counts and what one address is; refuses to know what is asked there.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Who has how many connections. An address of IPv6 counts as its network: whoever has one has all of that.
#[derive(Clone)]
pub(crate) struct CallerTable {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One of somebody's connections, until it is dropped.
pub(crate) struct Caller {
    callers: CallerTable,
    address: IpAddr,
}

impl CallerTable {
    /// So many at most of one address.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, if there may be one.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<Caller> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        };
        let mut callers = self.lock();
        let count = callers.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Caller {
            callers: self.clone(),
            address,
        })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut callers = self.callers.lock();
        if let Some(count) = callers.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                callers.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        const OF_ONE: usize = 8;
        let callers = CallerTable::new(OF_ONE);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut held: Vec<Caller> = (0..OF_ONE)
            .filter_map(|number| callers.admit(address(&format!("2001:db8::{number:x}"))))
            .collect();
        assert_eq!(held.len(), OF_ONE);
        // The same network, and another one.
        assert!(callers.admit(address("2001:db8::ffff")).is_none());
        assert!(callers.admit(address("2001:db8:0:1::1")).is_some());
        assert!(callers.admit(address("192.0.2.1")).is_some());
        held.pop();
        assert!(callers.admit(address("2001:db8::1")).is_some());
        drop(held);
        assert!(callers.lock().is_empty(), "nothing is kept of who has gone");
    }
}
