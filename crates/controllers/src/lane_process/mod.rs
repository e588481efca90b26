//! The process of one lane: what it knows, what it asks and tells, and its work.
//!
//! The hub (`crate::fleet`) starts it and hands it over its standard input what it may know, one frame after the other (`crate::frames`), and over
//! its standard output the connections that it asks for (`crate::dial_line`); the process ([`LaneProcess`]) reconciles with the same code as a lane that is a task. It has its lane's token and no other, the objects of its
//! namespaces, and a folder. It refuses to be told anything by its arguments or its environment, which others can read.

mod borrowing;
mod dialing;
mod line;
mod process;
mod rooms;
mod surroundings;

pub use process::{LaneError, LaneProcess};
