//! semver
