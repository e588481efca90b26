//! The challenge of a registry to a request without credentials, and which hosts may then get credentials. Pure.
//!
//! The registry names the server of tokens (its *realm*), and a registry may be hostile. So a realm is accepted only if its connection is as safe as the registry's. The
//! registry's credentials go there only if both clearly belong to the same party. For a registry with its token server elsewhere, the Secret can have an entry for that
//! host: then the Secret decides, not the registry.

use url::{Host, Url};

use crate::policy::{Endpoint, Scheme};

/// The authentication that a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A user and a password for the registry itself.
    Basic,
    /// A token of another server.
    Bearer { realm: String, service: Option<String> },
}

/// The address of a token server, which a registry's challenge names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Realm {
    pub(crate) endpoint: Endpoint,
    /// The path and the query, as written.
    pub(crate) target: String,
}

/// Reads the values of `WWW-Authenticate`. If both schemes are offered, a token is preferred.
pub(crate) fn read_challenge<'a>(values: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for value in values {
        for (scheme, parameters) in split_challenges(value) {
            let find = |name: &str| {
                let mut found = parameters.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
                found.next().map(|(_, value)| value.clone())
            };
            if scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = find("realm")
            {
                let service = find("service");
                return Some(Challenge::Bearer { realm, service });
            }
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
        }
    }
    basic
}

/// The keys and values of a challenge.
type Parameters = Vec<(String, String)>;

/// Splits `Bearer realm="a",service="b", Basic realm="c"` by its schemes.
fn split_challenges(value: &str) -> Vec<(String, Parameters)> {
    let mut challenges: Vec<(String, Parameters)> = Vec::new();
    for item in split_outside_quotes(value) {
        let item = item.trim();
        let (before, text) = item.split_once('=').unwrap_or((item, ""));
        let before = before.trim();
        // A scheme stands before its first parameter, or alone.
        let key = match before.rsplit_once(char::is_whitespace) {
            Some((scheme, key)) => {
                challenges.push((scheme.trim().to_owned(), Vec::new()));
                key
            }
            None if !item.contains('=') => {
                challenges.push((before.to_owned(), Vec::new()));
                continue;
            }
            None => before,
        };
        if let Some((_, parameters)) = challenges.last_mut() {
            parameters.push((key.to_owned(), unquote(text.trim())));
        }
    }
    challenges
}

/// Splits a header's value at the commas that are not within quotes.
fn split_outside_quotes(value: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for c in value.chars() {
        match c {
            ',' if !quoted => {
                items.push(String::new());
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
        if let Some(item) = items.last_mut() {
            item.push(c);
        }
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

/// Removes the quotes and the backslashes of a quoted string; any other text stays unchanged.
fn unquote(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"') else {
        return text.to_owned();
    };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut out = String::with_capacity(inner.len());
    let mut escaped = false;
    for c in inner.chars() {
        if c == '\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        out.push(c);
    }
    out
}

impl Realm {
    /// Reads the address of a token server: over https. For a registry over plain HTTP, also plain HTTP on the registry's own host.
    ///
    /// # Errors
    /// The problem of the realm.
    pub(crate) fn read(text: &str, registry: &Endpoint) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "it names no URL for its tokens")?;
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return Err("it names a URL for its tokens that is neither https nor http"),
        };
        let host = match url.host() {
            Some(Host::Domain(domain)) => domain.to_ascii_lowercase(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err("it names a URL for its tokens without a host"),
        };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err("it names a URL for its tokens with a user or a fragment");
        }
        let endpoint = Endpoint {
            scheme,
            port: url.port().unwrap_or(scheme.default_port()),
            host,
        };
        if scheme == Scheme::Http && !(registry.scheme == Scheme::Http && registry.host == endpoint.host) {
            return Err("it names a URL for its tokens that is not https");
        }
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(Self { endpoint, target })
    }

    /// Checks whether the registry's credentials may go to this realm: it is the registry's host, or below it, or beside it.
    ///
    /// Beside means that the names are the same except for the first part of the registry's name, as with `auth.docker.io` and `index.docker.io`, or `gitlab.com` and
    /// `registry.gitlab.com`. The common part must not be a public suffix, such as `co.uk`, where anyone can register a name.
    pub(crate) fn is_of_site(&self, registry: &Endpoint) -> bool {
        let (realm, registry) = (self.endpoint.host.as_str(), registry.host.as_str());
        if realm == registry {
            return true;
        }
        let is_name = |host: &str| host.parse::<std::net::IpAddr>().is_err() && host.contains('.');
        if !is_name(realm) || !is_name(registry) {
            return false;
        }
        let is_below = |site: &str| realm.strip_suffix(site).is_some_and(|rest| rest.ends_with('.'));
        if is_below(registry) {
            return true;
        }
        let Some((_, site)) = registry.split_once('.') else {
            return false;
        };
        // Names below a public suffix, such as `co.uk` or `github.io`, have different owners.
        let is_everybodys = psl::suffix_str(site).is_none_or(|suffix| suffix == site);
        !is_everybodys && (realm == site || is_below(site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        })
    }

    #[test]
    fn challenges_are_read_in_every_form() {
        for (values, expected) in [
            (
                &[
                    r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a:pull,push""#,
                ][..],
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                &[r#"Basic realm="x", Bearer realm="https://a/t""#],
                bearer("https://a/t", None),
            ),
            (
                &["Basic realm=x", "bearer Realm=https://a/t , service=s"],
                bearer("https://a/t", Some("s")),
            ),
            (
                &[r#"Basic realm="Bearer realm=x, Bearer realm=y""#],
                Some(Challenge::Basic),
            ),
            (&["Basic"], Some(Challenge::Basic)),
            (&[r#"Bearer realm="a\"b\\c""#], bearer("a\"b\\c", None)),
            (&["Bearer service=x"], None),
            (&["Negotiate", ""], None),
            (&[], None),
        ] {
            assert_eq!(read_challenge(values.iter().copied()), expected, "{values:?}");
        }
    }

    #[test]
    fn a_realm_is_as_safe_as_its_registry() {
        let read = |realm: &str, registry: &str| {
            let registry = registry.parse().unwrap_or_else(|_| unreachable!("an endpoint"));
            Realm::read(realm, &registry).map(|realm| format!("{}{}", realm.endpoint, realm.target))
        };
        assert_eq!(
            read("https://a.example/token?x=y", "https://r.example"),
            Ok("https://a.example:443/token?x=y".to_owned())
        );
        assert!(read("http://r.example/token", "https://r.example").is_err());
        assert!(read("http://r.example:5001/token", "http://r.example:5000").is_ok());
        assert!(read("http://a.example/token", "http://r.example").is_err());
        assert!(read("https://a.example/token", "http://r.example").is_ok());
        for bad in [
            "file:///etc/passwd",
            "https://user:p@a.example/",
            "https://a.example/#x",
            "token",
            "",
        ] {
            assert!(read(bad, "https://r.example").is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_go_to_the_same_site_alone() {
        let is_of_site = |realm: &str, registry: &str| {
            let endpoint = |host: &str| {
                format!("https://{host}")
                    .parse::<Endpoint>()
                    .unwrap_or_else(|_| unreachable!("an endpoint"))
            };
            let realm = Realm {
                endpoint: endpoint(realm),
                target: "/".to_owned(),
            };
            realm.is_of_site(&endpoint(registry))
        };
        for (realm, registry) in [
            ("auth.docker.io", "index.docker.io"),
            ("auth.docker.io", "registry-1.docker.io"),
            ("ghcr.io", "ghcr.io"),
            ("quay.io", "quay.io"),
            ("gitlab.com", "registry.gitlab.com"),
            ("gitlab.example.com", "registry.example.com"),
            ("auth.registry.io", "registry.io"),
            ("auth.bmw.de", "registry.bmw.de"),
            ("bmw.de", "registry.bmw.de"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert!(is_of_site(realm, registry), "{realm} for {registry}");
        }
        for (realm, registry) in [
            ("evil.example", "registry.example.com"),
            ("evildocker.io", "index.docker.io"),
            ("docker.io.evil.example", "index.docker.io"),
            ("evil.io", "ghcr.io"),
            ("evil.co.uk", "registry.co.uk"),
            ("evil.github.io", "registry.github.io"),
            ("evil.com.au", "registry.com.au"),
            ("evil.de", "bmw.de"),
            ("127.0.0.1", "127.0.0.2"),
            ("169.254.169.254", "registry.example.com"),
            ("localhost", "registry.localhost"),
        ] {
            assert!(!is_of_site(realm, registry), "{realm} for {registry}");
        }
    }
}
