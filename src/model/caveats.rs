//! What an object may be used for within its rights. Caveats, like rights, are only ever narrowed.

use crate::limits::{CAVEAT_BYTES_MAX, CAVEAT_ITEMS_MAX, DIRECTORY_BYTES_MAX, ID_BYTES_MAX};
use crate::model::code::{Code, Coded};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The caveats that go with an object, and with everything derived from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caveats {
    /// The tools that may be named; none for any.
    pub tools: Option<Vec<String>>,
    /// The paths at or below which files may be touched; none for any.
    pub paths: Option<Vec<Vec<u8>>>,
    /// Only what was written under the very grant may be read or removed.
    pub only_own: bool,
}

/// Why caveats cannot be handed on like that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A tool nobody gave him.
    #[error("the tool {0:?} cannot be handed on: this object may not use it")]
    Tool(String),
    /// A path nobody gave him.
    #[error("the path {0:?} cannot be handed on: it lies outside those of this object")]
    Path(String),
    /// It is no list of tools or paths.
    #[error(
        "at most {CAVEAT_ITEMS_MAX} tools and as many paths, {CAVEAT_BYTES_MAX} bytes in all; a tool is 1 to {ID_BYTES_MAX} bytes without \
         spaces and control characters; a path is relative, without `.`, `..` and empty steps, and at most \
         {DIRECTORY_BYTES_MAX} bytes"
    )]
    Words,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Tool(_) | Error::Path(_) => Code::NotPermitted,
            Error::Words => Code::NarrowingMalformed,
        }
    }
}

/// Whether a path is one a caveat can name: relative, and what it looks like. Whether a file lies below it is
/// a comparison of steps, so nothing in it may mean another step than its own.
fn is_plain(path: &[u8]) -> bool {
    let plain = |step: &[u8]| !step.is_empty() && step != b"." && step != b"..";
    path.len() <= DIRECTORY_BYTES_MAX && !path.contains(&0) && path.split(|b| *b == b'/').all(plain)
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Caveats {
    /// Whether the words make sense. Slashes at the end of a path do not count.
    pub fn check(mut self) -> Result<Self, Error> {
        for path in self.paths.iter_mut().flatten() {
            while path.len() > 1 && path.ends_with(b"/") {
                path.pop();
            }
        }
        let tool = |tool: &String| {
            !tool.is_empty()
                && tool.len() <= ID_BYTES_MAX
                && !tool.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        let fine = self.tools.iter().flatten().all(tool)
            && self.paths.iter().flatten().all(|path| is_plain(path))
            && self.tools.as_ref().is_none_or(|tools| tools.len() <= CAVEAT_ITEMS_MAX)
            && self.paths.as_ref().is_none_or(|paths| paths.len() <= CAVEAT_ITEMS_MAX)
            && self.bytes() <= CAVEAT_BYTES_MAX;
        if fine { Ok(self) } else { Err(Error::Words) }
    }

    /// What they take up.
    pub fn bytes(&self) -> usize {
        let tools = self.tools.iter().flatten().map(String::len);
        tools.chain(self.paths.iter().flatten().map(Vec::len)).sum()
    }

    /// The caveats of something derived from what has these. They never allow more.
    pub fn narrowed(&self, wish: &Caveats) -> Result<Caveats, Error> {
        if let Some(tool) = wish.tools.iter().flatten().find(|tool| !self.allows_tool(tool)) {
            return Err(Error::Tool(tool.clone()));
        }
        if let Some(path) = wish.paths.iter().flatten().find(|path| !self.allows_path(path)) {
            return Err(Error::Path(String::from_utf8_lossy(path).into_owned()));
        }
        Ok(Caveats {
            tools: wish.tools.clone().or_else(|| self.tools.clone()),
            paths: wish.paths.clone().or_else(|| self.paths.clone()),
            only_own: self.only_own || wish.only_own,
        })
    }

    /// Whether a tool may be named.
    pub fn allows_tool(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|known| known == tool))
    }

    /// Whether a file may be touched. A path that is not plain is below nothing.
    pub fn allows_path(&self, path: &[u8]) -> bool {
        let below = |prefixes: &Vec<Vec<u8>>| {
            is_plain(path) && prefixes.iter().any(|prefix| is_below(path, prefix))
        };
        self.paths.as_ref().is_none_or(below)
    }

    /// Whether a part of a message, as JSON, names a tool it must not. `in_tool_message`: a message of that
    /// role consists of tool parts.
    pub fn forbids(&self, part: Option<&str>, in_tool_message: bool) -> Option<Forbidden> {
        self.tools.as_ref()?;
        let named = match part {
            None => ToolPart::default(),
            // What cannot be read may mean a tool to somebody who reads it otherwise: our own check of what
            // is JSON at all is laxer than this.
            Some(json) => match serde_json::from_str(json) {
                Ok(named) => named,
                Err(_) => return Some(Forbidden(None)),
            },
        };
        if !named.is_tool && !in_tool_message {
            return None;
        }
        match named.tools.iter().find(|tool| !self.allows_tool(tool)) {
            Some(tool) => Some(Forbidden(Some(tool.clone()))),
            None if named.tools.is_empty() || named.odd || !named.is_tool => Some(Forbidden(None)),
            None => None,
        }
    }
}

impl Caveats {
    /// Whether a part of a tool is one it must not name.
    pub fn forbids_tool(&self, tool: &str) -> Option<Forbidden> {
        let limited = self.tools.is_some();
        (limited && !self.allows_tool(tool)).then(|| Forbidden(Some(tool.to_owned())))
    }
}

/// A tool that must not be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .0 {
    Some(tool) => format!("this object may not name the tool {tool:?}"),
    None => "this object may name certain tools only, and a part does not say which one it is of".to_owned(),
})]
pub struct Forbidden(Option<String>);

impl Coded for Forbidden {
    fn code(&self) -> Code {
        Code::NotPermitted
    }
}

/// What a part says of tools. A key that stands there twice counts twice: readers differ in which one they
/// take.
#[derive(Debug, Default)]
struct ToolPart {
    is_tool: bool,
    tools: Vec<String>,
    /// A tool that is not a text.
    odd: bool,
}

impl<'de> serde::Deserialize<'de> for ToolPart {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ToolPart::default())
    }
}

impl<'de> Visitor<'de> for ToolPart {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => self.is_tool |= map.next_value::<serde_json::Value>()? == "tool",
                "tool" => match map.next_value::<serde_json::Value>()? {
                    serde_json::Value::String(tool) => self.tools.push(tool),
                    _ => self.odd = true,
                },
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tools(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn paths(names: &[&str]) -> Option<Vec<Vec<u8>>> {
        Some(names.iter().map(|name| name.as_bytes().to_vec()).collect())
    }

    #[test]
    fn only_steps_below_a_prefix_are_below_it() {
        let held = Caveats { paths: paths(&["src", "docs/a"]), ..Caveats::default() };
        for good in ["src", "src/lib.rs", "docs/a", "docs/a/b/c"] {
            assert!(held.allows_path(good.as_bytes()), "{good}");
        }
        let odd =
            ["", "/src", "srcs", "docs", "docs/ab", "src/../x", "src//a", "src/.", "src/a\0", "x"];
        for bad in odd {
            assert!(!held.allows_path(bad.as_bytes()), "{bad:?}");
        }
        assert!(Caveats::default().allows_path(b"anything"));
        assert!(!Caveats { paths: Some(Vec::new()), ..Caveats::default() }.allows_path(b"a"));
    }

    #[test]
    fn words_are_checked() {
        let held = Caveats { paths: paths(&["src/"]), ..Caveats::default() }.check().unwrap();
        assert_eq!(held.paths, paths(&["src"]), "a slash at the end does not count");
        for bad in ["", "/", "/a", "a/../b", "./a", "a//b", &"x".repeat(DIRECTORY_BYTES_MAX + 1)] {
            let held = Caveats { paths: paths(&[bad]), ..Caveats::default() };
            assert_eq!(held.check(), Err(Error::Words), "{bad:?}");
        }
        for bad in ["", "a b", "a\n", &"x".repeat(ID_BYTES_MAX + 1)] {
            let held = Caveats { tools: tools(&[bad]), ..Caveats::default() };
            assert_eq!(held.check(), Err(Error::Words), "{bad:?}");
        }
        let long =
            vec![vec![b'a'; DIRECTORY_BYTES_MAX]; CAVEAT_BYTES_MAX / DIRECTORY_BYTES_MAX + 1];
        let held = Caveats { paths: Some(long), ..Caveats::default() };
        assert_eq!(held.check(), Err(Error::Words), "too much in all");
        let many = vec!["a".to_owned(); CAVEAT_ITEMS_MAX + 1];
        let held = Caveats { tools: Some(many), ..Caveats::default() };
        assert_eq!(held.check(), Err(Error::Words));
    }

    /// Nested deeper than we read.
    const DEEP: &str = concat!(
        r#"{"type":"tool","tool":"bash","tool":"#,
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
    );

    #[test]
    fn parts_name_tools_or_are_none() {
        let held = Caveats { tools: tools(&["read", "grep"]), ..Caveats::default() };
        let of_tool = Some(Forbidden(Some("bash".into())));
        let unnamed = Some(Forbidden(None));
        let table = [
            (Some(r#"{"type":"tool","tool":"grep"}"#), false, None),
            (Some(r#"{"type":"tool","tool":"bash"}"#), false, of_tool.clone()),
            (Some(r#"{"tool":"bash","type":"tool"}"#), false, of_tool.clone()),
            // Whichever of two a reader takes.
            (Some(r#"{"type":"text","type":"tool","tool":"bash"}"#), false, of_tool.clone()),
            (Some(r#"{"type":"tool","type":"text","tool":"bash"}"#), false, of_tool.clone()),
            (Some(r#"{"type":"tool","tool":"grep","tool":"bash"}"#), false, of_tool.clone()),
            (Some(r#"{"type":"t\u006fol","tool":"bash"}"#), false, of_tool.clone()),
            (Some(r#"{"type":"tool"}"#), false, unnamed.clone()),
            (Some(r#"{"type":"tool","tool":7}"#), false, unnamed.clone()),
            (Some(r#"{"type":"tool","tool":"grep","tool":7}"#), false, unnamed.clone()),
            (Some(r#"{"type":"file","tool":"bash"}"#), false, None),
            (None, false, None),
            (None, true, unnamed.clone()),
            (Some(r#"{"type":"file"}"#), true, unnamed.clone()),
            (Some(r#"{"type":"file","tool":"grep"}"#), true, unnamed.clone()),
            // JSON to some, and not to us.
            (Some(r#"{"type":"tool","tool":"bash","\ud800":0}"#), false, unnamed.clone()),
            (Some(r#"{"type":"tool","tool":"bash","tool":1e999}"#), false, unnamed.clone()),
            (Some(DEEP), false, unnamed),
            (Some(r#"{"type":"tool","tool":"bash"}"#), true, of_tool),
            (Some(r#"{"type":"tool","tool":"grep"}"#), true, None),
        ];
        for (part, in_tool_message, want) in table {
            assert_eq!(held.forbids(part, in_tool_message), want, "{part:?} {in_tool_message}");
            assert_eq!(Caveats::default().forbids(part, in_tool_message), None, "{part:?}");
        }
    }

    proptest! {
        /// Whatever is derived from whatever: what the last one allows, all before it allowed.
        #[test]
        fn caveats_only_narrow_along_a_path(
            path in prop::collection::vec(
                (prop::option::of(prop::collection::vec("[ab]{1,2}", 0..3)),
                 prop::option::of(prop::collection::vec("[ab](/[ab]){0,2}", 0..3)), any::<bool>()), 1..8),
            tool in "[ab]{1,2}", file in "[ab](/[ab]){0,3}",
        ) {
            let mut held = Caveats::default();
            for (tools, paths, only_own) in path {
                let paths: Option<Vec<Vec<u8>>> =
                    paths.map(|paths| paths.into_iter().map(String::into_bytes).collect());
                let wish = Caveats { tools, paths, only_own };
                let Ok(lesser) = held.narrowed(&wish) else { continue };
                prop_assert!(!lesser.allows_tool(&tool) || held.allows_tool(&tool));
                prop_assert!(!lesser.allows_path(file.as_bytes()) || held.allows_path(file.as_bytes()));
                prop_assert!(!held.only_own || lesser.only_own);
                prop_assert!(wish.tools.is_none() || lesser.tools == wish.tools);
                prop_assert!(wish.paths.is_none() || lesser.paths == wish.paths);
                held = lesser;
            }
        }
    }
}
