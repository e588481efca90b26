//! Reads the file `.gitmodules` of a commit: the paths and addresses of its submodules.
//!
//! Supports relative addresses. Files that are too long are refused. Keys that only concern working trees are ignored, commands among them.

use std::collections::BTreeMap;

use crate::git::config::{Variable, read_variables};

/// The longest file in bytes.
pub(crate) const LONGEST: u64 = 256 << 10;

/// Reads a file into addresses by the paths of their submodules. For two entries with the same path, the last one wins.
///
/// # Errors
/// The number of the wrong line.
pub(crate) fn read_modules(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut modules: BTreeMap<String, (Option<String>, Option<String>)> = BTreeMap::new();
    for Variable { section, key, value } in read_variables(text, read_submodule)? {
        let module = modules.entry(section).or_default();
        match key.as_str() {
            "path" => module.0 = Some(value),
            "url" => module.1 = Some(value),
            _ => {}
        }
    }
    let complete = modules.into_values().filter_map(|(path, url)| Some((path?, url?)));
    Ok(complete.collect())
}

/// Reads the name of a submodule's section. As in git, the word before the name is case-insensitive, and the name is not.
fn read_submodule(header: &str) -> Option<String> {
    let header = header.trim();
    let end = header.find([' ', '\t', '"', '.']).unwrap_or(header.len());
    let (word, name) = header.split_at_checked(end)?;
    let is_submodule = word.eq_ignore_ascii_case("submodule");
    is_submodule.then(|| name.trim().to_owned())
}

/// Resolves the address of a submodule, in the form of a URL: unchanged, or relative to its parent's if it begins with `./` or `../`.
///
/// # Errors
/// The problem of the address.
pub(crate) fn resolve_address(parent: &str, address: &str) -> Result<String, &'static str> {
    if !address.starts_with("./") && !address.starts_with("../") {
        return Ok(match read_short_form(address) {
            Some((user, path)) => format!("ssh://{user}/{path}"),
            None => address.to_owned(),
        });
    }
    let (scheme, rest) = parent.split_once("://").ok_or("its parent's address is no URL")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for part in address.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or("it leads above the root of its parent's host")?;
            }
            part => parts.push(part),
        }
    }
    Ok(format!("{scheme}://{host}/{}", parts.join("/")))
}

/// Splits `user@host:path`, the short form of ssh addresses.
fn read_short_form(address: &str) -> Option<(&str, &str)> {
    if address.contains("://") {
        return None;
    }
    let (user, path) = address.split_once(':')?;
    (user.contains('@') && !user.contains('/')).then(|| (user, path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_git_reads_them() {
        let text = "# ours\n[submodule \"a b\"]\n\tpath = lib/a ; a comment\n\turl = \"https://example.com/a#b\" # more\n\
                    [submodule \"two\"]\n  URL=../two.git\n  path=\"lib/\\\"two\\\"\"\n  update = !rm -rf /\n\
                    [core]\n  path = x\n  url = y\n[submodule \"half\"]\n  path = half\n\
                    [submodule \"long\"]\n  path = lo\\\nng\n  url = ./x\n";
        let modules = read_modules(text).unwrap();
        let expected = [
            ("lib/\"two\"", "../two.git"),
            ("lib/a", "https://example.com/a#b"),
            ("long", "./x"),
        ];
        assert_eq!(
            modules,
            expected.map(|(path, url)| (path.to_owned(), url.to_owned())).into()
        );
        for (text, expected) in [
            ("[submodule \"a\"", "line 1 is a section without an end"),
            ("[submodule \"a\"]\nurl = \"x", "line 2 has a value"),
            ("[submodule \"a\"]\nurl = a\\qb", "line 2 has a value"),
            ("[submodule \"a\"]\nurl = a\\", "line 2 goes on"),
        ] {
            assert!(read_modules(text).unwrap_err().contains(expected), "{text}");
        }
        assert_eq!(read_modules("").unwrap(), BTreeMap::new());
        let cases = "[SubModule \"a\"]\npath = a\nurl = ./a\n[submodules \"b\"]\npath = b\nurl = ./b\n[submodule.c]\nPATH = c\nUrl = ./c\n";
        let names: Vec<String> = read_modules(cases).unwrap().into_keys().collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn relative_addresses_begin_at_the_parent() {
        let resolve = |address| resolve_address("https://example.com:8443/team/app.git", address);
        assert_eq!(resolve("../lib.git").unwrap(), "https://example.com:8443/team/lib.git");
        assert_eq!(resolve("./lib").unwrap(), "https://example.com:8443/team/app.git/lib");
        assert_eq!(
            resolve("../../other/./lib").unwrap(),
            "https://example.com:8443/other/lib"
        );
        assert!(resolve("../../../lib").is_err());
        assert_eq!(
            resolve("git@example.com:team/lib.git").unwrap(),
            "ssh://git@example.com/team/lib.git"
        );
        assert_eq!(resolve("https://else.example/x").unwrap(), "https://else.example/x");
        assert_eq!(resolve("file:///etc").unwrap(), "file:///etc");
        assert_eq!(resolve("/etc/passwd").unwrap(), "/etc/passwd");
    }
}
