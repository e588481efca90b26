//! Metrics and traces of the controllers.
//!
//! - `lane_spans`: spans of lanes that run as processes.
//! - `metrics`: metrics, within a share for each tenant.
//! - `spans`: names and attributes of spans.

pub(crate) mod lane_spans;
pub(crate) mod metrics;
pub(crate) mod spans;
