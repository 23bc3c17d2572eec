//! The server is killed while files are taken down and put back: nothing is lost, and nothing is half done.

use crate::files::{Yard, call};
use crate::support::*;
use bowline::wire::session_capnp::session;
use bowline::wire::worktree_capnp::worktree;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Image = BTreeMap<PathBuf, Vec<u8>>;

/// Every file below a directory, and what is in it.
fn image(top: &Path) -> Image {
    let (mut found, mut open) = (Image::new(), vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => drop(found.insert(path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    found
}

/// Numbers that only look random.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

const FILES: u64 = 300;

fn write(work: &Path, state: u64) {
    for n in 0..FILES {
        let path = work.join(format!("d{}/f{n}", n % 9));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match (n + state) % 7 {
            0 => drop(fs::remove_file(path)),
            _ => fs::write(path, format!("{n} in state {state}\n").repeat(40)).unwrap(),
        }
    }
}

async fn track(tree: &worktree::Client, name: &str) -> capnp::Result<String> {
    let mut request = tree.track_request();
    request.get().set_name(&call(name));
    let answer = request.send().promise.await?;
    answer.get()?.get_info()?.get_id()?.to_string().map_err(Into::into)
}

fn restore(
    tree: &worktree::Client,
    name: &str,
    snapshot: &str,
) -> impl Future<Output = capnp::Result<(u64, u64)>> + use<> {
    let mut request = tree.restore_request();
    request.get().set_name(&call(name));
    request.get().set_snapshot(snapshot);
    let promise = request.send().promise;
    async move {
        let answer = promise.await?;
        let report = answer.get()?.get_report()?;
        Ok((report.get_done(), report.get_conflict_count()))
    }
}

fn verify(data: &Path) {
    let verified = command(data).args(["verify", "--data"]).arg(data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

fn stores(data: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(data.join("snapshots")).unwrap();
    all.map(|entry| entry.unwrap().path().join("vault.git")).collect()
}

/// Any git finds nothing wrong with the store, and nothing is left lying about.
fn fsck(data: &Path) {
    for store in stores(data) {
        let out = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(&store)
            .args(["fsck", "--no-dangling", "--connectivity-only"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!text.contains("missing") && !text.contains("corrupt"), "{text}");
    }
}

/// Killed at any moment of a restore: afterwards the files are what they were, or what they were to be, and the same
/// call again makes them that.
#[test]
fn a_kill_in_the_middle_leaves_one_state_or_the_other() {
    local(async {
        let mut yard = Yard::new().await;
        let (work, data) = (yard.work(), yard.dir.path().join("data"));
        let mut states = Vec::new();
        for state in 0..3 {
            write(&work, state);
            let id = track(yard.worktree(), &format!("s{state}")).await.unwrap();
            states.push((id, image(&work)));
        }
        let mut random = Random(0x5eed);
        let (mut at, mut before, mut after) = (2, 0, 0);
        for round in 0..24 {
            let to = (at + 1 + random.below(2) as usize) % 3;
            let name = format!("r{round}");
            let call = restore(yard.worktree(), &name, &states[to].0);
            let running = tokio::task::spawn_local(call);
            tokio::time::sleep(Duration::from_micros(random.below(40_000 * (round + 1)))).await;
            yard.crash().await;
            running.abort();
            // Whoever asks for it again, or for anything else, finds it settled.
            let mut request = yard.worktree().stamp_request();
            request.get().init_paths(0);
            request.send().promise.await.unwrap();
            let found = image(&work);
            let leftover = found.keys().find(|path| path.to_string_lossy().contains(".bowline-"));
            assert_eq!(leftover, None, "round {round}");
            if found == states[to].1 {
                after += 1;
            } else {
                assert!(found == states[at].1, "round {round}: neither the one nor the other");
                before += 1;
            }
            let (_, conflicts) = restore(yard.worktree(), &name, &states[to].0).await.unwrap();
            assert_eq!(conflicts, 0, "round {round}");
            assert!(image(&work) == states[to].1, "round {round}: the same call again");
            at = to;
        }
        assert!(before > 0 && after > 0, "always the same moment: {before} and {after}");
        fsck(&data);
        verify(&data);
    });
}

/// The same while a tree is taken down, and while packs are put together.
#[test]
fn a_kill_while_a_tree_is_taken_down_loses_nothing_acknowledged() {
    local(async {
        let mut yard = Yard::new().await;
        let (work, data) = (yard.work(), yard.dir.path().join("data"));
        let mut random = Random(0xfeed);
        let mut acked: Vec<(String, Image)> = Vec::new();
        let mut cut = 0;
        for round in 0..24 {
            write(&work, round);
            let now = image(&work);
            let tree = yard.worktree().clone();
            let name = format!("t{round}");
            let running = tokio::task::spawn_local(async move { track(&tree, &name).await });
            tokio::time::sleep(Duration::from_micros(random.below(40_000))).await;
            yard.crash().await;
            let id = match running.await.unwrap() {
                Ok(id) => id,
                Err(_) => {
                    cut += 1;
                    track(yard.worktree(), &format!("t{round}")).await.unwrap()
                }
            };
            acked.push((id, now));
        }
        assert!(cut > 0, "never in the middle");
        for (id, wanted) in acked.iter().rev().step_by(5) {
            restore(yard.worktree(), &format!("back to {id}"), id).await.unwrap();
            assert!(image(&work) == *wanted, "{id}");
        }
        fsck(&data);
        verify(&data);
    });
}

async fn shown(session: &session::Client) -> u32 {
    let answer = session.messages_request().send().promise.await.unwrap();
    answer.get().unwrap().get_messages().unwrap().len()
}

/// A conversation and its files: after a crash both are as they were, or both as they were to be.
#[test]
fn a_conversation_and_its_files_survive_a_kill_together() {
    local(async {
        let mut yard = Yard::new().await;
        let work = yard.work();
        write(&work, 0);
        yard.tell("turn A t1\nsnap t1 a1").await;
        let first = image(&work);
        write(&work, 1);
        yard.tell("snap t1 a2\nfinish A t1\nsummary A").await;
        let second = image(&work);
        let mut random = Random(0xbeef);
        let (mut together, mut reverted) = ([0, 0], false);
        for round in 0..20 {
            let session = yard.known_session("A");
            let mut request = session.revert_request();
            request.get().set_name(&call(&format!("v{round}")));
            match reverted {
                true => request.get().init_head().set_end(()),
                false => request.get().init_head().set_undo(()),
            }
            let running = tokio::task::spawn_local(request.send().promise);
            tokio::time::sleep(Duration::from_micros(random.below(50_000 * (round + 1)))).await;
            yard.crash().await;
            running.abort();
            let mut request = yard.worktree().stamp_request();
            request.get().init_paths(0);
            request.send().promise.await.unwrap();
            let messages = shown(&yard.known_session("A")).await;
            let found = image(&work);
            match messages {
                0 => assert!(found == first, "round {round}: the conversation without its files"),
                _ => {
                    assert!(found == second, "round {round}: the files without their conversation")
                }
            }
            together[usize::from((messages == 0) != reverted)] += 1;
            reverted = messages == 0;
        }
        assert!(together[0] > 0 && together[1] > 0, "always the same moment: {together:?}");
        verify(&yard.dir.path().join("data"));
    });
}

/// What is damaged is said to be, and nothing is changed by trying.
#[test]
fn a_store_that_is_damaged_is_told_and_changes_nothing() {
    local(async {
        let mut yard = Yard::new().await;
        let (work, data) = (yard.work(), yard.dir.path().join("data"));
        write(&work, 0);
        let id = track(yard.worktree(), "s0").await.unwrap();
        write(&work, 1);
        yard.crash().await;
        for store in stores(&data) {
            for file in fs::read_dir(store.join("objects/pack")).unwrap() {
                let path = file.unwrap().path();
                let mut bytes = fs::read(&path).unwrap();
                let half = bytes.len() / 2;
                bytes[20..half].fill(0);
                fs::write(path, bytes).unwrap();
            }
        }
        let before = image(&work);
        let error = restore(yard.worktree(), "r", &id).await.unwrap_err();
        assert_eq!(code(&error), "snapshot-store-failed", "{error}");
        assert!(image(&work) == before);
    });
}
