//! Writes the first inputs of the targets: from the crate's corpus of recorded cases, and for generated trees from a fixed sequence of
//! bytes. Run `cargo run --example seed` in this folder.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for target in ["yaml", "tree", "layers"] {
        fs::create_dir_all(here.join("corpus").join(target))?;
    }
    for case in fs::read_dir(here.join("../tests/corpus"))? {
        let case = case?.path();
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let inside = fs::read_to_string(case.join("origin.toml"))?
            .lines()
            .find_map(|line| Some(line.strip_prefix("build = ")?.trim_matches('"').to_owned()))
            .unwrap_or_default();
        let mut text = format!("{inside}\n").into_bytes();
        let mut count = 0;
        add(&case.join("input"), "", &mut text, &mut |file| {
            count += 1;
            fs::write(here.join(format!("corpus/yaml/{name}-{count}")), file)
        })?;
        fs::write(here.join("corpus/tree").join(&name), text)?;
    }
    let mut state = 1_u64;
    for number in 0..400 {
        let bytes: Vec<u8> = (0..100 + number)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        fs::write(here.join(format!("corpus/layers/{number}")), bytes)?;
    }
    Ok(())
}

fn add(
    folder: &Path,
    inside: &str,
    text: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{inside}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            text.extend(format!("-- {path} -> {} --\n", target.display()).bytes());
        } else if kind.is_dir() {
            add(&entry.path(), &format!("{path}/"), text, each)?;
        } else {
            let content = fs::read(entry.path())?;
            each(&content)?;
            text.extend(format!("-- {path} --\n").bytes());
            text.extend(&content);
            if !content.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
    }
    Ok(())
}
