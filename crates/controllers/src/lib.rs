//! Observe, execute and the loop: one folder a kind. Chooses nothing.
