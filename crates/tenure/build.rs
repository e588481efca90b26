//! How the program is linked: what a small build touches lies together, and relocations are packed. Owns when either can be asked of
//! the linker; a program that is linked without them does the same, with more memory.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=start.ld");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_linux = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if !is_linux || variable("PROFILE") != "release" || !is_known(&variable) {
        return;
    }
    // One binary of 40 MB has its parts from a hundred libraries, and the kernel maps 64 KB around each that is used.
    println!(
        "cargo:rustc-link-arg-bin=tenure=-Wl,-T,{}/start.ld",
        variable("CARGO_MANIFEST_DIR")
    );
    if variable("HOST") == variable("TARGET") && reads_packed_relocations() {
        println!("cargo:rustc-link-arg-bin=tenure=-Wl,-z,pack-relative-relocs");
    }
}

/// Tells whether the linker is the one that Rust brings, or GNU's: others don't read scripts that add to their own.
fn is_known(variable: &dyn Fn(&str) -> String) -> bool {
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let linker = variable("RUSTC_LINKER");
    !["mold", "gold", "wild"]
        .iter()
        .any(|other| flags.contains(other) || linker.contains(other))
}

/// Tells whether the C library here is new enough for them: glibc 2.36 is. What is linked elsewhere is linked without.
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
