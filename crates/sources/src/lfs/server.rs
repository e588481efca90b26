//! Finds the server of Git LFS for a repository. Pure.
//!
//! It is the server of the repository itself. The repository may choose another path on it with `lfs.url` of `.lfsconfig`. Another host is refused: a committer chooses
//! that file, and the credentials are for the host of the source's URL.

use crate::archive::LFS_CONFIG_FILE;
use crate::error::FetchError;
use crate::git::config::read_variables;
use crate::host_client::BaseUrl;
use crate::ignore::Ignore;
use crate::policy::Scheme;
use crate::url::RemoteUrl;

/// The place of the Git LFS API for a repository, or the ssh server that names the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LfsServer {
    /// The API is here.
    Http(BaseUrl),
    /// The ssh server of this repository says where it is.
    Ssh(RemoteUrl),
}

/// The settings of a repository's `.lfsconfig` that concern fetches: the address of the API, and the patterns of files.
#[derive(Debug, Default)]
pub(crate) struct LfsConfig {
    url: Option<String>,
    include: Option<Ignore>,
    exclude: Option<Ignore>,
}

impl LfsConfig {
    /// Reads a `.lfsconfig`. Other settings concern pushes, locks and working trees.
    ///
    /// # Errors
    /// The number of the wrong line.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let select = |header: &str| header.trim().eq_ignore_ascii_case("lfs").then_some(());
        let mut config = Self::default();
        for variable in read_variables(text, select)? {
            // As in git, the last value of a key wins.
            match variable.key.as_str() {
                "url" => config.url = Some(variable.value).filter(|url| !url.is_empty()),
                "fetchinclude" => config.include = read_patterns(&variable.value),
                "fetchexclude" => config.exclude = read_patterns(&variable.value),
                _ => {}
            }
        }
        Ok(config)
    }

    /// Checks whether the repository wants the file at this path to stay a pointer. `None` if the patterns take too much work.
    pub(crate) fn leaves_out(&self, path: &str) -> Option<bool> {
        let matches = |patterns: &Option<Ignore>| patterns.as_ref().map(|patterns| patterns.excludes(path));
        let is_included = matches(&self.include).unwrap_or(Some(true))?;
        let is_excluded = matches(&self.exclude).unwrap_or(Some(false))?;
        Some(!is_included || is_excluded)
    }

    /// Finds the Git LFS server of a repository, by its settings and its URL.
    pub(crate) fn find_server(&self, remote: &RemoteUrl) -> Result<LfsServer, FetchError> {
        let is_ssh = remote.endpoint().scheme == Scheme::Ssh;
        let invalid = |problem: String| FetchError::HttpApi {
            url: format!("lfs.url of {LFS_CONFIG_FILE}"),
            problem,
        };
        let own = remote.endpoint();
        let other_host = || {
            invalid(format!(
                "it leads to another server than the repository, {own}, and Git LFS is only fetched from the same one; make it a path there, or take it out"
            ))
        };
        match (&self.url, is_ssh) {
            (None, true) => Ok(LfsServer::Ssh(remote.clone())),
            (None, false) => {
                let base = BaseUrl::parse(&remote.to_string()).ok_or_else(|| invalid("it is no URL".to_owned()))?;
                let has_end = base
                    .path()
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| name.ends_with(".git"));
                Ok(LfsServer::Http(base.join(if has_end {
                    "/info/lfs"
                } else {
                    ".git/info/lfs"
                })))
            }
            (Some(url), true) => match RemoteUrl::parse(url) {
                Ok(url) if url.endpoint() == own => Ok(LfsServer::Ssh(url)),
                _ => Err(other_host()),
            },
            (Some(url), false) => match BaseUrl::parse(url) {
                Some(base) if base.endpoint() == own => Ok(LfsServer::Http(base)),
                Some(_) => Err(other_host()),
                None => Err(invalid(format!(
                    "it must be a URL such as {own}/path, without user, password, query and fragment"
                ))),
            },
        }
    }
}

/// Reads a list of patterns with commas in between.
fn read_patterns(list: &str) -> Option<Ignore> {
    let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
    let lines = patterns.collect::<Vec<_>>().join("\n");
    (!lines.is_empty()).then(|| Ignore::from_texts(None, Some(&lines)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(remote: &str, config: &str) -> Result<String, String> {
        let server = LfsConfig::read(config)?.find_server(&RemoteUrl::parse(remote).unwrap());
        server.map_err(|error| error.to_string()).map(|server| match server {
            LfsServer::Http(base) => base.to_string(),
            LfsServer::Ssh(url) => url.to_string(),
        })
    }

    #[test]
    fn the_server_is_the_repositorys_own() {
        let set = |url: &str| format!("[lfs]\n\turl = {url}\n");
        for (remote, config, expected) in [
            (
                "https://a.example/team/app",
                String::new(),
                "https://a.example:443/team/app.git/info/lfs",
            ),
            (
                "https://a.example/team/app.git",
                String::new(),
                "https://a.example:443/team/app.git/info/lfs",
            ),
            (
                "https://a.example/team/app/",
                String::new(),
                "https://a.example:443/team/app.git/info/lfs",
            ),
            (
                "http://a.example:8080/o/_git/r",
                String::new(),
                "http://a.example:8080/o/_git/r.git/info/lfs",
            ),
            (
                "https://me:word@a.example/x.git",
                String::new(),
                "https://a.example:443/x.git/info/lfs",
            ),
            (
                "https://a.example/x",
                set("https://A.example:443/lfs/x/"),
                "https://a.example:443/lfs/x",
            ),
            (
                "https://a.example/x",
                set("\"https://a.example/y.git/info/lfs\" # ours"),
                "https://a.example:443/y.git/info/lfs",
            ),
            (
                "https://a.example/x",
                "[LFS]\nURL=https://a.example/y".to_owned(),
                "https://a.example:443/y",
            ),
            (
                "https://a.example/x",
                "[lfs \"https://a.example\"]\nurl = https://b.example\n[core]\nurl = \"open\n".to_owned(),
                "https://a.example:443/x.git/info/lfs",
            ),
            ("ssh://git@a.example/x.git", String::new(), "ssh://a.example/x.git"),
            (
                "ssh://git@a.example/x.git",
                set("ssh://git@a.example/y.git"),
                "ssh://a.example/y.git",
            ),
        ] {
            assert_eq!(find(remote, &config).as_deref(), Ok(expected), "{remote} {config}");
        }
    }

    #[test]
    fn a_committer_chooses_no_other_server() {
        for (remote, url, expected) in [
            (
                "https://a.example/x",
                "https://b.example/x",
                "another server than the repository, https://a.example:443",
            ),
            ("https://a.example/x", "https://a.example:8443/x", "another server"),
            ("https://a.example/x", "http://a.example/x", "another server"),
            (
                "https://a.example/x",
                "https://a.example@b.example/x",
                "it must be a URL such as",
            ),
            (
                "https://a.example/x",
                "https://a.example/x?token=hush",
                "it must be a URL such as",
            ),
            ("https://a.example/x", "ssh://a.example/x", "it must be a URL such as"),
            ("https://a.example/x", "file:///etc", "it must be a URL such as"),
            ("ssh://git@a.example/x", "https://a.example/x", "another server"),
            ("ssh://git@a.example/x", "ssh://git@b.example/x", "another server"),
        ] {
            let message = find(remote, &format!("[lfs]\nurl = {url}\n")).unwrap_err();
            assert!(
                message.contains(expected) && message.contains(".lfsconfig"),
                "{url}: {message}"
            );
            assert!(!message.contains("hush") && !message.contains("b.example"), "{message}");
        }
        assert!(
            find("https://a.example/x", "[lfs]\nurl = \"open")
                .unwrap_err()
                .contains("line 2")
        );
    }

    #[test]
    fn a_repository_says_what_stays_a_pointer() {
        let config = LfsConfig::read("[lfs]\nfetchexclude = *.psd, /media/\n").unwrap();
        for (path, expected) in [
            ("a/b.psd", true),
            ("media/x/y", true),
            ("a/media/y", false),
            ("a.json", false),
        ] {
            assert_eq!(config.leaves_out(path), Some(expected), "{path}");
        }
        let config = LfsConfig::read("[lfs]\nfetchinclude = /deploy\nfetchexclude = *.mp4\n").unwrap();
        for (path, expected) in [("deploy/a.json", false), ("deploy/a.mp4", true), ("other/a.json", true)] {
            assert_eq!(config.leaves_out(path), Some(expected), "{path}");
        }
        assert_eq!(LfsConfig::default().leaves_out("a"), Some(false));
    }
}
