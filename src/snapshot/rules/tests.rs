//! What git decides about names, and what we do.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

thread_local! { static STEPS: Cell<u64> = const { Cell::new(0) }; }

/// Counts what a pattern costs.
pub(super) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// Whether a path is ignored, or something it lies in. A slash at its end makes it a directory.
/// `own` is what the `.gitignore` of a directory says, given its path with a slash at the end.
fn ignored<'a>(top: &Arc<Rules>, path: &[u8], own: impl Fn(&[u8]) -> Option<&'a [u8]>) -> bool {
    let mut rules = Arc::clone(top);
    let mut start = 0;
    while let Some(slash) = path[start..].iter().position(|byte| *byte == b'/') {
        let end = start + slash;
        if rules.ignores(&path[start..end], true) {
            return true;
        }
        rules = rules.below(&path[start..end], own(&path[..=end]));
        start = end + 1;
    }
    start < path.len() && rules.ignores(&path[start..], false)
}

fn top(gitignore: &[u8]) -> Arc<Rules> {
    Rules::top(None, None, Some(gitignore))
}

#[test]
fn a_line_ignores_what_it_says() {
    // The file; what it ignores, and what not.
    let table: &[(&str, &str, &str)] = &[
        ("foo", "foo foo/ a/foo a/foo/", "foox xfoo Foo a/b"),
        ("foo/", "foo/ a/foo/ foo/a", "foo a/foo"),
        ("/foo", "foo foo/", "a/foo"),
        ("/foo/", "foo/", "foo a/foo/"),
        ("a/b", "a/b a/b/", "b c/a/b a a/ a/b2"),
        ("a/b/", "a/b/", "a/b"),
        ("//a", "", "a x/a"),
        ("*", "a .a a/b", ""),
        ("*.o", "a.o .o a/b.o a.b.o", "a.oo o a.o.c"),
        ("*.tar.gz", "a.tar.gz .tar.gz", "a.gz tar.gz"),
        ("a*", "a ab a/", "ba"),
        ("a?c", "abc a/abc/", "ac a/c abbc"),
        ("a/*/c", "a/b/c", "a/c a/b/b/c"),
        ("/*", "a a/", ""),
        ("/*/b", "a/b", "b a/c/b"),
        ("**/a", "a b/a b/c/a", "b/ab"),
        ("a/**", "a/b a/b/c", "a a/"),
        ("a/**/b", "a/b a/c/b a/c/d/b", "b ab a/cb"),
        ("**/a/**/b/**/c", "a/b/c x/a/y/b/z/c x/a/a/b/b/c", "a/c b/c a/b x/a/c/b"),
        ("a/***/b", "a/b a/c/d/b", "ab"),
        ("/a**b", "ab axb", "a/b ax/yb"),
        ("a**\\/b/c", "ax/b/c a/b/c", "ab/c"),
        ("**", "a a/b", ""),
        ("/**", "a a/b", ""),
        ("#a", "", "a #a"),
        ("\\#a", "#a", "a \\#a"),
        ("\\!a", "!a", "a"),
        ("!!a\n!a", "", "a !a"),
        ("*\n!a", "b a.b", "a a/"),
        ("*\n!*/\n!*.c", "a x/a", "a.c x/ x/a.c"),
        ("!a\na", "a", ""),
        ("a.o\n!*.o", "", "a.o"),
        ("!*.o\na.o", "a.o", "b.o"),
        ("*.z\n*.b\n*.m\n!*.c\n*.a.m", "a.z a.b a.m a.a.m", "a.c a.a m"),
        ("z\nb\n*~\nm\n!b", "z m a~ m~", "b"),
        ("[ab]", "a b", "c ab [ab]"),
        ("[!ab]", "c ]", "a b"),
        ("[^ab]", "c ^", "a b"),
        ("[a-c]x", "ax bx cx", "dx -x"),
        ("[a-]", "a -", "b"),
        ("[]-a]", "] a ^ _", "b - ["),
        ("[]]", "]", "a"),
        ("[!]]", "a", "]"),
        ("[\\]]", "]", "\\"),
        ("[\\a-c]", "a b", "\\ -"),
        ("[a-\\c]", "a b c", "\\ -"),
        ("[[:digit:]x]", "1 x", "d : ["),
        ("[[:alpha:][:digit:]]", "a 1", ": ["),
        ("[[:a][:digit:]]", "ai] [:] :d]", "a 1 a1]"),
        ("[[:nope:]a]", "", "a n"),
        ("[[:digit]", "[ : d g", "1 ]"),
        ("[a", "", "a [a"),
        ("x[", "", "x x["),
        ("a[/]b", "", "a/b"),
        ("a[!x]b", "acb", "a/b"),
        ("a\\", "", "a a\\"),
        ("a\\/", "", "a a/ a\\/"),
        ("a\\/b", "a/b", ""),
        ("\\a\\*", "a*", "ab"),
        ("a\r\nb\r", "a b", "c"),
        ("a\r\r\n", "a\r", "a"),
        ("\u{feff}a\n", "a", ""),
        ("\u{feff}#a", "", "a #a \u{feff}#a"),
        ("a\n\u{feff}b", "a \u{feff}b", "b"),
        ("a\0b", "a", "b ab"),
        ("a\t", "a\t", "a"),
        ("!\n/\n//\n!/\n\\\n", "", "a ! / \\"),
        ("a*b*c*d", "abcd axbxcxd abcbcdcd", "abdc abcdx"),
        ("**/*a*b", "xayb c/ab d/e/aab", "a/b c/a/b"),
    ];
    for (file, yes, no) in table {
        let top = top(file.as_bytes());
        for (paths, want) in [(yes, true), (no, false)] {
            for path in paths.split(' ').filter(|path| !path.is_empty()) {
                assert_eq!(ignored(&top, path.as_bytes(), |_| None), want, "{file:?} {path:?}");
            }
        }
    }
}

#[test]
fn spaces_at_the_end_count_if_escaped() {
    for (line, name) in [
        (&b"a  "[..], &b"a"[..]),
        (b"a \r\n", b"a"),
        (b"a\\ ", b"a "),
        (b"a\\  ", b"a "),
        (b"a\\\\ ", b"a\\"),
        (b" a", b" a"),
        (b"\xff\xfe ", b"\xff\xfe"),
        (b"[\xf0-\xff]", b"\xf7"),
        (b"?", b"\xff"),
    ] {
        assert!(top(line).ignores(name, false), "{line:?}");
    }
    assert!(!top(b"?").ignores("é".as_bytes(), false), "bytes, not letters");
}

#[test]
fn the_innermost_file_decides() {
    let top = Rules::top(Some(b"*.g\n*.x"), Some(b"!*.x\n/sub/e\n*.y"), Some(b"!*.y\n/t\nsub/u\n"));
    let own = |dir: &[u8]| (dir == b"sub/").then_some(&b"!u\n*.z\n/v\n!/d/w\n/**/k\n"[..]);
    let table: &[(&[u8], bool)] = &[
        (b"a.g", true),
        (b"a.x", false),
        (b"a.y", false),
        (b"a.z", false),
        (b"sub/a.g", true),
        (b"sub/a.z", true),
        (b"sub/e", true),
        (b"sub/d/e", false),
        (b"t", true),
        (b"sub/t", false),
        (b"sub/u", false),
        (b"sub/v", true),
        (b"sub/d/v", false),
        (b"sub/k", true),
        (b"sub/d/d/k", true),
        (b"k", false),
    ];
    for (path, want) in table {
        assert_eq!(ignored(&top, path, own), *want, "{}", path.escape_ascii());
    }
}

#[test]
fn rules_beyond_the_limit_are_told() {
    let many = "a\n".repeat(RULES_MAX);
    let full = top((many.clone() + "#\n\n").as_bytes());
    assert!(!full.truncated() && !full.below(b"x", Some(b"# none")).truncated());
    let more = full.below(b"x", Some(b"b"));
    assert!(more.truncated() && !more.ignores(b"b", false) && more.ignores(b"a", false));
    assert!(more.below(b"y", None).truncated() && !full.truncated());

    let long = vec![b'a'; RULES_BYTES_MAX];
    let full = top(&long);
    assert!(!full.truncated() && full.ignores(&long, false));
    assert!(full.below(b"x", Some(b"b")).truncated());
    assert!(top(&[long, b"b".to_vec()].concat()).truncated());
}

#[test]
fn a_deep_tree_of_files_is_left_without_a_deep_stack() {
    let mut rules = top(b"a");
    for _ in 1..RULES_MAX {
        rules = rules.below(b"d", Some(b"b"));
    }
    assert!(!rules.truncated() && rules.ignores(b"a", false));
}

/// The bound the module promises. An exponential matcher would not come back.
#[test]
fn hostile_patterns_are_cheap() {
    let deep = format!("{}b", "a/".repeat(100));
    let long = "a".repeat(255);
    // Quick to read, too: none of these brackets ends in a class.
    assert!(!top(("[".to_owned() + &"[:".repeat(300_000) + "]").as_bytes()).ignores(b"a", false));
    for (pattern, path) in [
        ("*a".repeat(120) + "b", &long),
        ("a*".repeat(120) + "?b?", &long),
        ("*?".repeat(120) + "b", &long),
        ("*[a-z]".repeat(120) + "b*", &long),
        ("*".repeat(1000) + "b", &long),
        (format!("*{}b?*", "a".repeat(120)), &long),
        ("**/".repeat(90) + "c?", &deep),
        ("**/a/".repeat(45) + "c*", &deep),
        ("**/*a*/".repeat(45) + "*c*", &deep),
        (format!("**/{}c?", "*a*/".repeat(60)), &deep),
        (format!("**/{}[c]/**", "*/".repeat(60)), &deep),
    ] {
        STEPS.set(0);
        assert!(!ignored(&top(pattern.as_bytes()), path.as_bytes(), |_| None), "{pattern}");
        let questions = path.split('/').count();
        let most = (pattern.len() * path.len() * questions) as u64;
        assert!(STEPS.get() <= most, "{} of {most}: {pattern}", STEPS.get());
    }
}

/// A place for git to work in that knows no settings but its own.
struct Git {
    dir: TempDir,
}

impl Git {
    fn new() -> Git {
        let git = Git { dir: tempfile::tempdir().unwrap() };
        for dir in [".git/objects", ".git/refs", ".git/info"] {
            fs::create_dir_all(git.tree().join(dir)).unwrap();
        }
        fs::create_dir_all(git.home().join(".config/git")).unwrap();
        fs::write(git.tree().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        git
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        fs::write(self.dir.path().join(path), bytes).unwrap();
    }

    /// What a process sees that is to see this place only.
    fn env(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.home()).env("GIT_CONFIG_NOSYSTEM", "1").current_dir(self.tree());
    }

    fn run(&self, words: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("git");
        self.env(&mut command);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input).unwrap());
            child.wait_with_output().unwrap()
        });
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?} {:?}", output.status);
        output.stdout
    }

    /// Which of the paths git takes for ignored.
    fn ignored<'a>(&self, paths: impl IntoIterator<Item = &'a Vec<u8>>) -> BTreeSet<Vec<u8>> {
        // What begins with a colon is no path to it.
        let input: Vec<u8> =
            paths.into_iter().flat_map(|path| [b"./".as_slice(), path, b"\0"].concat()).collect();
        let output = self.run(&["check-ignore", "--no-index", "-z", "--stdin"], &input);
        paths_of(&output).into_iter().map(|path| path[2..].to_vec()).collect()
    }
}

fn paths_of(output: &[u8]) -> BTreeSet<Vec<u8>> {
    output.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether this git takes the `**` of `a**/b` for one that stands at a beginning, as we do.
static ODD_STARS: LazyLock<bool> = LazyLock::new(|| {
    let git = Git::new();
    git.write("tree/.gitignore", b"a**/b");
    !git.ignored([&b"ab".to_vec()]).is_empty()
});

/// One of what stands between the bars.
fn any_of(words: &'static [u8]) -> impl Strategy<Value = &'static [u8]> {
    select(words.split(|byte| *byte == b'|').collect::<Vec<_>>())
}

/// A line, and a nasty one.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let pieces = any_of(
        b"a|b|a|b|.|*|*|**|***|?|/|/|**/|/**|/**/|[|]|!|^|-|\\|:|[ab]|[!a]|[^b-]|[]a]|[a-c]|*.o|*.c|.o|a.o|\
          [[:alpha:]]|[[:digit:][:alpha:]]|[![:punct:]a]|[[:|:]| |\r|\t|#|\xff|\xc3\xa9|\0|A|1",
    );
    let start = any_of(b"||||!|/|!/|**/|a/|#|\\");
    let end = any_of(b"||||/| |/**|\\ |*|.o|/a|\\");
    let middle = prop::collection::vec(pieces, 0..7);
    (start, middle, end).prop_map(|(start, middle, end)| {
        let line = [start, &middle.concat(), end].concat();
        let odd = |three: &[u8]| three[0] != b'/' && three[1..] == *b"**";
        if !*ODD_STARS && line.windows(3).any(odd) { b"a".to_vec() } else { line }
    })
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let end = any_of(b"\n|\n|\n|\r\n|\n\n|  \n");
    let lines = prop::collection::vec((line(), end), 0..8);
    (any::<[bool; 4]>(), lines).prop_map(|(odd, lines)| {
        let mut file = if odd == [true; 4] { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
        lines.iter().for_each(|(line, end)| file.extend([line, *end].concat()));
        if odd[0] && file.ends_with(b"\n") {
            file.pop();
        }
        file
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let pieces = any_of(b"a|b|a|b|a|b|c|.|.o|-|[|]|!|^|\\|*|#| |:|\xff|\xc3\xa9|\r|\t|\n|A|1");
    let name = prop::collection::vec(pieces, 1..5).prop_map(|pieces| pieces.concat());
    name.prop_map(|name| if name == b"." || name == b".." { b"a".to_vec() } else { name })
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let short = any_of(b"a|b|ab|a.o|b.c|b.a.o|.o").prop_map(<[u8]>::to_vec);
    prop::collection::vec(prop_oneof![short, name()], 1..5).prop_map(|names| names.join(&b'/'))
}

#[derive(Debug, Clone)]
enum Kind {
    File,
    Dir,
    Link,
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// What is ignored and what is not (without directories, as `ls-files` has it), by our own rules.
fn walk(
    dir: &Path,
    path: &[u8],
    rules: &Arc<Rules>,
    ignored: &mut BTreeSet<Vec<u8>>,
    kept: &mut BTreeSet<Vec<u8>>,
) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_vec();
        if name == b".git" {
            continue;
        }
        let path = [path, &name].concat();
        let is_dir = entry.file_type().unwrap().is_dir();
        if rules.ignores(&name, is_dir) {
            ignored.insert(path);
        } else if is_dir {
            let own = fs::read(entry.path().join(".gitignore")).ok();
            let rules = rules.below(&name, own.as_deref());
            walk(&entry.path(), &[&path[..], b"/"].concat(), &rules, ignored, kept);
        } else {
            kept.insert(path);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many files and paths in one question: what the patterns mean.
    #[test]
    fn git_reads_patterns_alike(
        files in prop::collection::vec((prop::collection::vec(line(), 1..4),
            prop::collection::vec(path(), 24)), 24),
    ) {
        let git = Git::new();
        let mut ours = BTreeSet::new();
        let mut all = BTreeSet::new();
        for (number, (lines, paths)) in files.iter().enumerate() {
            let text = lines.join(&b'\n');
            let dir = format!("{number}/");
            fs::create_dir(git.tree().join(&dir)).unwrap();
            git.write(format!("tree/{dir}.gitignore"), &text);
            for path in paths {
                let path = [dir.as_bytes(), path].concat();
                let own = |of: &[u8]| (of == dir.as_bytes()).then_some(&text[..]);
                if ignored(&Rules::top(None, None, None), &path, own) {
                    ours.insert(path.clone());
                }
                all.insert(path);
            }
        }
        let theirs = git.ignored(&all);
        if let Some(path) = ours.symmetric_difference(&theirs).next() {
            let digits = path.iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
            let text = files[number].0.join(&b'\n');
            prop_assert!(false, "{:?}: {:?} by git: {}", text.escape_ascii().to_string(),
                path.escape_ascii().to_string(), theirs.contains(path));
        }
    }

    /// A whole tree, with files at several levels: what comes before what, and what a directory is.
    #[test]
    fn git_walks_trees_alike(
        entries in prop::collection::vec((path(), select(&[Kind::File, Kind::Dir, Kind::Link][..])), 1..32),
        files in prop::collection::vec((any::<prop::sample::Index>(), file()), 0..4),
        gitignore in prop::option::of(file()),
        exclude in prop::option::of(file()),
        global in prop::option::of(file()),
    ) {
        let git = Git::new();
        let mut dirs = vec![git.tree()];
        let mut all = BTreeSet::new();
        for (path, kind) in &entries {
            let mut at = git.tree();
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            for (slash, _) in slashes {
                at = git.tree().join(os(&path[..slash]));
                if fs::create_dir(&at).is_ok() {
                    all.insert(path[..slash].to_vec());
                    dirs.push(at.clone());
                }
                if !fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
                    break;
                }
            }
            let at_end = git.tree().join(os(path));
            if at_end.parent() != Some(&at) || !at.symlink_metadata().unwrap().is_dir() {
                continue;
            }
            let made = match kind {
                Kind::File => fs::File::create_new(&at_end).is_ok(),
                Kind::Dir => fs::create_dir(&at_end).is_ok(),
                Kind::Link => std::os::unix::fs::symlink(".", &at_end).is_ok(),
            };
            if made {
                all.insert(path.clone());
                if matches!(kind, Kind::Dir) {
                    dirs.push(at_end);
                }
            }
        }
        for (dir, text) in &files {
            let at = dir.get(&dirs).join(".gitignore");
            all.insert(at.strip_prefix(git.tree()).unwrap().as_os_str().as_bytes().to_vec());
            fs::write(at, text).unwrap();
        }
        if let Some(text) = &gitignore {
            git.write("tree/.gitignore", text);
            all.insert(b".gitignore".to_vec());
        }
        if let Some(text) = &exclude {
            git.write("tree/.git/info/exclude", text);
        }
        if let Some(text) = &global {
            git.write("home/excludes", text);
            git.write("home/.gitconfig", b"[core]\nexcludesFile = ~/excludes\n");
        }

        let (mut ours, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let gitignore = fs::read(git.tree().join(".gitignore")).ok();
        let top = Rules::top(global.as_deref(), exclude.as_deref(), gitignore.as_deref());
        walk(&git.tree(), b"", &top, &mut ours, &mut kept);
        let within = |path: &Vec<u8>| {
            let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            ours.contains(path) || ends.any(|(end, _)| ours.contains(&path[..end]))
        };
        let ours: BTreeSet<Vec<u8>> = all.iter().filter(|path| within(path)).cloned().collect();
        prop_assert_eq!(ours, git.ignored(&all));
        let others = git.run(&["ls-files", "-o", "--exclude-standard", "-z"], b"");
        prop_assert_eq!(kept, paths_of(&others));
    }
}

#[test]
fn git_knows_the_same_classes() {
    let git = Git::new();
    let classes = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit ALPHA";
    let mut sets: Vec<String> = classes.split(' ').map(|class| format!("[[:{class}:]]")).collect();
    sets.extend(sets.clone().iter().map(|set| set.replacen('[', "[!", 1)));
    sets.extend(["[!-~]", "[+--]", "[[-\\]]", "?", "*", "[!/]"].map(str::to_owned));
    let (mut ours, mut all) = (BTreeSet::new(), Vec::new());
    for (number, set) in sets.iter().enumerate() {
        for (kind, set) in [('n', set.clone()), ('p', format!("/{set}"))] {
            let dir = format!("{number}{kind}");
            fs::create_dir(git.tree().join(&dir)).unwrap();
            git.write(format!("tree/{dir}/.gitignore"), set.as_bytes());
            for byte in (1..=u8::MAX).filter(|byte| !b"/.".contains(byte)) {
                let path = [dir.as_bytes(), b"/", &[byte]].concat();
                if top(set.as_bytes()).ignores(&[byte], false) {
                    ours.insert(path.clone());
                }
                all.push(path);
            }
        }
    }
    assert_eq!(ours, git.ignored(&all));
}

/// Not a test: says what [`global_excludes`] says, to a process that set the scene.
#[test]
#[ignore = "run by the test below"]
fn tell_global_excludes() {
    let path = global_excludes(std::env::var_os("TELL").as_deref().map(Path::new));
    let path = path.map(PathBuf::into_os_string).unwrap_or_default();
    println!("\0{}\0", path.into_encoded_bytes().escape_ascii());
}

#[test]
fn git_reads_the_same_global_file() {
    // The user's settings, the repository's, variables (a path in the place for it), and the file git
    // reads, for the repository.
    type Vars = &'static [(&'static str, &'static str)];
    let table: &[(&str, &str, Vars, Option<&str>)] = &[
        ("", "", &[], Some("home/.config/git/ignore")),
        ("", "", &[("XDG_CONFIG_HOME", "xdg")], Some("xdg/git/ignore")),
        ("~/mine", "", &[], Some("home/mine")),
        ("~/mine", "", &[("XDG_CONFIG_HOME", "xdg")], Some("home/mine")),
        ("~/mine", "rel", &[], Some("tree/rel")),
        ("", "sub/rel", &[], Some("tree/sub/rel")),
        ("~/mine", "~/none", &[], Some("home/none")),
        ("~/mine", "\"\"", &[], None),
        ("~/mine", "", &[("GIT_CONFIG_GLOBAL", "other")], Some("home/others")),
    ];
    for (user, own, vars, want) in table {
        let git = Git::new();
        let base = git.dir.path();
        for dir in ["xdg/git", "tree/sub"] {
            fs::create_dir_all(base.join(dir)).unwrap();
        }
        let places = [
            "home/.config/git/ignore",
            "xdg/git/ignore",
            "home/mine",
            "home/others",
            "tree/rel",
            "tree/sub/rel",
        ];
        places.iter().for_each(|place| git.write(place, b"x"));
        git.write("other", b"[core]\nexcludesFile = ~/others\n");
        for (value, place) in [(user, "home/.gitconfig"), (own, "tree/.git/config")] {
            if !value.is_empty() {
                git.write(place, format!("[core]\nexcludesFile = {value}\n").as_bytes());
            }
        }
        let output = |command: &mut Command| {
            git.env(command);
            command.envs(vars.iter().map(|(name, value)| (name, base.join(value))));
            command.env("TELL", git.tree()).current_dir(git.tree()).output().unwrap().stdout
        };

        let said = output(Command::new("git").args(["check-ignore", "-v", "--no-index", "x"]));
        let theirs = said.split(|byte| *byte == b':').next().unwrap();
        let theirs = (!theirs.is_empty()).then(|| git.tree().join(os(theirs)));
        let there = want.map(|want| base.join(want)).filter(|path| path.exists());
        assert_eq!(theirs, there, "git: {user:?} {own:?} {vars:?}");

        let test =
            ["--exact", "--ignored", "--nocapture", "snapshot::rules::tests::tell_global_excludes"];
        let said = output(Command::new(std::env::current_exe().unwrap()).args(test));
        let ours = said.split(|byte| *byte == 0).nth(1).unwrap();
        let ours = (!ours.is_empty()).then(|| PathBuf::from(os(ours)));
        let ours = ours.map(|path| path.components().collect::<PathBuf>());
        assert_eq!(ours, want.map(|want| base.join(want)), "{user:?} {own:?} {vars:?}");
    }
}
