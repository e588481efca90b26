//! Any bytes as a file of resources: read, written, read again. The written text must be readable, and must not change when it is read and
//! written again.
#![no_main]

use kustomize::{Limits, read_manifests};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    check(text);
    // The same text as a field of an object. Most documents are not objects, so without this field they would only test the reader.
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
    let Ok(resources) = read_manifests("a.yaml", text, &limits) else {
        return;
    };
    for resource in resources {
        let written = resource.to_yaml();
        // Go's own emitter writes some texts that its reader refuses or changes: certain characters, an unquoted key `<<` that only a tag
        // makes a string, and the decoded value of a key with a binary tag. Every other written text must be read back unchanged.
        let merges = written
            .lines()
            .any(|line| line.trim_start_matches([' ', '-']).starts_with("<<:"));
        // As in kustomize, a ResourceList that is alone in its file stands for its items.
        let unwraps = written.lines().any(|line| line == "kind: ResourceList");
        let odd = written.chars().chain(text.chars()).any(shapes::is_unreadable);
        if merges || unwraps || odd || text.contains("binary") {
            let _ = read_manifests("b.yaml", &written, &limits);
            continue;
        }
        match read_manifests("b.yaml", &written, &limits).as_deref() {
            Ok([again]) => assert_eq!(again.to_yaml(), written),
            Ok(other) => panic!("{} resources read back from\n{written}", other.len()),
            Err(error) => panic!("{error}, reading back\n{written}"),
        }
    }
}
