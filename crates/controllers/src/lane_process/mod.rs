//! The process of one lane: its facts, its messages to the hub, and its work.
//!
//! The hub (`crate::hub::lane_fleet`) starts it. Over its standard input the hub sends the facts that it may know, frame by frame
//! (`crate::lane_protocol::messages`). Over its standard output the hub hands over the connections that it requests
//! (`crate::lane_protocol::dial_channel`). The process ([`LaneProcess`]) reconciles with the same code as a lane that is a task. It has only its
//! lane's token, the objects of its namespaces, and a folder. It takes no orders from its arguments or its environment, because other processes can
//! read those.
//!
//! - `borrowed_artifacts`: copies of artifacts from other lanes.
//! - `capacity_shares`: the lane's shares of capacities.
//! - `hub_channel`: messages to the hub, and its answers.
//! - `hub_dialer`: requests to the hub for connections.
//! - `hub_proxy`: stands for the hub in this process.
//! - `pod_relay`: the other process of a lane's Pod, between the hub and the lane.
//! - `process`: the process from its first order to its end.

mod borrowed_artifacts;
mod capacity_shares;
mod hub_channel;
mod hub_dialer;
mod hub_proxy;
pub(crate) mod pod_relay;
mod process;

pub use process::{LaneError, LaneProcess};
