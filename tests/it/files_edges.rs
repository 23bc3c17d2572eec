//! The edges of work trees: every refusal, caveats, leases, sandboxes, bounds.

use crate::files::{Yard, call};
use crate::grants::{only, revoke, save};
use crate::support::*;
use bowline::wire::grant_capnp::Right;
use bowline::wire::worktree_capnp::{SkipReason, snapshot, watcher, worktree};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::rc::Rc;

async fn track(tree: &worktree::Client, name: &str) -> capnp::Result<(snapshot::Client, String)> {
    let mut request = tree.track_request();
    request.get().set_name(&call(name));
    let answer = request.send().promise.await?;
    let id = answer.get()?.get_info()?.get_id()?.to_string()?;
    Ok((answer.get()?.get_snapshot()?, id))
}

fn read(
    of: &snapshot::Client,
    path: &[u8],
) -> impl Future<Output = capnp::Result<Vec<u8>>> + use<> {
    let mut request = of.read_request();
    request.get().set_path(path);
    let promise = request.send().promise;
    async move { Ok(promise.await?.get()?.get_data()?.to_vec()) }
}

async fn hears<T>(code_wanted: &str, answer: impl Future<Output = capnp::Result<T>>) {
    match answer.await {
        Ok(_) => panic!("it worked, and not {code_wanted}"),
        Err(error) => assert_eq!(code(&error), code_wanted, "{error}"),
    }
}

#[test]
fn what_cannot_be_is_refused_under_its_code() {
    local(async {
        let yard = Yard::with(&["--limit", "worktree_files_max=5"]).await;
        let (tree, work) = (yard.worktree(), yard.work());
        fs::write(work.join("a"), "one").unwrap();
        let (taken, id) = track(tree, "s1").await.unwrap();

        for bad in [&b"/etc/passwd"[..], b"..", b"a/../a", b"./a", b"a//b", b"", b"a\0", b".git/x"]
        {
            hears("path-malformed", read(&taken, bad)).await;
            let mut request = tree.lease_request();
            request.get().set_path(bad);
            hears("path-malformed", request.send().promise).await;
        }
        hears("file-not-found", read(&taken, b"b")).await;
        let mut request = tree.snapshot_request();
        request.get().set_id("snp_none");
        hears("snapshot-not-found", request.send().promise).await;
        let mut request = tree.track_request();
        request.get().set_name(b"short");
        hears("op-header-malformed", request.send().promise).await;

        // Elsewhere.
        let mut request = yard.project().worktree_request();
        request.get().set_directory("/nowhere/at/all");
        // Whether it is there, nobody learns who may not go there.
        hears("worktree-not-allowed", request.send().promise).await;
        let mut request = yard.project().worktree_request();
        request.get().set_directory("/usr");
        hears("worktree-not-allowed", request.send().promise).await;
        symlink("/usr", work.join("out")).unwrap();
        let mut request = yard.project().worktree_request();
        request.get().set_directory(work.join("out").to_str().unwrap());
        hears("worktree-not-allowed", request.send().promise).await;
        fs::remove_file(work.join("out")).unwrap();
        fs::create_dir(work.join("sub")).unwrap();
        let mut request = yard.project().worktree_request();
        request.get().set_directory(work.join("sub").to_str().unwrap());
        hears("worktree-not-found", request.send().promise).await;
        let mut request = yard.project().opened_worktree_request();
        request.get().set_id("wrk_none");
        hears("worktree-not-found", request.send().promise).await;

        // Stamps.
        let mut request = tree.stamp_request();
        let mut list = request.get().init_paths(2);
        list.set(0, b"a");
        list.set(1, b"none");
        let stamps = request.send().promise.await.unwrap();
        let stamps = stamps.get().unwrap().get_stamps().unwrap();
        let unchanged = || {
            let mut request = tree.assert_unchanged_request();
            request.get().set_stamps(stamps).unwrap();
            request.send().promise
        };
        unchanged().await.unwrap();
        fs::write(work.join("none"), "").unwrap();
        hears("file-changed", unchanged()).await;
        fs::remove_file(work.join("none")).unwrap();
        unchanged().await.unwrap();
        fs::write(work.join("a"), "two").unwrap();
        hears("file-changed", unchanged()).await;

        // A name is for one call.
        let restore = |paths: &[u8]| {
            let mut request = tree.restore_request();
            request.get().set_name(&call("again"));
            request.get().set_snapshot(&id);
            request.get().init_wish().init_paths(1).set(0, paths);
            request.send().promise
        };
        restore(b"none").await.unwrap();
        restore(b"none").await.unwrap();
        hears("op-reused", restore(b"a")).await;

        // Leases.
        let lease = |holder: &str, lease_ms| {
            let mut request = tree.lease_request();
            request.get().set_path(b"a");
            request.get().set_holder(holder);
            request.get().set_lease_ms(lease_ms);
            request.send().promise
        };
        hears("lease-malformed", lease("one", 1)).await;
        lease("one", 60_000).await.unwrap();
        lease("one", 60_000).await.unwrap();
        hears("path-leased", lease("two", 60_000)).await;
        let mut request = tree.release_request();
        request.get().set_path(b"a");
        request.get().set_holder("one");
        assert!(request.send().promise.await.unwrap().get().unwrap().get_existed());
        lease("two", 60_000).await.unwrap();
        let leases = tree.leases_request().send().promise.await.unwrap();
        assert_eq!(leases.get().unwrap().get_leases().unwrap().len(), 1);

        // Too much.
        for n in 0..6 {
            fs::write(work.join(format!("f{n}")), "x").unwrap();
        }
        hears("worktree-too-large", track(tree, "s2")).await;
        (0..6).for_each(|n| fs::remove_file(work.join(format!("f{n}"))).unwrap());
        track(tree, "s2").await.unwrap();

        // A snapshot goes when it is asked to, and once.
        let remove = || {
            let mut request = tree.remove_snapshot_request();
            request.get().set_id(&id);
            request.send().promise
        };
        assert!(remove().await.unwrap().get().unwrap().get_existed());
        assert!(!remove().await.unwrap().get().unwrap().get_existed());
        hears("snapshot-not-found", read(&taken, b"a")).await;

        // And the directory itself.
        fs::rename(&work, yard.dir.path().join("moved")).unwrap();
        let (fresh, name) = (yard.project().worktree_request(), "s3");
        hears("worktree-unreadable", fresh.send().promise).await;
        let _ = name;
    });
}

/// It is bounded, and what is not wanted any more makes room.
#[test]
fn there_is_a_budget_and_what_is_not_wanted_makes_room() {
    local(async {
        let yard = Yard::with(&["--limit", "snapshot_bytes_max=300000"]).await;
        let (tree, work) = (yard.worktree(), yard.work());
        let noise = |seed: u64| -> Vec<u8> {
            let mut x = seed | 1;
            let step = |x: &mut u64| {
                *x ^= *x << 13;
                *x ^= *x >> 7;
                *x ^= *x << 17;
                *x as u8
            };
            (0..120_000).map(|_| step(&mut x)).collect()
        };
        let mut taken = Vec::new();
        for n in 1..=3 {
            fs::write(work.join("a"), noise(n * 11)).unwrap();
            taken.push(track(tree, &format!("s{n}")).await.unwrap().1);
        }
        fs::write(work.join("a"), noise(99)).unwrap();
        hears("snapshot-budget", track(tree, "s4")).await;
        // The last state of a work tree in use stays, and so does what another one is told by.
        for id in &taken {
            let mut request = tree.remove_snapshot_request();
            request.get().set_id(id);
            request.send().promise.await.unwrap();
        }
        track(tree, "s4").await.unwrap();
        let info = yard.project().storage_request().send().promise.await.unwrap();
        let bytes = info.get().unwrap().get_bytes();
        assert!(bytes < 300_000, "{bytes}");
        assert_eq!(info.get().unwrap().get_snapshots(), 1);
    });
}

/// What is handed on for some paths is good for those and no others.
#[test]
fn paths_are_a_caveat_of_everything_about_files() {
    local(async {
        let yard = Yard::new().await;
        let (tree, work) = (yard.worktree(), yard.work());
        for path in ["mine/a", "theirs/b"] {
            fs::create_dir_all(work.join(path).parent().unwrap()).unwrap();
            fs::write(work.join(path), "one").unwrap();
        }
        track(tree, "s1").await.unwrap();
        let mut producer = Producer::new();
        let saved = save(tree, &mut producer, |mut narrowing| {
            only(&[Right::Read, Right::Snapshot, Right::Restore])(narrowing.reborrow());
            narrowing.init_paths(1).set(0, b"mine");
        });
        let (sturdy_ref, grant) = saved.await.unwrap();
        let narrow: worktree::Client = redeem(&connect(yard.server()).await, &sturdy_ref);
        for path in ["mine/a", "theirs/b", "mine/new", "theirs/new"] {
            fs::write(work.join(path), "two").unwrap();
        }
        let (taken, _) = track(&narrow, "s2").await.unwrap();
        assert_eq!(read(&taken, b"mine/a").await.unwrap(), b"two");
        hears("file-not-found", read(&taken, b"theirs/b")).await;
        let files = taken.files_request().send().promise.await.unwrap();
        let files = files.get().unwrap().get_files().unwrap();
        assert!(files.iter().all(|file| file.get_path().unwrap().starts_with(b"mine")));
        assert_eq!(files.len(), 3, "the directory and two files");
        let patch = taken.patch_request().send().promise.await.unwrap();
        assert_eq!(patch.get().unwrap().get_changes().unwrap().len(), 2);

        let mut request = narrow.restore_request();
        request.get().set_name(&call("r1"));
        let (_, first) = track(tree, "s1").await.unwrap();
        request.get().set_snapshot(&first);
        let answer = request.send().promise.await.unwrap();
        let report = answer.get().unwrap().get_report().unwrap();
        assert_eq!(report.get_done(), 2);
        assert_eq!(report.get_conflicts().unwrap().len(), 0, "what lies elsewhere is not named");
        assert_eq!(fs::read(work.join("mine/a")).unwrap(), b"one");
        assert_eq!(fs::read(work.join("theirs/b")).unwrap(), b"two");

        // And when it is taken back, a snapshot that was reached through it is, too.
        revoke(tree, &mut producer, &grant).await.unwrap();
        hears("revoked", read(&taken, b"mine/a")).await;
        hears("revoked", track(&narrow, "s3")).await;
    });
}

/// N7, N13, N14: what is different, as a list, as text that git takes, and file by file.
#[test]
fn what_is_different_is_told_in_three_ways() {
    local(async {
        let yard = Yard::new().await;
        let (tree, work) = (yard.worktree(), yard.work());
        let odd = "odd \"name\"\twith\nlines \u{e9}";
        let lines = |from: usize, to: usize| -> String {
            (from..to).map(|n| format!("line {n}\n")).collect()
        };
        fs::create_dir_all(work.join("d")).unwrap();
        fs::write(work.join("d/text"), lines(0, 40)).unwrap();
        fs::write(work.join("gone"), "one\n").unwrap();
        fs::write(work.join(odd), "one\n").unwrap();
        fs::write(work.join("binary"), [0, 1, 2]).unwrap();
        let (_, first) = track(tree, "s1").await.unwrap();
        let copy = yard.dir.path().join("copy");
        assert!(Command::new("cp").arg("-a").arg(&work).arg(&copy).status().unwrap().success());
        fs::write(work.join("d/text"), lines(0, 20) + "new\n" + &lines(20, 40)).unwrap();
        fs::remove_file(work.join("gone")).unwrap();
        fs::write(work.join(odd), "two\n").unwrap();
        fs::write(work.join("new"), "without an end").unwrap();
        let (second, _) = track(tree, "s2").await.unwrap();

        let mut request = second.diff_request();
        request.get().set_context(3);
        let answer = request.send().promise.await.unwrap();
        let text = answer.get().unwrap().get_text().unwrap();
        fs::write(yard.dir.path().join("patch"), text).unwrap();
        git(&copy, &["init", "-q"]);
        git(&copy, &["apply", "../patch"]);
        for path in ["d/text", odd, "new"] {
            assert_eq!(fs::read(copy.join(path)).unwrap(), fs::read(work.join(path)).unwrap());
        }
        assert!(!copy.join("gone").exists());

        // A page at a time, against a snapshot that is named.
        fs::write(work.join("binary"), [0, 1, 3]).unwrap();
        let (third, _) = track(tree, "s3").await.unwrap();
        let (mut after, mut found) = (Vec::new(), Vec::new());
        loop {
            let mut request = third.diff_full_request();
            request.get().set_since(&first);
            request.get().set_after(&after);
            request.get().set_limit(2);
            let answer = request.send().promise.await.unwrap();
            let answer = answer.get().unwrap();
            for change in answer.get_changes().unwrap() {
                let path = String::from_utf8(change.get_path().unwrap().to_vec()).unwrap();
                let counts = (change.get_additions(), change.get_deletions());
                found.push((
                    path,
                    change.get_status().unwrap() as u16,
                    counts,
                    change.get_binary(),
                ));
            }
            after = answer.get_next().unwrap().to_vec();
            if !answer.get_more() {
                break;
            }
        }
        let wanted = [
            ("binary", 2, (0, 0), true),
            ("d/text", 2, (1, 0), false),
            ("gone", 1, (0, 1), false),
            ("new", 0, (1, 0), false),
            (odd, 2, (1, 1), false),
        ];
        let wanted: Vec<_> =
            wanted.into_iter().map(|it| (it.0.to_owned(), it.1, it.2, it.3)).collect();
        assert_eq!(found, wanted);
        let patch = third.patch_request().send().promise.await.unwrap();
        assert_eq!(patch.get().unwrap().get_changes().unwrap().len(), 1, "since the one before");
    });
}

/// W4, W13: what is not taken is told, and kept where something is put in its place.
#[test]
fn what_is_not_taken_is_told() {
    local(async {
        let yard = Yard::with(&["--limit", "snapshot_file_bytes_max=1000"]).await;
        let (tree, work) = (yard.worktree(), yard.work());
        fs::write(work.join(".gitignore"), "*.log\n").unwrap();
        fs::write(work.join("noise.log"), "x").unwrap();
        fs::write(work.join("large"), vec![b'x'; 2000]).unwrap();
        let (taken, _) = track(tree, "s1").await.unwrap();
        let answer = tree.skipped_request().send().promise.await.unwrap();
        let skipped = answer.get().unwrap().get_files().unwrap();
        let found: Vec<_> = skipped
            .iter()
            .map(|it| (it.get_path().unwrap().to_vec(), it.get_reason().unwrap() as u16))
            .collect();
        let wanted = [
            (b"large".to_vec(), SkipReason::TooLarge as u16),
            (b"noise.log".to_vec(), SkipReason::Ignored as u16),
        ];
        assert_eq!(found, wanted);
        hears("file-not-found", read(&taken, b"large")).await;
        // Unless it is asked for.
        let mut request = tree.track_request();
        request.get().set_name(&call("s2"));
        request.get().init_wish().set_large(true);
        let answer = request.send().promise.await.unwrap();
        let whole = answer.get().unwrap().get_snapshot().unwrap();
        assert_eq!(read(&whole, b"large").await.unwrap().len(), 2000);
    });
}

/// Says stop at once.
struct Enough;

impl watcher::Server for Enough {
    async fn progress(
        self: Rc<Self>,
        _: watcher::ProgressParams,
        mut results: watcher::ProgressResults,
    ) -> capnp::Result<()> {
        results.get().set_stop(true);
        Ok(())
    }
}

#[test]
fn a_call_that_takes_its_time_can_be_stopped() {
    local(async {
        let yard = Yard::new().await;
        let (tree, work) = (yard.worktree(), yard.work());
        // So much that it takes longer than a look at how far it is.
        let bytes: Vec<u8> =
            (0..4_000_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
        let mut n = 0;
        let (mut cancelled, mut whole) = (0, 0);
        while cancelled == 0 && n < 60 {
            for _ in 0..12 {
                n += 1;
                let mut own = bytes.clone();
                own[..4].copy_from_slice(&(n as u32).to_le_bytes());
                own.truncate(9 << 20);
                fs::write(work.join(format!("f{n}")), own).unwrap();
            }
            let mut request = tree.track_request();
            request.get().set_name(&call(&format!("t{n}")));
            request.get().set_watcher(capnp_rpc::new_client(Enough));
            match request.send().promise.await {
                Ok(_) => whole += 1,
                Err(error) => {
                    assert_eq!(code(&error), "cancelled");
                    cancelled += 1;
                }
            }
        }
        assert!(cancelled > 0, "{whole} were too quick");
        // Nothing is half done: the same name takes it whole.
        track(tree, &format!("t{n}")).await.unwrap();
    });
}

fn git(dir: &std::path::Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// W14: sandboxes come and go, and no commit is lost in silence.
#[test]
fn w14_sandboxes_never_lose_a_commit_in_silence() {
    local(async {
        let yard = Yard::new().await;
        let work = yard.work();
        let create = |name: &str| {
            let mut request = yard.project().create_sandbox_request();
            request.get().set_name(&call(name));
            request.get().set_sandbox(name);
            request.send().promise
        };
        hears("sandbox-malformed", create("Fix it")).await;
        git(&work, &["init", "-q"]);
        fs::write(work.join("a"), "one").unwrap();
        git(&work, &["add", "."]);
        git(&work, &["commit", "-qm", "one"]);

        let made = create("Fix it").await.unwrap();
        let info = made.get().unwrap().get_sandbox().unwrap();
        assert_eq!(info.get_name().unwrap(), "fix-it");
        assert_eq!(info.get_branch().unwrap(), "bowline/fix-it");
        let directory = info.get_directory().unwrap().to_string().unwrap();
        let directory = std::path::Path::new(&directory);
        assert_eq!(fs::read(directory.join("a")).unwrap(), b"one");
        create("Fix it").await.unwrap();
        let mut request = yard.project().create_sandbox_request();
        request.get().set_name(&call("another call"));
        request.get().set_sandbox("fix-it");
        hears("sandbox-exists", request.send().promise).await;

        // It is a work tree like any other.
        let tree = made.get().unwrap().get_worktree().unwrap();
        track(&tree, "s1").await.unwrap();
        fs::write(directory.join("a"), "two").unwrap();
        let remove = |discard| {
            let mut request = yard.project().remove_sandbox_request();
            request.get().set_sandbox("fix-it");
            request.get().set_discard(discard);
            request.send().promise
        };
        hears("sandbox-unmerged", remove(false)).await;
        git(directory, &["commit", "-qam", "two"]);
        let two = git(directory, &["rev-parse", "HEAD"]);
        hears("sandbox-unmerged", remove(false)).await;
        let mut request = yard.project().reset_sandbox_request();
        request.get().set_sandbox("fix-it");
        hears("sandbox-unmerged", request.send().promise).await;
        let listed = yard.project().sandboxes_request().send().promise.await.unwrap();
        assert_eq!(listed.get().unwrap().get_sandboxes().unwrap().get(0).get_unmerged(), 1);

        fs::write(directory.join("b"), "not committed").unwrap();
        let removed = remove(true).await.unwrap();
        let kept = removed.get().unwrap().get_kept().unwrap();
        assert_eq!(kept.get(0).get_commit().unwrap(), two.as_str());
        let reference = kept.get(0).get_reference().unwrap().to_string().unwrap();
        git(&work, &["gc", "-q", "--prune=now"]);
        assert_eq!(git(&work, &["rev-parse", &reference]), two);
        assert!(!directory.exists());
        // And what was not committed is in a snapshot.
        let mut request = yard.project().worktrees_request();
        request.get().init_page().set_newest_first(true);
        let trees = request.send().promise.await.unwrap();
        let gone = trees.get().unwrap().get_worktrees().unwrap().get(0);
        assert_eq!(gone.get_sandbox().unwrap(), "fix-it");
        let mut request = tree.snapshots_request();
        request.get().init_page().set_newest_first(true);
        let taken = request.send().promise.await.unwrap();
        let last = taken.get().unwrap().get_snapshots().unwrap().get(0);
        let mut request = tree.snapshot_request();
        request.get().set_id(last.get_id().unwrap());
        let last = request.send().pipeline.get_snapshot();
        assert_eq!(read(&last, b"b").await.unwrap(), b"not committed");
        assert!(!remove(false).await.unwrap().get().unwrap().get_existed());
        let mut request = yard.project().reset_sandbox_request();
        request.get().set_sandbox("fix-it");
        hears("sandbox-not-found", request.send().promise).await;
    });
}
