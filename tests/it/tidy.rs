//! House rules as tests: who may import whom, where SQL may stand, what files must say.

use std::fs;
use std::path::{Path, PathBuf};

/// The doors of `src/lib.rs`: what each room may import. Every room may import itself, `model` and
/// `limits`.
const DOORS: &[(&str, &[&str])] = &[
    ("cli", &["server", "upkeep", "exchange", "wire", "config", "clock"]),
    (
        "server",
        &[
            "rpc",
            "worktrees",
            "upkeep",
            "engine",
            "queries",
            "transport",
            "store",
            "config",
            "clock",
        ],
    ),
    ("upkeep", &["engine", "queries", "ops", "store", "clock"]),
    ("rpc", &["worktrees", "engine", "queries", "ops", "snapshot", "wire", "clock"]),
    ("worktrees", &["engine", "queries", "ops", "snapshot", "clock"]),
    ("snapshot", &[]),
    ("transport", &[]),
    ("engine", &["ops", "store", "clock"]),
    ("queries", &["ops", "store"]),
    ("ops", &["store"]),
    ("store", &[]),
    // Messages and parts are kept as the wire has them: the schema is the one definition of what they are.
    ("model", &["wire"]),
    ("exchange", &["wire"]),
    ("wire", &[]),
    ("config", &[]),
    ("limits", &["wire"]), // only to be compared with the schema's own constants
    ("clock", &[]),
];

/// Crates that belong to one room or a few.
const CRATES: &[(&str, &[&str])] = &[
    ("rusqlite", &["store", "exchange"]), // the databases of others are read there
    ("capnp", &["rpc", "transport", "server", "wire", "model", "exchange", "cli"]),
    ("capnp_rpc", &["rpc", "transport", "server", "cli"]),
    ("clap", &["cli", "main"]),
    ("indicatif", &["cli"]),
    ("getrandom", &["server"]),
    ("git2", &["snapshot"]),
    ("rustix", &["snapshot"]),
    ("rayon", &["snapshot", "worktrees"]),
    ("flate2", &["snapshot"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A file's room, and its code without comments and without its own tests.
fn rooms() -> Vec<(String, PathBuf, String)> {
    let src = root().join("src");
    rust_files(&src)
        .into_iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| {
            let relative = path.strip_prefix(&src).unwrap();
            let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
            let room = first.trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<_> =
                text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            (room, relative.to_owned(), code.join("\n"))
        })
        .collect()
}

/// The words behind every `crate::`.
fn imports(code: &str) -> Vec<&str> {
    let mut found: Vec<_> = code
        .match_indices("crate::")
        .map(|(at, _)| &code[at + 7..])
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .filter(|word| !word.is_empty())
        .collect();
    found.dedup();
    found
}

/// What is wrong with the imports of one file. Imports are written so that this can be read off them:
/// one `crate::room` each.
fn wrong_doors(room: &str, code: &str) -> Vec<String> {
    if room == "lib" || room == "main" {
        return Vec::new();
    }
    let Some((_, allowed)) = DOORS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("room {room} has no doors in tests/it/tidy.rs")];
    };
    let mut wrong: Vec<_> = imports(code)
        .into_iter()
        .filter(|to| *to != room && *to != "model" && *to != "limits" && !allowed.contains(to))
        .map(|to| format!("{room} must not import {to}"))
        .collect();
    if code.contains("crate::{") {
        wrong.push(format!("{room} hides imports behind `crate::{{`"));
    }
    for (name, homes) in CRATES {
        let uses = code
            .match_indices(&format!("{name}::"))
            .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
        if uses && !homes.contains(&room) {
            wrong.push(format!("{room} must not use the crate {name}"));
        }
    }
    wrong
}

#[test]
fn rooms_import_only_through_their_doors() {
    let wrong: Vec<_> = rooms()
        .iter()
        .flat_map(|(room, path, code)| {
            wrong_doors(room, code)
                .into_iter()
                .map(move |wrong| format!("{}: {wrong}", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_import_would_be_noticed() {
    assert_eq!(wrong_doors("ops", "use crate::rpc::House;"), ["ops must not import rpc"]);
    assert_eq!(
        wrong_doors("model", "fn f() { crate::store::open() }"),
        ["model must not import store"]
    );
    assert_eq!(
        wrong_doors("rpc", "use rusqlite::Connection;"),
        ["rpc must not use the crate rusqlite"]
    );
    assert_eq!(wrong_doors("ops", "use crate::{rpc, server};").len(), 1);
    assert_eq!(wrong_doors("attic", "").len(), 1);
    assert!(wrong_doors("ops", "use crate::store::Tx;\nuse crate::model::ids::OpId;").is_empty());
}

#[test]
fn sql_stands_in_the_store_only() {
    const WORDS: [&str; 6] = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "PRAGMA ", "BEGIN "];
    for (room, path, code) in rooms() {
        let found = WORDS.iter().find(|word| code.contains(&format!("\"{word}")));
        // The databases of other programs are read where their documents are.
        let home = room == "store" || room == "exchange";
        assert!(home || found.is_none(), "{}: {found:?}", path.display());
    }
}

#[test]
fn every_file_says_what_it_is_for_and_can_be_read_in_one_sitting() {
    for path in rust_files(&root().join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} has no header", path.display());
        let lines = text.lines().count();
        assert!(lines <= 700, "{} has {lines} lines", path.display());
    }
}

#[test]
fn time_and_randomness_are_handed_in() {
    for (room, path, code) in rooms() {
        let inner = ["model", "ops", "store", "engine", "queries"].contains(&room.as_str());
        let found = ["SystemTime::now", "getrandom::"].iter().find(|word| code.contains(**word));
        assert!(!inner || found.is_none(), "{}: {found:?}", path.display());
    }
}

#[test]
fn every_test_file_is_part_of_the_test_binary() {
    let main = fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    for path in rust_files(&root().join("tests/it")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.parent().unwrap().ends_with("it") && name != "main" {
            assert!(main.contains(&format!("mod {name};")), "{name} is forgotten");
        }
    }
}

#[test]
fn released_migrations_are_never_edited() {
    let golden = root().join("tests/golden/migrations.txt");
    let mut found = String::new();
    let mut files: Vec<_> = fs::read_dir(root().join("src/store/migrations"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for path in files {
        let hash = blake3::hash(&fs::read(&path).unwrap());
        found += &format!("{} {}\n", path.file_name().unwrap().to_str().unwrap(), hash.to_hex());
    }
    let found: Vec<_> = found.lines().map(str::to_owned).collect();
    only_grows(&golden, &found, "write a new migration; a released one stays as it is");
}

/// `interface.method @n` and `struct.field @n` of every schema file.
fn ordinals() -> Vec<String> {
    let mut found = Vec::new();
    let mut files: Vec<_> = fs::read_dir(root().join("schema"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "capnp"))
        .collect();
    files.sort();
    for path in files {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut scope = String::new();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let code = line.split('#').next().unwrap().trim();
            let mut words = code.split_whitespace();
            match (words.next(), words.next()) {
                (Some("struct" | "interface" | "enum"), Some(name)) => scope = name.to_owned(),
                (Some(id), None) if id.starts_with("@0x") => found.push(format!("{file} {id}")),
                (Some(name), Some(number)) if number.starts_with('@') => {
                    // The type is part of the promise, the rest of a method is in its own struct.
                    let kind = words.next().unwrap_or("").trim_end_matches(';');
                    let kind = if kind.starts_with(':') { kind } else { "" };
                    let number = number.trim_end_matches(';');
                    found.push(
                        format!("{file} {scope}.{name} {number} {kind}").trim_end().to_owned(),
                    );
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn numbers_in_the_schema_never_change() {
    let found = ordinals();
    assert!(found.len() > 60, "the schema was read");
    let golden = root().join("tests/golden/schema-ordinals.txt");
    only_grows(&golden, &found, "old clients would misread");
}

/// Every line of a golden file must still be found. `GOLDEN=1` adds new ones, and never takes one away.
fn only_grows(golden: &Path, found: &[String], why: &str) {
    let known = fs::read_to_string(golden).unwrap_or_default();
    for line in known.lines() {
        assert!(found.iter().any(|found| found == line), "{line} is gone: {why}");
    }
    if std::env::var_os("GOLDEN").is_some() {
        fs::write(golden, found.join("\n") + "\n").unwrap();
    } else {
        let new = found.iter().find(|line| !known.lines().any(|known| known == *line));
        assert_eq!(new, None, "new: run with GOLDEN=1 to keep it");
    }
}

/// Every test `docs/opencode-parity.md` names is there.
#[test]
fn the_parity_page_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/opencode-parity.md")).unwrap();
    let mut named = 0;
    for name in page.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
        let (module, test) = name.rsplit_once("::").unwrap();
        let (file, test) = match test {
            "tests" => (format!("src/{}.rs", module.replace("::", "/")), "mod tests".to_owned()),
            _ => (format!("tests/it/{module}.rs"), format!("fn {test}()")),
        };
        let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
        assert!(text.contains(&test), "{name} is not in {file}");
        named += 1;
    }
    assert!(named > 30, "{named}");
    for (kind, last) in [
        ("S", 14),
        ("F", 7),
        ("R", 5),
        ("T", 6),
        ("D", 2),
        ("L", 13),
        ("ST", 3),
        ("C", 9),
        ("V", 14),
        ("U", 4),
        ("P", 5),
        ("N", 21),
        ("K", 3),
        ("G", 6),
    ] {
        for number in 1..=last {
            let id = format!("{kind}{number}");
            let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
            let there = rows.flat_map(|ids| ids.split(", ")).any(|ids| match ids.split_once('–') {
                None => ids == id,
                Some((from, to)) => {
                    let number_of = |id: &str| id.strip_prefix(kind)?.parse::<u32>().ok();
                    number_of(from)
                        .zip(number_of(to))
                        .is_some_and(|(from, to)| (from..=to).contains(&number))
                }
            });
            assert!(there, "{id} is not on the page");
        }
    }
}
