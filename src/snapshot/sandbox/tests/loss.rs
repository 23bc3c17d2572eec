//! What would be lost is told, refused or kept.

use super::*;

#[test]
fn state_counts_what_would_be_lost() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    let inside = &made.directory;
    let counts = || all.state("a").map(|state| (state.unmerged, state.uncommitted)).unwrap();
    assert_eq!(counts(), (0, 0));
    write(&inside.join("tracked"), "changed");
    write(&inside.join("new/a"), "");
    write(&inside.join("new/b"), "");
    write(&inside.join("junk.o"), "");
    fs::remove_file(inside.join("dir/below")).unwrap();
    assert_eq!(counts(), (0, 4));
    git(inside, &["add", "new/a"]);
    assert_eq!(counts(), (0, 4));
    let one = commit(inside, "one");
    commit(inside, "two");
    assert_eq!(counts(), (2, 0));
    scene.git(&["tag", "kept", &one]);
    assert_eq!(counts(), (1, 0));
    scene.git(&["update-ref", "refs/remotes/origin/x", "bowline/a"]);
    assert_eq!(counts(), (0, 0));
    scene.git(&["update-ref", "-d", "refs/remotes/origin/x"]);
    // Another name of the same branch holds nothing, nor does a tag of something else.
    scene.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/bowline/a"]);
    scene.git(&["tag", "blob", "HEAD:tracked"]);
    assert_eq!(counts(), (1, 0));

    git(inside, &["checkout", "-q", "--detach"]);
    let apart = commit(inside, "apart");
    let state = all.state("a").unwrap();
    assert_eq!((state.branch, state.unmerged), (None, 2));
    assert_eq!(state.head.unwrap().to_string(), apart);
    git(inside, &["switch", "-q", "-c", "mine"]);
    let state = all.state("a").unwrap();
    assert_eq!((state.branch.as_deref(), state.unmerged), (Some("mine"), 0));
    git(inside, &["switch", "-q", "--orphan", "fresh"]);
    let state = all.state("a").unwrap();
    assert_eq!((state.branch.as_deref(), state.head), (Some("fresh"), None));
}

#[test]
fn reset_refuses_or_keeps() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    let inside = &made.directory;
    write(&inside.join("tracked"), "changed");
    write(&inside.join("added"), "added");
    write(&inside.join("junk.o"), "junk");
    assert!(matches!(all.reset("a", None, false), Err(Error::Uncommitted { files: 2 })));
    let work = commit(inside, "work");
    assert!(matches!(all.reset("a", None, false), Err(Error::Unmerged { commits: 1 })));
    assert_eq!(fs::read(inside.join("tracked")).unwrap(), b"changed");
    // Going on is no loss.
    all.reset("a", Some("HEAD"), false).unwrap();
    all.reset("a", Some(&work), false).unwrap();

    write(&inside.join("loose/below/x.o"), "junk");
    write(&inside.join("loose/below/y"), "untracked");
    write(&inside.join("alone/y"), "untracked");
    git(inside, &["init", "-q", "nested"]);
    write(&inside.join("nested/precious"), "x");
    write(&inside.join("staged"), "x");
    git(inside, &["add", "staged"]);
    fs::remove_file(inside.join("staged")).unwrap();
    // The files and the nested repository; the staged one twice over.
    assert!(matches!(all.reset("a", Some("HEAD"), false), Err(Error::Uncommitted { files: 4 })));
    let kept = all.reset("a", None, true).unwrap();
    let reference = format!("refs/bowline/discarded/a-{}", &work[..12]);
    assert_eq!(kept, [Kept { reference: reference.clone(), commit: work.parse().unwrap() }]);
    assert_eq!(scene.git(&["rev-parse", &reference]).trim(), work);
    assert_eq!(git(inside, &["rev-parse", "HEAD"]).trim(), made.start.to_string());
    let left = "?? nested/\n!! junk.o\n!! loose/\n";
    assert_eq!(git(inside, &["status", "--porcelain", "--ignored"]), left);
    assert!(inside.join("loose/below/x.o").exists() && !inside.join("loose/below/y").exists());
    assert!(inside.join("nested/precious").exists() && !inside.join("alone").exists());
    assert!(matches!(all.reset("a", Some("nope"), true), Err(Error::UnknownRevision(_))));
    assert!(matches!(all.reset("b", None, true), Err(Error::NotFound(_))));
}

#[test]
fn reset_comes_back_from_wherever_git_was_left() {
    let scene = Scene::new();
    scene.git(&["checkout", "-q", "-b", "theirs"]);
    scene.write("tracked", "theirs\n");
    scene.commit("theirs");
    scene.git(&["checkout", "-q", "main"]);
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    let inside = &made.directory;
    write(&inside.join("tracked"), "ours\n");
    let ours = commit(inside, "ours");
    assert!(!try_git(inside, &["merge", "theirs"]).status.success());
    assert!(matches!(all.reset("a", Some("HEAD"), false), Err(Error::Uncommitted { files: 1 })));
    assert_eq!(all.reset("a", Some("HEAD"), true).unwrap(), []);
    scene.assert_whole(&made);
    assert!(!try_git(inside, &["merge", "--abort"]).status.success(), "the merge is over");

    git(inside, &["checkout", "-q", "--detach", "main"]);
    let apart = commit(inside, "apart");
    assert!(matches!(all.reset("a", None, false), Err(Error::Unmerged { commits: 2 })));
    let kept = all.reset("a", None, true).unwrap();
    let kept: Vec<String> = kept.iter().map(|kept| kept.commit.to_string()).collect();
    assert_eq!(kept, [apart, ours]);
    scene.assert_whole(&made);
    // A branch of its own keeps its commits and its name.
    git(inside, &["switch", "-q", "-c", "mine"]);
    let mine = commit(inside, "mine");
    git(inside, &["branch", "-q", "-D", "bowline/a"]);
    assert_eq!(all.reset("a", None, false).unwrap(), []);
    scene.assert_whole(&made);
    assert_eq!(scene.git(&["rev-parse", "mine"]).trim(), mine);
}

#[test]
fn a_reset_that_was_cut_short_is_completed_without_discarding() {
    let scene = Scene::new();
    scene.write("dir/below", "newer\n");
    scene.write("added", "added\n");
    fs::remove_file(scene.repo().join("tracked")).unwrap();
    scene.commit("second");
    let all = scene.sandboxes();
    let made = all.create("a", Some("HEAD~1"), "op").unwrap();
    let inside = &made.directory;
    write(&inside.join("dir/below"), "newer\n");
    write(&inside.join("added"), "added\n");
    assert_eq!(all.state("a").unwrap().uncommitted, 2);
    write(&inside.join("added"), "other\n");
    assert!(matches!(all.reset("a", Some("main"), false), Err(Error::Uncommitted { files: 1 })));
    // Nor is it enough that the file is as wanted, if what is staged is not.
    git(inside, &["add", "added"]);
    write(&inside.join("added"), "added\n");
    assert!(matches!(all.reset("a", Some("main"), false), Err(Error::Uncommitted { files: 1 })));
    git(inside, &["add", "-A"]);
    all.reset("a", Some("main"), false).unwrap();
    scene.assert_whole(&made);
    assert!(!inside.join("tracked").exists());
}

#[test]
fn ignored_files_in_the_way_are_told_before_anything_is_written() {
    let scene = Scene::new();
    scene.write("made.o", "theirs");
    scene.write("zz", "theirs");
    scene.git(&["add", "-f", "made.o"]);
    scene.commit("tracked although ignored");
    let all = scene.sandboxes();
    let made = all.create("a", Some("HEAD~1"), "op").unwrap();
    write(&made.directory.join("made.o"), "ours");
    assert!(matches!(all.reset("a", Some("main"), false), Err(Error::Uncommitted { files: 1 })));
    assert_eq!(fs::read(made.directory.join("made.o")).unwrap(), b"ours");
    assert!(!made.directory.join("zz").exists());
    all.reset("a", Some("main"), true).unwrap();
    assert_eq!(fs::read(made.directory.join("made.o")).unwrap(), b"theirs");
}

#[test]
fn links_lead_nowhere() {
    let scene = Scene::new();
    let outside = scene.temp.path().join("outside");
    write(&outside.join("below"), "precious");
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    let inside = &made.directory;
    fs::remove_dir_all(inside.join("dir")).unwrap();
    symlink(&outside, inside.join("dir")).unwrap();
    symlink(&outside, inside.join("link.o")).unwrap();
    assert!(matches!(all.reset("a", None, false), Err(Error::Uncommitted { .. })));
    all.reset("a", None, true).unwrap();
    assert_eq!(fs::read(outside.join("below")).unwrap(), b"precious");
    assert_eq!(fs::read(inside.join("dir/below")).unwrap(), b"two\n");
    all.remove("a", false).unwrap();
    assert_eq!(fs::read(outside.join("below")).unwrap(), b"precious");
    assert_eq!(scene.traces(), [""; 0]);
}

#[test]
fn a_home_behind_a_link_is_one_place() {
    let scene = Scene::new();
    let (real, link) = (scene.temp.path().join("real"), scene.temp.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let made = Sandboxes::new(&scene.repo(), &link).unwrap().create("a", None, "op").unwrap();
    assert_eq!(made.directory, fs::canonicalize(&real).unwrap().join("a"));
    let direct = Sandboxes::new(&scene.repo(), &real).unwrap();
    assert_eq!(direct.create("a", None, "op").unwrap(), made);
    scene.assert_whole(&made);
}

#[test]
fn remove_refuses_or_keeps() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    write(&made.directory.join("new"), "x");
    assert!(matches!(all.remove("a", false), Err(Error::Uncommitted { files: 1 })));
    let one = commit(&made.directory, "one");
    assert!(matches!(all.remove("a", false), Err(Error::Unmerged { commits: 1 })));
    git(&made.directory, &["checkout", "-q", "--detach", "HEAD~1"]);
    let apart = commit(&made.directory, "apart");
    assert!(matches!(all.remove("a", false), Err(Error::Unmerged { commits: 2 })));
    scene.git(&["config", "branch.bowline/a.remote", "origin"]);
    let removed = all.remove("a", true).unwrap();
    let commits: Vec<String> = removed.kept.iter().map(|kept| kept.commit.to_string()).collect();
    assert_eq!((removed.existed, &commits), (true, &vec![apart, one]));
    for Kept { reference, commit } in &removed.kept {
        assert_eq!(scene.git(&["log", "-1", "--format=%H", reference]).trim(), commit.to_string());
    }
    scene.git(&["reflog", "expire", "--expire=now", "--all"]);
    let lost = scene.git(&["fsck", "--unreachable", "--no-reflogs"]);
    assert!(!lost.contains("commit"), "{lost}");
    scene.git(&["gc", "-q", "--prune=now"]);
    for commit in &commits {
        scene.git(&["cat-file", "-e", commit]);
    }
    let left: Vec<String> = removed.kept.into_iter().map(|kept| kept.reference).collect();
    let mut traces = scene.traces();
    traces.sort_by_key(|trace| left.iter().position(|kept| kept == trace));
    assert_eq!(traces, left);
    assert_eq!(scene.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(scene.git(&["config", "--get-regexp", "."]).matches("bowline").count(), 0);
    assert_eq!(all.remove("a", true).unwrap(), Removed::default());
}

#[test]
fn merged_work_goes_without_a_word_and_ignored_files_with_it() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    write(&made.directory.join("new"), "x");
    write(&made.directory.join("junk.o"), "x");
    commit(&made.directory, "work");
    scene.git(&["merge", "-q", "bowline/a"]);
    assert_eq!(all.remove("a", false).unwrap(), Removed { existed: true, kept: Vec::new() });
    assert_eq!(scene.traces(), [""; 0]);
}

#[test]
fn a_removal_that_was_cut_short_is_completed() {
    let steps: [fn(&Scene); 4] = [
        |scene| fs::rename(scene.home().join("a"), scene.home().join(".a.gone")).unwrap(),
        |scene| {
            fs::rename(scene.home().join("a"), scene.home().join(".a.gone")).unwrap();
            fs::remove_file(scene.home().join(".a.gone/tracked")).unwrap();
        },
        |scene| {
            fs::remove_dir_all(scene.home().join("a")).unwrap();
            fs::create_dir_all(scene.repo().join(".git/bowline")).unwrap();
            fs::rename(scene.entry("a"), scene.repo().join(".git/bowline/a.gone")).unwrap();
        },
        |scene| {
            fs::remove_dir_all(scene.home().join("a")).unwrap();
            fs::remove_dir_all(scene.entry("a")).unwrap();
            scene.git(&["branch", "-q", "-D", "bowline/a"]);
        },
    ];
    for (i, step) in steps.into_iter().enumerate() {
        let scene = Scene::new();
        let all = scene.sandboxes();
        all.create("a", None, "op").unwrap();
        step(&scene);
        assert!(all.remove("a", false).unwrap().existed, "{i}");
        assert_eq!(scene.traces(), [""; 0], "{i}");
    }
}

#[test]
fn a_directory_deleted_by_hand_is_missing_and_comes_back_with_what_was_staged() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    write(&made.directory.join("staged"), "precious");
    git(&made.directory, &["add", "staged"]);
    fs::remove_dir_all(&made.directory).unwrap();
    assert!(all.list().unwrap()[0].missing);
    let state = all.state("a").unwrap();
    assert_eq!((state.missing, state.uncommitted), (true, 1));
    assert!(matches!(all.remove("a", false), Err(Error::Uncommitted { files: 1 })));
    assert!(matches!(all.reset("a", None, false), Err(Error::Uncommitted { files: 1 })));
    assert_eq!(all.create("a", None, "op").unwrap(), made);
    assert_eq!(git(&made.directory, &["status", "--porcelain"]), "A  staged\n");
    let work = commit(&made.directory, "work");

    // Git forgets the entry; the branch and the claim remain.
    fs::remove_dir_all(&made.directory).unwrap();
    scene.git(&["worktree", "prune"]);
    assert!(all.list().unwrap()[0].missing);
    let state = all.state("a").unwrap();
    assert_eq!((state.head.unwrap().to_string(), state.unmerged), (work.clone(), 1));
    assert!(matches!(all.remove("a", false), Err(Error::Unmerged { commits: 1 })));
    scene.git(&["switch", "-q", "bowline/a"]);
    assert!(matches!(all.create("a", None, "op"), Err(Error::InUse(_))));
    assert!(matches!(all.remove("a", true), Err(Error::InUse(_))));
    scene.git(&["switch", "-q", "main"]);
    assert_eq!(all.create("a", None, "op").unwrap(), made);
    scene.assert_whole(&made);
    assert_eq!(git(&made.directory, &["rev-parse", "HEAD"]).trim(), work);
    fs::remove_dir_all(&made.directory).unwrap();
    all.reset("a", None, true).unwrap();
    scene.assert_whole(&made);
}

#[test]
fn what_is_not_registered_there_is_not_touched() {
    let replace: [fn(&Path, &Scene); 6] = [
        |at, _| write(&at.join("file"), "x"),
        |at, scene| {
            write(&at.join("file"), "x");
            let other = scene.repo().join(".git/worktrees/bowline-b");
            write(&at.join(".git"), &format!("gitdir: {}\n", other.display()));
        },
        |at, _| {
            fs::create_dir(at).unwrap();
            git(at, &["init", "-q"]);
        },
        |at, scene| symlink(scene.home().join("b"), at).unwrap(),
        |at, scene| {
            // Through a link even the right answer is wrong.
            let away = scene.temp.path().join("away");
            fs::rename(scene.temp.path().join("moved"), &away).unwrap();
            symlink(&away, at).unwrap();
        },
        |at, scene| {
            fs::create_dir(at).unwrap();
            let link = scene.temp.path().join("moved/.git");
            symlink(link, at.join(".git")).unwrap();
        },
    ];
    for (i, replace) in replace.into_iter().enumerate() {
        let scene = Scene::new();
        let all = scene.sandboxes();
        let made = all.create("a", None, "op").unwrap();
        scene.assert_whole(&all.create("b", None, "op").unwrap());
        fs::rename(&made.directory, scene.temp.path().join("moved")).unwrap();
        replace(&made.directory, &scene);
        let not_ours = |error: Error| matches!(error, Error::NotOurs(at) if at == made.directory);
        assert!(not_ours(all.remove("a", true).unwrap_err()), "{i}");
        assert!(not_ours(all.reset("a", None, true).unwrap_err()), "{i}");
        assert!(not_ours(all.state("a").unwrap_err()), "{i}");
        assert!(not_ours(all.create("a", None, "op").unwrap_err()), "{i}");
        assert!(fs::symlink_metadata(&made.directory).is_ok(), "{i}");
        let listed: Vec<bool> = all.list().unwrap().iter().map(|one| one.missing).collect();
        assert_eq!(listed, [true, false], "{i}");
        scene.assert_whole(&all.list().unwrap()[1]);
    }
}

#[test]
fn one_that_git_moved_away_stays_with_whoever_moved_it() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    all.create("a", None, "op").unwrap();
    let away = scene.temp.path().join("away");
    scene.git(&[
        "worktree",
        "move",
        scene.home().join("a").to_str().unwrap(),
        away.to_str().unwrap(),
    ]);
    assert!(matches!(all.remove("a", true), Err(Error::NotOurs(_))));
    assert!(matches!(all.create("a", None, "op"), Err(Error::NotOurs(_))));
    assert_eq!(all.list().unwrap(), []);
    assert_eq!(git(&away, &["status", "--porcelain"]), "");
}

#[test]
fn a_lock_is_respected() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    scene.git(&["worktree", "lock", "--reason", "on a stick", made.directory.to_str().unwrap()]);
    let said = |error| matches!(error, Error::Locked { reason } if reason == "on a stick");
    assert!(said(all.remove("a", true).unwrap_err()));
    assert!(said(all.reset("a", None, true).unwrap_err()));
    assert_eq!(all.state("a").unwrap().locked.as_deref(), Some("on a stick"));
    assert_eq!(all.create("a", None, "op").unwrap(), made);
    assert_eq!(all.state("a").unwrap().locked.as_deref(), Some("on a stick"));
    fs::rename(&made.directory, scene.temp.path().join("stick")).unwrap();
    assert!(said(all.create("a", None, "op").unwrap_err()));
    fs::rename(scene.temp.path().join("stick"), &made.directory).unwrap();
    scene.git(&["worktree", "unlock", made.directory.to_str().unwrap()]);

    fs::write(scene.entry("a").join("index.lock"), "").unwrap();
    assert!(matches!(all.reset("a", None, false), Err(Error::Locked { .. })));
    fs::remove_file(scene.entry("a").join("index.lock")).unwrap();
    assert!(all.remove("a", false).unwrap().existed);
}

#[test]
fn sealed_directories_can_be_removed() {
    let temp = TempDir::new().unwrap();
    let sealed = temp.path().join("cache/sealed");
    write(&sealed.join("module/file"), "x");
    let outside = temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, sealed.join("link")).unwrap();
    for directory in [sealed.join("module"), sealed.clone(), outside.clone()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o555)).unwrap();
    }
    unseal(&temp.path().join("cache")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&sealed), mode(&sealed.join("module")), mode(&outside)),
        (0o700, 0o700, 0o555)
    );
    wipe(&temp.path().join("cache")).unwrap();
    assert!(!temp.path().join("cache").exists() && outside.exists());
}

#[test]
fn an_index_that_was_deleted_hides_nothing() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    write(&made.directory.join("new"), "x");
    fs::remove_file(scene.entry("a").join("index")).unwrap();
    assert!(matches!(all.remove("a", false), Err(Error::Uncommitted { .. })));
    assert!(matches!(all.reset("a", None, false), Err(Error::Uncommitted { .. })));
    all.reset("a", None, true).unwrap();
    scene.assert_whole(&made);
}

#[test]
fn settings_of_a_sandbox_lead_it_nowhere_else() {
    let scene = Scene::new();
    let outside = scene.temp.path().join("outside");
    write(&outside.join("tracked"), "precious");
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    git(&made.directory, &["config", "extensions.worktreeConfig", "true"]);
    git(&made.directory, &["config", "--worktree", "core.worktree", outside.to_str().unwrap()]);
    write(&made.directory.join("tracked"), "changed");
    assert_eq!(all.state("a").unwrap().uncommitted, 1);
    all.reset("a", None, true).unwrap();
    assert_eq!(fs::read(made.directory.join("tracked")).unwrap(), b"one\n");
    all.remove("a", false).unwrap();
    assert_eq!(fs::read(outside.join("tracked")).unwrap(), b"precious");
}

#[test]
fn a_person_may_see_part_of_the_tree_and_tune_git() {
    let scene = Scene::new();
    scene.git(&["config", "feature.manyFiles", "true"]);
    scene.git(&["sparse-checkout", "set", "dir"]);
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    scene.assert_whole(&made);
    assert!(made.directory.join("tracked").exists());
    write(&made.directory.join("new"), "x");
    git(&made.directory, &["add", "new"]);
    assert_eq!(all.state("a").unwrap().uncommitted, 1);
    all.reset("a", None, true).unwrap();
    scene.assert_whole(&made);
}
