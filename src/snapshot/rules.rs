//! Git's ignore rules: which entries of a directory `git check-ignore --no-index` would name.
//!
//! The walker opens the directories and hands in bytes; this file opens nothing in a work tree. Nobody
//! descends into an ignored directory, so what a rule below one says is never asked. Names and
//! patterns are bytes, and case counts whatever `core.ignoreCase` says.
//!
//! A pattern is read once, into tokens that are matched without recursion: a star is only ever tried
//! again within its own step of the path, and a `**` from step to step, so that no pattern costs more
//! than its length times that of the path, for each step. Most patterns are not even tried: those that
//! end in a whole name, or in an extension, are found by it.

use git2::{Config, ErrorCode, Repository, RepositoryOpenFlags};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most rules in force in one directory, its own and those above. Only files made to slow us down
/// have more.
pub const RULES_MAX: usize = 10_000;

/// The most bytes of patterns in force in one directory.
pub const RULES_BYTES_MAX: usize = 256 * 1024;

/// The rules in force in one directory: its own and those above.
#[derive(Debug)]
pub struct Rules {
    /// Innermost first.
    files: Option<Arc<File>>,
    /// From the top to here, with a slash after each name.
    path: Box<[u8]>,
    truncated: bool,
}

impl Rules {
    /// For the top of a work tree: what stands in the global excludes file, in `info/exclude` and in
    /// its own `.gitignore`. The last counts most.
    pub fn top(
        global: Option<&[u8]>,
        exclude: Option<&[u8]>,
        gitignore: Option<&[u8]>,
    ) -> Arc<Rules> {
        let mut rules = Rules { files: None, path: Box::default(), truncated: false };
        for text in [global, exclude, gitignore].into_iter().flatten() {
            rules.read(text);
        }
        Arc::new(rules)
    }

    /// For a directory in this one.
    pub fn below(self: &Arc<Self>, name: &[u8], gitignore: Option<&[u8]>) -> Arc<Rules> {
        let mut rules = Rules {
            files: self.files.clone(),
            path: [&self.path, name, b"/"].concat().into_boxed_slice(),
            truncated: self.truncated,
        };
        if let Some(text) = gitignore {
            rules.read(text);
        }
        Arc::new(rules)
    }

    /// Whether an entry of this directory is ignored. A link to a directory is no directory.
    pub fn ignores(&self, name: &[u8], is_dir: bool) -> bool {
        let files = std::iter::successors(self.files.as_deref(), |file| file.outer.as_deref());
        let verdict = |file: &File| file.verdict(&self.path[file.base..], name, is_dir);
        files.into_iter().find_map(verdict).unwrap_or(false)
    }

    /// Whether there were more rules, here or above, than we keep. What came after them is not heeded.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Puts a file's rules before all others.
    fn read(&mut self, text: &[u8]) {
        let outer = self.files.take();
        let mut file = File::default();
        file.base = self.path.len();
        (file.count, file.bytes) = outer.as_ref().map_or((0, 0), |file| (file.count, file.bytes));
        for line in lines(text) {
            if file.count == RULES_MAX || line.len() > RULES_BYTES_MAX - file.bytes {
                self.truncated = true;
                break;
            }
            let Some(rule) = Rule::read(line) else { continue };
            file.count += 1;
            file.bytes += line.len();
            file.push(rule);
        }
        self.files = if file.rules.is_empty() {
            outer
        } else {
            file.names.sort();
            file.endings.sort();
            file.outer = outer;
            Some(Arc::new(file))
        };
    }
}

/// The lines that can hold a pattern, as git cuts them: a carriage return belongs to the line's end,
/// spaces at the end do not count unless escaped, and nothing counts after a zero byte.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
    let lines = lines.map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let (mut end, mut at) = (0, 0);
        while at < line.len() {
            let escaped = line[at] == b'\\' && at + 1 < line.len();
            if line[at] != b' ' {
                end = at + 1 + usize::from(escaped);
            }
            at += 1 + usize::from(escaped);
        }
        &line[..end]
    });
    lines.filter(|line| !line.is_empty())
}

/// What one file says.
#[derive(Debug, Default)]
struct File {
    /// In the order of their lines: the last one that matches decides.
    rules: Vec<Rule>,
    /// Rules that match only what has this name.
    names: Keys,
    /// Rules that match only names that end like this, from the last dot.
    endings: Keys,
    /// The other ones.
    others: Vec<usize>,
    /// How much of [`Rules::path`] leads to the file's directory.
    base: usize,
    /// Of this file and those outside it: what the limits are about.
    count: usize,
    bytes: usize,
    outer: Option<Arc<File>>,
}

/// Numbers of rules by a key, sorted.
type Keys = Vec<(Box<[u8]>, usize)>;

impl Drop for File {
    /// One by one: file after file within each other could be more than the stack holds.
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut file) = outer.and_then(Arc::into_inner) {
            outer = file.outer.take();
        }
    }
}

impl File {
    fn push(&mut self, rule: Rule) {
        let number = self.rules.len();
        let (ending, whole) = rule.ending();
        match ending.iter().rposition(|byte| *byte == b'.') {
            _ if whole => self.names.push((ending.into(), number)),
            Some(dot) => self.endings.push((ending[dot..].into(), number)),
            None => self.others.push(number),
        }
        self.rules.push(rule);
    }

    /// Whether it says that an entry is ignored, or that it is not, or nothing. `dir` leads from the
    /// file's directory to the entry's, with a slash after each name.
    fn verdict(&self, dir: &[u8], name: &[u8], is_dir: bool) -> Option<bool> {
        let fits = |number: &usize| self.rules[*number].matches(dir, name, is_dir);
        let last_of = |keys: &Keys, key: &[u8]| {
            let end = keys.partition_point(|(known, _)| known.as_ref() <= key);
            let same = keys[..end].iter().rev().take_while(|(known, _)| known.as_ref() == key);
            same.map(|(_, number)| *number).find(fits)
        };
        let dot = name.iter().rposition(|byte| *byte == b'.');
        let ending = dot.and_then(|dot| last_of(&self.endings, &name[dot..]));
        let found = last_of(&self.names, name).max(ending);
        let mut later = self.others.iter().rev().take_while(|number| Some(**number) > found);
        let last = later.find(|number| fits(number)).copied().or(found)?;
        Some(!self.rules[last].negated)
    }
}

/// One line.
#[derive(Debug)]
struct Rule {
    negated: bool,
    only_dirs: bool,
    /// It is about the path from the file's directory, else about the name.
    anchored: bool,
    tokens: Box<[Token]>,
    /// How many of the last tokens match a byte of the name each. They are tried first.
    tail: usize,
    sets: Box<[Set]>,
}

/// A piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// Any byte but a slash.
    One,
    /// One of [`Rule::sets`].
    Set(usize),
    /// Any bytes but slashes.
    Star,
    /// Anything up to and with a slash; or nothing, if `here`.
    Deep {
        here: bool,
    },
    /// Anything, to the end.
    Rest,
}

impl Rule {
    /// None for a line that can match nothing, for whatever reason.
    fn read(line: &[u8]) -> Option<Rule> {
        let (negated, line) = strip(line, |line| line.strip_prefix(b"!"));
        let (only_dirs, pattern) = strip(line, |line| line.strip_suffix(b"/"));
        let anchored = pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        let (tokens, sets) = tokens(pattern, anchored)?;

        let in_name = |token: &&Token| match token {
            Token::Byte(byte) => *byte != b'/',
            token => matches!(token, Token::One | Token::Set(_)),
        };
        let tail = tokens.iter().rev().take_while(in_name).count();
        let (tokens, sets) = (tokens.into(), sets.into());
        Some(Rule { negated, only_dirs, anchored, tokens, tail, sets })
    }

    /// How every name it matches ends, and whether that is the whole name.
    fn ending(&self) -> (Vec<u8>, bool) {
        let byte = |token: &Token| match token {
            Token::Byte(byte) if *byte != b'/' => Some(*byte),
            _ => None,
        };
        let mut ending: Vec<u8> = self.tokens.iter().rev().map_while(byte).collect();
        ending.reverse();
        // A `**` can match nothing, and then what stands before it counts.
        let mut before = self.tokens.iter().rev().skip(ending.len());
        let before = before.find(|token| **token != Token::Deep { here: true });
        let slash = |token| matches!(token, &Token::Byte(b'/') | &Token::Deep { here: false });
        (ending, before.is_none_or(slash))
    }

    fn matches(&self, dir: &[u8], name: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir || name.len() < self.tail {
            return false;
        }
        let tail = self.tokens.iter().rev().zip(name.iter().rev()).take(self.tail);
        let dir = if self.anchored { dir } else { b"" };
        tail.into_iter().all(|(token, byte)| self.fits(*token, *byte)) && self.fits_all(dir, name)
    }

    fn fits(&self, token: Token, byte: u8) -> bool {
        match token {
            Token::Byte(want) => byte == want,
            Token::One => byte != b'/',
            Token::Set(set) => self.sets[set].has(byte),
            Token::Star | Token::Deep { .. } | Token::Rest => false,
        }
    }

    /// Whether the tokens match the way and the name after it, from the beginning to the end.
    ///
    /// What stands between two `**` matches a fixed number of steps, and what stands between two stars
    /// lies within one step: the first place where it fits leaves the most to what follows, so an
    /// earlier choice is never tried again.
    fn fits_all(&self, dir: &[u8], name: &[u8]) -> bool {
        let text = |at: usize| match at.checked_sub(dir.len()) {
            None => dir.get(at).copied(),
            Some(at) => name.get(at).copied(),
        };
        let (mut next, mut at) = (0, 0);
        // The token after the last star, and after the last `**`; and where what these match ends.
        let mut star: Option<(usize, usize)> = None;
        let mut deep: Option<(usize, usize)> = None;
        loop {
            #[cfg(test)]
            tests::step();
            let byte = text(at);
            let fits = match (self.tokens.get(next), byte) {
                (Some(Token::Rest), _) | (None, None) => return true,
                (Some(Token::Star), _) => {
                    next += 1;
                    star = Some((next, at));
                    continue;
                }
                (Some(Token::Deep { here }), _) => {
                    next += 1;
                    (star, deep) = (None, Some((next, at)));
                    if *here {
                        continue;
                    }
                    false
                }
                // Whatever begins later has even less before it.
                (Some(_), None) => return false,
                (Some(token), Some(byte)) => self.fits(*token, byte),
                (None, Some(_)) => false,
            };
            if fits {
                (next, at) = (next + 1, at + 1);
                if byte == Some(b'/') {
                    star = None;
                }
            } else if let Some((after, end)) = star.take_if(|(_, end)| text(*end) != Some(b'/')) {
                (next, at) = (after, end + 1);
                star = Some((next, at));
            } else if let Some((after, end)) = deep
                && let Some(slash) = dir.iter().skip(end).position(|byte| *byte == b'/')
            {
                (next, at) = (after, end + slash + 1);
                (star, deep) = (None, Some((next, at)));
            } else {
                return false;
            }
        }
    }
}

fn strip(text: &[u8], cut: impl Fn(&[u8]) -> Option<&[u8]>) -> (bool, &[u8]) {
    cut(text).map_or((false, text), |rest| (true, rest))
}

/// None if it is malformed, which git takes for a pattern that matches nothing; so is an empty one.
fn tokens(pattern: &[u8], anchored: bool) -> Option<(Vec<Token>, Vec<Set>)> {
    let (mut tokens, mut sets) = (Vec::new(), Vec::new());
    // Up to here git compares bytes, and takes what follows for a pattern of its own. So to it, until
    // 2.52 at least, the `**` in `a**/b` stands at a beginning, and `ab` and `ax/y/b` are matched.
    let plain = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    let mut at = 0;
    while at < pattern.len() {
        let start = at;
        let byte = unescaped(pattern, &mut at)?;
        let token = match pattern[start] {
            b'?' => Token::One,
            b'[' => {
                let (set, used) = Set::read(&pattern[at..])?;
                at += used;
                sets.push(set);
                Token::Set(sets.len() - 1)
            }
            b'*' => {
                at += pattern[at..].iter().take_while(|byte| **byte == b'*').count();
                let begins = plain == Some(start) || pattern[start - 1] == b'/';
                let (token, used) = match &pattern[at..] {
                    _ if !anchored || !begins || at == start + 1 => (Token::Star, 0),
                    [] => (Token::Rest, 0),
                    [b'/', ..] => (Token::Deep { here: true }, 1),
                    [b'\\', b'/', ..] => (Token::Deep { here: false }, 2),
                    _ => (Token::Star, 0),
                };
                at += used;
                token
            }
            _ => Token::Byte(byte),
        };
        tokens.push(token);
    }
    (!tokens.is_empty()).then_some((tokens, sets))
}

/// The next byte, or the one after a backslash.
fn unescaped(text: &[u8], at: &mut usize) -> Option<u8> {
    *at += usize::from(text.get(*at) == Some(&b'\\'));
    *at += 1;
    text.get(*at - 1).copied()
}

/// What stands in brackets: a bit for each byte.
#[derive(Debug, Clone, Copy)]
struct Set([u64; 4]);

impl Set {
    /// Reads what follows the opening bracket; how many bytes that are, with the closing one.
    fn read(text: &[u8]) -> Option<(Set, usize)> {
        let mut set = Set([0; 4]);
        let negated = matches!(text.first(), Some(b'!' | b'^'));
        let mut at = usize::from(negated);
        // What a range could begin with, and the next closing bracket once somebody looked for it.
        let (mut from, mut close) = (None, 0);
        // A closing bracket that comes first stands for itself.
        loop {
            let first = *text.get(at)?;
            let one = unescaped(text, &mut at)?;
            from = match (first, from, text.get(at)) {
                (b'-', Some(from), Some(next)) if *next != b']' => {
                    set.add(from..=unescaped(text, &mut at)?);
                    None
                }
                (b'[', _, Some(b':')) => {
                    if close < at {
                        close = at + text[at..].iter().position(|byte| *byte == b']')?;
                    }
                    if let [class @ .., b':'] = &text[at + 1..close] {
                        set.add((0..=u8::MAX).filter(class_of(class)?));
                        at = close + 1;
                        None
                    } else {
                        set.add([one]);
                        Some(one)
                    }
                }
                _ => {
                    set.add([one]);
                    Some(one)
                }
            };
            if *text.get(at)? == b']' {
                break;
            }
        }
        if negated {
            set.0 = set.0.map(|bits| !bits);
        }
        // No set has a slash in it, whatever it says.
        set.0[0] &= !(1 << b'/');
        Some((set, at + 1))
    }

    fn add(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }
}

/// Git's own idea of the classes, the same in every locale.
fn class_of(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => |byte| byte.is_ascii_alphanumeric(),
        b"alpha" => |byte| byte.is_ascii_alphabetic(),
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => |byte| byte.is_ascii_control(),
        b"digit" => |byte| byte.is_ascii_digit(),
        b"graph" => |byte| byte.is_ascii_graphic(),
        b"lower" => |byte| byte.is_ascii_lowercase(),
        b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
        b"punct" => |byte| byte.is_ascii_punctuation(),
        b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => |byte| byte.is_ascii_uppercase(),
        b"xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

/// The global excludes file git would read for this process and repository (its work tree's top or its
/// `.git`): `core.excludesFile`, else `git/ignore` in `$XDG_CONFIG_HOME` or `~/.config`. It need not be
/// there.
///
/// The repository's own settings count, with what they include. Settings given by `GIT_CONFIG_COUNT` and
/// `git -c` do not, and `~user` is not understood: there is no file then.
pub fn global_excludes(repository: Option<&Path>) -> Option<PathBuf> {
    let flags = RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::FROM_ENV;
    let open = |path| Repository::open_ext(path, flags, &[] as &[&OsStr]).ok();
    let repository = repository.and_then(open);
    let config = match &repository {
        Some(repository) => repository.config(),
        None => Config::open_default(),
    };
    match config.and_then(|config| config.get_path("core.excludesFile")) {
        // Git looks for a relative one from the work tree's top, where it runs.
        Ok(path) => {
            let top = repository.as_ref().and_then(Repository::workdir);
            (path != Path::new("")).then(|| top.unwrap_or(Path::new("")).join(path))
        }
        Err(error) if error.code() == ErrorCode::NotFound => {
            let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
            let home = || var("HOME").map(|home| Path::new(&home).join(".config"));
            let config = var("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
            Some(config.join("git/ignore"))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests;
