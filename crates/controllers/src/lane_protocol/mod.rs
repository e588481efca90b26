//! Messages and connections between the hub, the processes of lanes, and their Pods.
//!
//! - `dial_channel`: the second channel of a process: requests for connections and archives.
//! - `dial_server`: opens the requested connections.
//! - `file_transfer`: files in pieces, over the connection of a Pod.
//! - `greeting`: the first message of a Pod.
//! - `message_rate`: limits the reading of messages.
//! - `messages`: the messages between the hub and a process.
//! - `pod_connection`: the connection between the hub and a Pod.
//! - `process_starter`: starts processes.
//! - `shared_capacity`: the capacities that all lanes share.

pub(crate) mod dial_channel;
pub(crate) mod dial_server;
pub(crate) mod file_transfer;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub(crate) mod greeting;
pub(crate) mod message_rate;
pub(crate) mod messages;
pub(crate) mod pod_connection;
pub(crate) mod process_starter;
pub(crate) mod shared_capacity;
