//! Which project a git repository is.
//!
//! Clones of one remote are one project, however its address is spelt. Nothing here reads a
//! repository: what its configuration says is handed in.

use sha1::{Digest, Sha1};
use std::net::Ipv6Addr;

/// The hex digits of a commit's id: SHA-1, or SHA-256 in newer repositories.
const COMMIT_DIGITS: [usize; 2] = [40, 64];

/// The `<host>/<path>` that all spellings of a remote's address share; none if it is no address
/// of another machine. White space around it does not count.
///
/// Who logs in, how the connection is made and the usual port of it do not tell repositories
/// apart; an unusual port may. Hosts ignore case, paths may not.
pub fn remote_name(url: &str) -> Option<String> {
    let url = url.trim();
    if url.contains(char::is_control) {
        return None;
    }
    let (host, path) = match url.split_once("://") {
        Some((scheme, rest)) => host_and_path(scheme, rest)?,
        None => short_host_and_path(url)?,
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
    (!path.is_empty()).then(|| format!("{host}/{path}"))
}

/// The id of the project whose remote has this name.
pub fn id_of_remote(name: &str) -> String {
    let hash = Sha1::digest(format!("git-remote:{name}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is the whole id of a commit.
pub fn is_commit(text: &str) -> bool {
    COMMIT_DIGITS.contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Of `scheme://user@host:port/path?query#fragment`.
fn host_and_path<'a>(scheme: &str, rest: &'a str) -> Option<(String, &'a str)> {
    let usual_port = usual_port(scheme)?;
    let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    let (authority, path) = rest.split_once('/')?;
    // A password may hold an `@`, a host may not.
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let port_at = match place.rfind(']') {
        Some(end) => end + 1,
        None => place.find(':').unwrap_or(place.len()),
    };
    let (host, port) = place.split_at(port_at);
    let host = plain_host(host)?;
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, path)),
        Some("") => Some((host, path)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port: u16 = digits.parse().ok()?;
            Some((if port == usual_port { host } else { format!("{host}:{port}") }, path))
        }
        _ => None,
    }
}

/// Of `user@host:path`, as ssh and scp spell it. What has a slash before its colon is a path on
/// this machine to git, and so it is to us. So is a drive's letter.
fn short_host_and_path(url: &str) -> Option<(String, &str)> {
    let (user, place) = match url.find(['@', ':', '/']) {
        Some(at) if url[at..].starts_with('@') => (Some(&url[..at]), &url[at + 1..]),
        _ => (None, url),
    };
    let colon_at = match place.starts_with('[') {
        true => place.find(']')? + 1,
        false => place.find(':')?,
    };
    let (host, path) = place.split_at(colon_at);
    let path = path.strip_prefix(':')?;
    let is_drive = user.is_none() && host.len() == 1;
    // `file:path`, and `helper::address`, which only the helper understands.
    let is_other = host.eq_ignore_ascii_case("file") || path.starts_with(':');
    if is_drive || is_other { None } else { Some((plain_host(host)?, path)) }
}

/// The port nobody writes down; none for what does not lead to another machine's git.
fn usual_port(scheme: &str) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_str() {
        "https" | "git+https" => Some(443),
        "http" | "git+http" => Some(80),
        "ssh" | "git+ssh" | "ssh+git" => Some(22),
        "git" => Some(9418),
        "ftps" => Some(990),
        "ftp" => Some(21),
        _ => None,
    }
}

/// A host in the one way we write it.
fn plain_host(host: &str) -> Option<String> {
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(format!("[{address}]"));
    }
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!host.is_empty() && host.chars().all(plain)).then(|| host.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_of_a_remote_share_a_name() {
        let table: [(&str, &[&str]); 9] = [
            (
                "host.com/Org/Repo",
                &[
                    "https://user:pw@Host.com:443/Org/Repo.git/",
                    "https://host.com/Org/Repo",
                    "HTTPS://HOST.COM/Org/Repo.git",
                    "https://host.com:/Org/Repo//",
                    "https://user:p@ss@host.com/Org/Repo",
                    "https://host.com/Org/Repo.git?x=1#y",
                    "http://host.com:80/Org/Repo.git",
                    "ssh://git@host.com:22/Org/Repo.git",
                    "ssh://host.com//Org/Repo",
                    "git+ssh://git@host.com/Org/Repo.git",
                    "git://host.com:9418/Org/Repo.git",
                    "git@host.com:Org/Repo.git",
                    "git@Host.com:/Org/Repo",
                    "host.com:Org/Repo/",
                    "  git@host.com:Org/Repo.git\n",
                ],
            ),
            ("host.com/org/repo", &["https://host.com/org/repo", "git@host.com:org/repo"]),
            ("host.com:8443/org/repo", &["https://host.com:8443/org/repo.git"]),
            ("host.com:443/org/repo", &["ssh://git@host.com:443/org/repo.git"]),
            ("host.com/2222/repo", &["git@host.com:2222/repo"]),
            ("host.com/a%20b.github", &["https://host.com/a%20b.github", "host.com:a%20b.github"]),
            ("host.com/r.git", &["https://host.com/r.git.git"]),
            ("c/org/repo", &["git@c:org/repo", "ssh://c/org/repo"]),
            (
                "[2001:db8::1]/org/repo",
                &[
                    "ssh://git@[2001:DB8::1]:22/org/repo.git",
                    "ssh://[2001:db8:0::1]/org/repo",
                    "git@[2001:db8::1]:org/repo",
                ],
            ),
        ];
        for (name, urls) in table {
            for url in urls {
                assert_eq!(remote_name(url).as_deref(), Some(name), "{url}");
            }
        }
    }

    #[test]
    fn other_things_are_no_remotes() {
        let table = [
            "",
            "  ",
            "/srv/git/repo.git",
            "./repo",
            "../a:b",
            "~/repo",
            "repo",
            "dir/with:colon",
            "C:\\Users\\a\\repo",
            "c:/Users/a/repo",
            "\\\\server\\share\\repo",
            "file:///srv/git/repo.git",
            "file://host/srv/repo.git",
            "FILE:/srv/repo.git",
            "file:repo.git",
            "https://",
            "https://host.com",
            "https://host.com/",
            "https://host.com/.git",
            "https:///org/repo",
            "https://user@/org/repo",
            "https://host.com:port/org/repo",
            "https://host.com:+80/org/repo",
            "https://host.com:65536/org/repo",
            "https://ho st/org/repo",
            "https://host.com/org\n/repo",
            "git@host\0:org/repo",
            "git@host.com:",
            "git@:org/repo",
            ":org/repo",
            "ssh://[::1/org/repo",
            "ssh://[::1]x/org/repo",
            "ssh://[host]/org/repo",
            "git@[::1]org/repo",
            "ext::sh -c x",
            "helper::https://host.com/org/repo",
            "data://host.com/org/repo",
        ];
        for url in table {
            assert_eq!(remote_name(url), None, "{url:?}");
        }
    }

    #[test]
    fn ids_are_those_other_programs_make() {
        let id = id_of_remote("github.com/anomalyco/opencode");
        assert_eq!(id, "012780c4098d08caa4ea8c479ed0a4690489f38d");
        assert!(is_commit(&id), "a project's id looks like a commit's");
    }

    #[test]
    fn commits_are_lower_case_hex() {
        let table = [
            ("a".repeat(40), true),
            ("0".repeat(64), true),
            ("a".repeat(39), false),
            ("a".repeat(41), false),
            ("A".repeat(40), false),
            ("g".repeat(40), false),
            ("ä".repeat(20), false),
            (String::new(), false),
        ];
        for (text, want) in table {
            assert_eq!(is_commit(&text), want, "{text}");
        }
    }

    proptest! {
        /// However it is spelt: a name is plain, and it is its own name.
        #[test]
        fn names_stay_as_they_are(
            url in "(https://|ssh://|git@|)([a-bA-B.@:/\\[\\]]|:22|\\.git|ä| |\\\\){0,12}",
        ) {
            if let Some(name) = remote_name(&url) {
                let (host, path) = name.split_once('/').unwrap();
                prop_assert!(!host.is_empty() && !path.is_empty() && !host.contains('@'), "{name}");
                prop_assert!(!path.ends_with('/'), "{name}");
                let again = format!("https://{host}/{path}.git/");
                prop_assert_eq!(remote_name(&again), Some(name));
            }
        }
    }
}
