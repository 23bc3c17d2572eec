//! The odd things themselves.

use super::World;
use super::chmod;
use crate::snapshot::state::Skipped;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

/// Something that may stand in a project.
pub(super) struct Row {
    pub name: &'static str,
    pub build: fn(&World),
    /// What a snapshot does not hold of it.
    pub skipped: &'static [(&'static str, Skipped)],
}

const TOP: (&str, Skipped) = (".git", Skipped::Repository);

pub(super) const ROWS: &[Row] = &[
    Row { name: "line endings and attributes", build: attributes, skipped: &[TOP] },
    Row { name: "filters and hooks", build: filters, skipped: &[TOP] },
    Row {
        name: "nested repositories",
        build: nested,
        skipped: &[
            TOP,
            ("empty/.git", Skipped::Repository),
            ("full/.git", Skipped::Repository),
            ("nowhere/.git", Skipped::Repository),
        ],
    },
    Row {
        name: "a submodule",
        build: submodule,
        skipped: &[TOP, ("sub/.git", Skipped::Repository)],
    },
    Row { name: "a linked worktree", build: linked, skipped: &[TOP] },
    Row { name: "no repository", build: |world| world.write("dir/file", "x"), skipped: &[] },
    Row { name: "nothing at all", build: |_| (), skipped: &[] },
    Row { name: "odd names", build: names, skipped: &[] },
    Row { name: "look-alikes of .git", build: look_alikes, skipped: &[] },
    Row { name: "modes", build: modes, skipped: &[] },
    Row { name: "links", build: links, skipped: &[] },
    Row { name: "empty directories", build: empty, skipped: &[] },
    Row {
        name: "ignored files",
        build: ignored,
        skipped: &[
            TOP,
            (".ignored", Skipped::Ignored),
            ("by-exclude", Skipped::Ignored),
            ("by-global", Skipped::Ignored),
            ("sub/nested", Skipped::Ignored),
            ("target", Skipped::Ignored),
        ],
    },
    Row { name: "hard links", build: hard_links, skipped: &[] },
    Row { name: "contents", build: contents, skipped: &[] },
];

fn attributes(world: &World) {
    world.git(&["init", "-q"]);
    for setting in ["core.autocrlf", "core.safecrlf"] {
        world.git(&["config", setting, "true"]);
    }
    let lines = ["*.txt text=auto eol=crlf", "*.id ident", "*.16 working-tree-encoding=UTF-16"];
    world.write(".gitattributes", lines.join("\n"));
    for (name, bytes) in [
        ("crlf.txt", "a\r\nb\r\n"),
        ("lf.txt", "a\nb\n"),
        ("mixed.txt", "a\r\nb\nc\r"),
        ("a.id", "$Id$ and $Id: 0123$"),
        ("plain.16", "not UTF-16 at all"),
    ] {
        world.write(name, bytes);
    }
}

fn filters(world: &World) {
    world.git(&["init", "-q"]);
    let ran = world.dir.path().join("outside/ran");
    let run = format!("sh -c 'echo ran > {}'", ran.display());
    for setting in ["clean", "smudge", "process"] {
        world.git(&["config", &format!("filter.lfs.{setting}"), &run]);
    }
    world.git(&["config", "filter.lfs.required", "true"]);
    world.git(&["config", "core.fsmonitor", &run]);
    world.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    world.write("large.bin", "not a pointer");
    for hook in ["pre-commit", "post-checkout", "post-index-change", "reference-transaction"] {
        let path = format!(".git/hooks/{hook}");
        world.write(&path, format!("#!/bin/sh\n{run}\n"));
        chmod(&world.path(&path), 0o755);
    }
}

fn nested(world: &World) {
    world.git(&["init", "-q"]);
    for (directory, commits) in [("empty", false), ("full", true)] {
        world.write(&format!("{directory}/file"), directory);
        let git = |args: &[&str]| super::git(&world.path(directory), args);
        git(&["init", "-q"]);
        if commits {
            git(&["add", "."]);
            git(&["commit", "-q", "-m", "first"]);
            world.write("full/file", "not committed");
        }
    }
    world.write("nowhere/.git", "gitdir: /nonexistent/place\n");
    world.write("nowhere/file", "x");
}

fn submodule(world: &World) {
    let other = world.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "x").unwrap();
    super::git(&other, &["init", "-q"]);
    super::git(&other, &["add", "."]);
    super::git(&other, &["commit", "-q", "-m", "first"]);
    world.git(&["init", "-q"]);
    let from = other.to_str().unwrap();
    world.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, "sub"]);
    world.write("sub/own", "not in the submodule's history");
}

fn linked(world: &World) {
    let main = world.dir.path().join("main");
    fs::create_dir(&main).unwrap();
    super::git(&main, &["init", "-q"]);
    super::git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let here = world.root();
    super::git(&main, &["worktree", "add", "-q", here.to_str().unwrap()]);
    assert!(world.path(".git").is_file());
    world.write("file", "x");
}

fn names(world: &World) {
    let odd: &[&[u8]] = &[
        b"new\nline",
        b"quo\"te",
        b"back\\slash",
        b"tab\t",
        b" leading",
        b"trailing ",
        b":(glob)magic",
        b"*",
        b"?[a]",
        b"-rf",
        b"--",
        b"~",
        b"$HOME",
        b"\xff\xfe not UTF-8",
        "e\u{301}".as_bytes(),
        "\u{e9}".as_bytes(),
        b"...",
        b"\x7f\x01\x1b[31m",
        b"a",
        b"A",
        b"con",
        b"b.",
        &[b'n'; 255],
    ];
    for name in odd {
        let dir = world.root().join("d").join(super::path_of(name));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
        fs::write(world.root().join(super::path_of(name)), name).unwrap();
    }
}

fn look_alikes(world: &World) {
    for name in [".GIT", ".Git", "git~1", ".git ", ".git.", ".g\u{200c}it", ".gitmodules", ".git2"]
    {
        world.write(&format!("{name}/config"), "x");
        world.write(&format!("files/{name}"), "x");
    }
    symlink("elsewhere", world.path("files/.gitattributes")).unwrap();
}

fn modes(world: &World) {
    for mode in [0o600, 0o640, 0o644, 0o755, 0o711, 0o710, 0o654, 0o010, 0o400, 0o666, 0o777, 0o000]
    {
        let file = format!("file{mode:o}");
        world.write(&file, &file);
        chmod(&world.path(&file), mode);
        // A directory nobody may use and one as most are have the same number in git.
        if mode != 0 {
            let dir = format!("dir{mode:o}");
            world.write(&format!("{dir}/file"), &dir);
            chmod(&world.path(&dir), mode);
        }
    }
}

fn links(world: &World) {
    world.write("dir/file", "x");
    for (name, target) in [
        ("dangling", "nowhere"),
        ("absolute", "/etc/hostname"),
        ("to-dir", "dir"),
        ("dir/up", ".."),
        ("outside", "../outside"),
        ("canary", "../outside/canary"),
        ("itself", "itself"),
        ("loop/a", "b"),
        ("loop/b", "a"),
        ("odd\nname", "odd\ntarget \u{e9}\\"),
    ] {
        fs::create_dir_all(world.path(name).parent().unwrap()).unwrap();
        symlink(target, world.path(name)).unwrap();
    }
}

fn empty(world: &World) {
    for dir in ["one", "two/three/four", "two/five"] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    chmod(&world.path("two/three"), 0o700);
    world.write("file", "");
}

fn ignored(world: &World) {
    world.git(&["init", "-q"]);
    world.write(".gitignore", "/.ignored\ntarget/\n*.o\n!keep.o\n");
    world.write("sub/.gitignore", "nested\n!a.o\n");
    world.write(".git/info/exclude", "by-exclude\n");
    let excludes = world.root().join(".git/global-excludes");
    fs::write(&excludes, "by-global\n").unwrap();
    world.git(&["config", "core.excludesFile", excludes.to_str().unwrap()]);
    for name in [
        ".ignored",
        "target/a/b",
        "keep.o",
        "sub/nested",
        "sub/a.o",
        "by-exclude",
        "by-global",
        "file",
    ] {
        world.write(name, name);
    }
}

fn hard_links(world: &World) {
    world.write("one", "the same");
    fs::create_dir(world.path("dir")).unwrap();
    for name in ["two", "dir/three"] {
        fs::hard_link(world.path("one"), world.path(name)).unwrap();
    }
}

fn contents(world: &World) {
    world.write("empty", "");
    world.write("nul", [0; 100]);
    world.write("no newline", "x");
    world.write("all bytes", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    // One that is never held in memory.
    world.write("long", vec![b'l'; 17 << 20]);
    world.write("same as blob", "blob 3\0abc");
}
