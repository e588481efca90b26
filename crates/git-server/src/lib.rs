//! Bare repositories over smart HTTP and ssh, by the installed git.
