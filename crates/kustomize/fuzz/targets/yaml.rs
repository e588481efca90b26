//! Any bytes as a file of resources: read, written, read again. What was written must be readable and must not change when it is
//! read and written once more.
#![no_main]

use kustomize::{Limits, manifests};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    check(text);
    // The same text as a field of an object: most documents are not objects, and would go no further than the reader.
    let mut inside = "apiVersion: v1\nkind: A\nmetadata: {name: a}\nspec:\n".to_owned();
    for line in text.lines() {
        inside.push_str("  ");
        inside.push_str(line);
        inside.push('\n');
    }
    check(&inside);
});

fn check(text: &str) {
    let limits = Limits::default();
    let Ok(resources) = manifests("a.yaml", text, &limits) else {
        return;
    };
    for resource in resources {
        let written = resource.to_yaml();
        // Go's own emitter writes characters that its reader refuses or folds, a key `<<` that only a tag makes a string without
        // quotes, and a key that a tag says is binary as what it stands for; what it writes of all others must come back.
        let merges = written
            .lines()
            .any(|line| line.trim_start_matches([' ', '-']).starts_with("<<:"));
        let odd = written.chars().chain(text.chars()).any(shapes::is_unreadable);
        if merges || odd || text.contains("binary") {
            let _ = manifests("b.yaml", &written, &limits);
            continue;
        }
        match manifests("b.yaml", &written, &limits).as_deref() {
            Ok([again]) => assert_eq!(again.to_yaml(), written),
            Ok(other) => panic!("{} resources read back from\n{written}", other.len()),
            Err(error) => panic!("{error}, reading back\n{written}"),
        }
    }
}
