//! Builders and clusters to test on.
