//! Ports for servers that tests start as other programs, if these programs can't report a port that the system assigned.
//!
//! A test that asks the system for a free port, closes it and hands its number to a program loses a race now and then: the system can assign the port again. The ports of
//! [`reserve_port`] are below the range from which Linux assigns ports, and a lock keeps them from all other tests of the machine.

#![expect(clippy::panic, reason = "only tests call it, and a test without a port can't go on")]

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The first port. Linux assigns ports from 32768 on (`net.ipv4.ip_local_port_range`).
const FIRST: u16 = 15_000;

/// The number of ports.
const COUNT: u16 = 15_000;

/// The locks of this process. The system releases them at its end.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Reserves a loopback port until the end of this process, and returns its number. No process listens on the port, and no other test of this machine gets it.
///
/// # Panics
///
/// If no port is free, or if the folder of the locks (`tenure-test-ports` in the folder for temporary files) can't be written.
#[must_use]
pub fn reserve_port() -> u16 {
    let folder = std::env::temp_dir().join("tenure-test-ports");
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    // Processes begin at different places, so most find a free port at once.
    let begin = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT)).unwrap_or_default();
    for offset in 0..COUNT {
        let port = FIRST + (begin + offset) % COUNT;
        let Some(lock) = lock_file(folder.join(port.to_string())) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return port;
        }
    }
    panic!("no port of {FIRST} to {} is free", FIRST + COUNT - 1);
}

/// Locks a file, and returns `None` if another process or another part of this one has the lock.
fn lock_file(path: PathBuf) -> Option<File> {
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => panic!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_port_is_reserved_once() {
        let ports = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..10).map(|_| reserve_port()).collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(ports.len(), 40);
        // A lock is bound to an opened file, so another process sees the same.
        let path = std::env::temp_dir()
            .join("tenure-test-ports")
            .join(ports.first().unwrap().to_string());
        assert!(lock_file(path).is_none());
    }

    #[test]
    fn port_in_use_is_passed_over() {
        let next = reserve_port() + 1;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, next)) {
            assert_ne!(reserve_port(), next);
            drop(listener);
        }
    }
}
