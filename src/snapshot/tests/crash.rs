//! A kill at any time: nothing is lost, what was begun is done or undone at the next start, and nothing is left over.

use super::*;
use crate::snapshot::collect::begin;
use crate::snapshot::pack::Kind;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(super) const PLACE: &str = "BOWLINE_TEST_SNAPSHOT_PLACE";

/// Starts the body of a test in a process of its own, which says a line for each thing it does.
pub(super) fn run_as(
    enter: &[&str],
    body: &str,
    dir: &Path,
) -> (Child, impl Iterator<Item = String> + use<>) {
    let module = module_path!().split_once("::").unwrap().1.strip_suffix("crash").unwrap();
    let program = std::env::current_exe().unwrap();
    let enter = enter.iter().map(OsStr::new).chain([program.as_os_str()]).collect::<Vec<_>>();
    let mut child = Command::new(enter[0])
        .args(&enter[1..])
        .args([&format!("{module}{body}"), "--exact", "--ignored", "--nocapture"])
        .env(PLACE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    (child, lines.filter(|line| line.starts_with("did")))
}

fn start(body: &str, dir: &Path) -> (Child, impl Iterator<Item = String> + use<>) {
    run_as(&[], &format!("crash::{body}"), dir)
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Kills it after some of the things it does, or somewhere in the middle of one.
fn kill((mut child, mut did): (Child, impl Iterator<Item = String>), dice: &mut Dice, most: u64) {
    for _ in 0..=dice.below(most) {
        assert!(did.next().is_some(), "it ended by itself: {:?}", child.try_wait());
    }
    let (since, wait) = (Instant::now(), Duration::from_micros(dice.below(6_000)));
    while since.elapsed() < wait {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A project somebody else is at work in, too.
fn world_in(dir: &Path) -> World {
    let vault = Arc::new(Vault::open(&dir.join("home/vault.git")).unwrap());
    let policy =
        Policy { file_bytes_max: 1 << 30, files_max: 1_000_000, own: Vec::new(), now_ns: real_ns };
    // Only the links go with it.
    let link = tempfile::tempdir().unwrap();
    for name in ["root", "home", "trees", "decided", "probe"] {
        symlink(dir.join(name), link.path().join(name)).unwrap();
    }
    World { dir: link, vault, threads: threads(), policy, watching: false }
}

fn ids(bytes: &[u8]) -> Vec<ObjectId> {
    bytes.chunks(20).map(|id| ObjectId(id.try_into().unwrap())).collect()
}

fn hex(name: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(name)
}

/// Settles what was left, as the next start would; the tree it comes to.
fn settle(world: &World) -> ObjectId {
    let decided = world.dir.path().join("decided");
    let mut ground = world.ground();
    let is_decided = |name: &[u8; 16]| Ok(decided.join(hex(name)).exists());
    for (plan, applied) in ground.settle(is_decided).unwrap() {
        assert_eq!((&*applied.conflicts, &*applied.kept), (&[][..], &[][..]), "{:?}", plan.name);
    }
    track(&mut ground).tree
}

#[test]
#[ignore = "the body of another test"]
fn to_and_fro() {
    let Some(dir) = std::env::var_os(PLACE) else { return };
    let world = world_in(Path::new(&dir));
    let trees = ids(&fs::read(world.dir.path().join("trees")).unwrap());
    let here = settle(&world);
    let mut at = trees.iter().position(|tree| *tree == here).unwrap();
    let mut ground = world.ground();
    println!("\ndid start");
    for n in 0.. {
        let next = (at + 1 + n % 2) % trees.len();
        let steps = steps(&ground, trees[at], trees[next]);
        let mut plan = plan(steps);
        plan.name[8..].copy_from_slice(&plan.at_ns.to_le_bytes());
        let sides = ground.trees_of(ground.vault().batch(), &plan.steps).unwrap();
        let applied = ground.apply(&plan, &Progress::default()).unwrap();
        assert_eq!(applied.conflicts, []);
        println!("did apply");
        if n % 3 == 2 {
            assert_eq!(ground.undo(&plan, applied.done).unwrap().conflicts, []);
            println!("did undo");
        } else {
            fs::write(world.dir.path().join("decided").join(hex(&plan.name)), "").unwrap();
            println!("did decide");
            ground.sync().unwrap();
            at = next;
            println!("did sync");
        }
        drop(sides);
        assert_eq!(track(&mut ground).tree, trees[at]);
        ground.save().unwrap();
        println!("did track");
        if n % 4 == 3 {
            let batch = world.vault.batch();
            batch.put(Kind::Blob, format!("nobody wants {}", real_ns()).as_bytes()).unwrap();
            batch.finish().unwrap();
            world.vault.keep(&trees).unwrap();
            let roots = || Ok(trees.iter().copied().collect());
            begin(&world.vault, roots).unwrap().finish(roots).unwrap();
            println!("did collect");
        }
    }
}

/// Three states in which everything is something else.
fn three_states(world: &World) -> Vec<(ObjectId, Image)> {
    let mut ground = world.ground();
    let states = (0..3).map(|state| {
        fs::remove_dir_all(world.root()).unwrap();
        fs::create_dir(world.root()).unwrap();
        // The directory is another one now.
        ground = world.ground();
        for n in 0..12 {
            match (n + state) % 4 {
                0 => world.write(&format!("dir/{n}"), format!("{state} {n} ").repeat(n * 300)),
                1 => world.write(&format!("dir/{n}/deep/file"), format!("{state}")),
                2 => {
                    fs::create_dir_all(world.path("dir")).unwrap();
                    symlink(format!("{state}"), world.path(&format!("dir/{n}"))).unwrap();
                }
                _ => {}
            }
            world.write(&format!("file{n}"), format!("{}", state * (n % 2)));
        }
        chmod(&world.path("file3"), 0o600 + state as u32);
        fs::create_dir(world.path(&format!("empty{state}"))).unwrap();
        let tree = track(&mut ground).tree;
        world.vault.keep(&[tree]).unwrap();
        (tree, world.image())
    });
    states.collect()
}

#[test]
fn a_kill_at_any_time_loses_nothing() {
    let world = World::new();
    let dir = world.dir.path();
    fs::create_dir(dir.join("decided")).unwrap();
    let states = three_states(&world);
    let trees: Vec<u8> = states.iter().flat_map(|(tree, _)| tree.0).collect();
    fs::write(dir.join("trees"), trees).unwrap();
    let mut dice = Dice(6);
    for round in 0..40 {
        kill(start("to_and_fro", dir), &mut dice, 24);
        let plans = Plan::left_behind(&world.home()).unwrap();
        let after = world_in(dir);
        let tree = settle(&after);
        let found = states.iter().find(|(state, _)| *state == tree);
        let Some((_, image)) = found else { panic!("{round}: something in between: {plans:?}") };
        same(&after.image(), image, &format!("{round}"));
        assert_eq!(leftovers(dir), [""; 0], "{round}");
        store_is_sound(&after.vault);
        for (state, _) in &states {
            assert!(references(&after.vault).contains(&state.to_string()));
        }
        assert_eq!(after.scratch().tree, tree);
    }
}

#[test]
#[ignore = "the body of another test"]
fn large_files() {
    let Some(dir) = std::env::var_os(PLACE) else { return };
    let world = world_in(Path::new(&dir));
    let mut ground = world.ground();
    println!("\ndid start");
    for n in 0u32.. {
        let bytes: Vec<u8> =
            (n..n + (5 << 20)).flat_map(|it| (it ^ (it >> 7)).to_le_bytes()).collect();
        world.write("large", bytes);
        let tree = track(&mut ground).tree;
        println!("did track");
        world.write("large", "small");
        back(&mut ground, tree);
        println!("did apply");
    }
}

#[test]
fn a_kill_while_a_large_file_is_written_leaves_nothing() {
    let world = World::new();
    let mut dice = Dice(1);
    for round in 0..8 {
        let (mut child, mut did) = start("large_files", world.dir.path());
        (0..1 + dice.below(2)).for_each(|_| drop(did.next()));
        let (since, wait) = (Instant::now(), Duration::from_millis(dice.below(300)));
        while since.elapsed() < wait {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let after = world_in(world.dir.path());
        let settled = after.ground().settle(|_| Ok(round % 2 == 0)).unwrap();
        assert!(settled.iter().all(|(_, applied)| applied.kept.is_empty()), "{settled:?}");
        assert_eq!(leftovers(world.dir.path()), [""; 0], "{round}");
        store_is_sound(&after.vault);
    }
}
