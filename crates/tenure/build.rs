//! Links the program with packed relocations, if the linker and the C library support them. A program without them works in the same way and needs more memory.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_linux = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if !is_linux || variable("PROFILE") != "release" || !is_known(&variable) {
        return;
    }
    if variable("HOST") == variable("TARGET") && reads_packed_relocations() {
        println!("cargo:rustc-link-arg-bin=tenure=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the linker is Rust's own or GNU's, which support the flag. Others were not tried.
fn is_known(variable: &dyn Fn(&str) -> String) -> bool {
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let linker = variable("RUSTC_LINKER");
    !["mold", "gold", "wild"]
        .iter()
        .any(|other| flags.contains(other) || linker.contains(other))
}

/// Whether the C library of this machine supports packed relocations, as glibc 2.36 does. Programs for other machines are linked without them.
fn reads_packed_relocations() -> bool {
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .trim()
        .trim_start_matches("glibc ")
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= (2, 36))
}
