//! authentication
