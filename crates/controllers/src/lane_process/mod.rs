//! The process of one lane: its facts, its messages to the hub, and its work.
//!
//! The hub (`crate::hub::lane_fleet`) starts it. Over its standard input the hub sends the facts that it may know, frame by frame (`crate::lane_protocol::messages`). Over its
//! standard output the hub hands over the connections that it requests (`crate::lane_protocol::dial_channel`). The process ([`LaneProcess`]) reconciles with the same
//! code as a lane that is a task. It has only its lane's token, the objects of its namespaces, and a folder. It takes no orders from its arguments or
//! its environment, because other processes can read those.

mod borrowing;
mod dialing;
mod line;
pub(crate) mod pod_relay;
mod process;
mod rooms;
mod surroundings;

pub use process::{LaneError, LaneProcess};
