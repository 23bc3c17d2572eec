//! One work tree in use: the directory, what is known of it, and the store its content goes to.
//!
//! Blocking, and for one caller at a time: whoever holds it decides the order in which things happen to its files.

use super::beneath::Root;
use super::partial::sides;
use super::restore::{self, Applied, Plan, Restorer, Step};
use super::rules::global_excludes;
use super::state::{Node, Skipped, State, Totals};
use super::tree::Held;
use super::unknown;
use super::vault::{self, Pin, Vault};
use super::walk::{self, Error, OuterRules, Policy, Progress, Walk, walk};
use super::watch::{Heard, Watch};
use crate::limits::{RULES_FILE_BYTES_MAX, UNWATCHED_NS_MAX};
use crate::model::ids::ObjectId;
use rustix::fs::{Mode as FileMode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far down a walk may go on the stack of whoever asks for it.
const STEPS_OWN_STACK_MAX: usize = 32;

/// A work tree in use.
pub struct Ground {
    root: Root,
    home: PathBuf,
    vault: Arc<Vault>,
    policy: Policy,
    threads: Arc<rayon::ThreadPool>,
    state: Option<State>,
    /// Keeps the tree `state` speaks of: what has not changed is not written again.
    known: Option<Pin>,
    /// What was not taken the last time, kept as long as this is.
    unknown: Option<(Option<ObjectId>, Option<Pin>)>,
    watching: bool,
    watch: Option<Watch>,
    /// Where the repository keeps rules that are not part of it.
    exclude: Option<PathBuf>,
    global: Option<PathBuf>,
    /// When everything was last looked at.
    full_ns: Option<i64>,
    unsaved: bool,
    /// Plans of which not everything is on disk yet.
    unsynced: Vec<Plan>,
}

/// Where a work tree is, and what goes with it.
pub struct Place<'a> {
    /// The directory.
    pub root: Root,
    /// Where the server keeps what it knows of it.
    pub home: &'a Path,
    /// Where content goes.
    pub vault: Arc<Vault>,
    /// Who looks through it.
    pub threads: Arc<rayon::ThreadPool>,
    /// Whether to be told by the kernel where something happens.
    pub watching: bool,
}

/// What somebody wants taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Files however large they are.
    pub large: bool,
    /// Look at everything, whatever is known.
    pub full: bool,
}

/// A state of a work tree that was taken down. It is kept as long as `pin` is.
pub struct Tracked {
    /// The tree.
    pub tree: ObjectId,
    /// What there was besides, and was not taken: see [`unknown`].
    pub unknown: Option<ObjectId>,
    /// What there is.
    pub totals: Totals,
    /// What that took up on disk.
    pub bytes: u64,
    /// Whether everything was looked at.
    pub full: bool,
    /// Keeps it.
    pub pin: Pin,
}

/// A plan as two trees, that hold only the paths it is about. They are kept as long as `pins` are.
pub struct Sides {
    /// What stood there.
    pub before: ObjectId,
    /// What is to stand there.
    pub after: ObjectId,
    /// Keeps them.
    pub pins: [Pin; 2],
}

impl Ground {
    /// Begins to use a work tree.
    pub fn open(place: Place<'_>, policy: Policy) -> Result<Self, vault::Error> {
        std::fs::create_dir_all(place.home)?;
        vault::clear(&[place.home])?;
        let Place { root, home, vault, threads, watching } = place;
        let mut ground = Self {
            root,
            home: home.to_owned(),
            vault,
            policy,
            threads,
            state: None,
            known: None,
            unknown: None,
            watching,
            watch: None,
            exclude: None,
            global: None,
            full_ns: None,
            unsaved: false,
            unsynced: Vec::new(),
        };
        ground.find_rules();
        Ok(ground)
    }

    /// The directory.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Where its content is.
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Whether the kernel tells where something happens.
    pub fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_complete)
    }

    fn find_rules(&mut self) {
        let repository = git2::Repository::open(self.root.path()).ok();
        self.exclude = repository.map(|it| it.commondir().join("info").join("exclude"));
        // What the repository itself names counts only within the work tree: its settings may be anybody's.
        let top = self.root.path();
        let named = self.exclude.as_ref().and_then(|_| global_excludes(Some(top)));
        let within = |path: &PathBuf| {
            // It may be written later, so it is where it is to be that counts.
            let above = path.parent().and_then(|above| above.canonicalize().ok());
            above.is_some_and(|above| above.starts_with(top)) && !path.is_symlink()
        };
        self.global = named.filter(within).or_else(|| global_excludes(None));
    }

    fn outer_rules(&self) -> OuterRules {
        let read = |path: &Option<PathBuf>| {
            let mut bytes = Vec::new();
            // Neither a pipe nor a device is waited for.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path.as_ref()?, flags, FileMode::empty()).ok()?);
            if !file.metadata().ok()?.is_file() {
                return None;
            }
            file.take(RULES_FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        OuterRules { global: read(&self.global), exclude: read(&self.exclude) }
    }

    /// Takes the present state down. When this returns, it is on disk.
    pub fn track(&mut self, wish: Wish, progress: &Progress) -> Result<Tracked, Error> {
        let batch = self.vault.batch();
        let now_ns = (self.policy.now_ns)();
        let known = self
            .state
            .take()
            .filter(|state| state.top.id.is_some_and(|id| self.vault.contains(&id)));
        let fresh = known.is_none();
        // Deep trees need more of a stack than everybody has.
        let load = || self.threads.install(|| State::load(&self.state_file(), &self.vault));
        let mut state = match known.or_else(load) {
            Some(state) => state,
            None => walk::unknown(self.root.fd())?,
        };
        let (mut full, mut deep, mut quiet) = (true, false, false);
        if self.watching {
            let recent = self.full_ns.is_some_and(|at| now_ns - at < UNWATCHED_NS_MAX);
            match self.watch.as_ref().filter(|watch| watch.is_complete()).map(Watch::heard) {
                Some(Heard::In(paths)) => {
                    quiet = paths.is_empty();
                    paths.iter().for_each(|path| state.top.touch(path));
                    let steps = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
                    deep = paths.iter().any(|path| steps(path) > STEPS_OWN_STACK_MAX);
                    full = !recent || fresh;
                }
                Some(Heard::Lost) => state.top.unwatch(),
                None => {
                    self.watch = Watch::start();
                    state.top.unwatch();
                }
            }
        }
        full |= wish.full || wish.large;
        if full {
            self.find_rules();
        }
        let mut policy = self.policy.clone();
        if wish.large {
            policy.file_bytes_max = u64::MAX;
        }
        let outer = self.outer_rules();
        let rules = state.outer_rules;
        let watch = self.watch.as_ref();
        let looking = Walk { batch: &batch, policy: &policy, watch, progress, full };
        let (root, threads) = (&self.root, &self.threads);
        let walked = match full || deep {
            true => threads.install(|| walk(&looking, root.fd(), &outer, &mut state)),
            // Too little to be worth waking anybody.
            false => walk(&looking, root.fd(), &outer, &mut state),
        };
        let changed = walked.inspect_err(|_| {
            // What is known now is half of it, and partly in no store.
            (self.watch, self.full_ns) = (None, None);
        })?;
        let tree = state.top.id.ok_or_else(|| {
            Error::Vault(vault::Error::Damaged("a work tree without a tree".into()))
        })?;
        quiet &= state.outer_rules == rules;
        // Where nothing happened, what is not taken is the same, too.
        let unknown = match &self.unknown {
            Some((unknown, _)) if quiet && !full => *unknown,
            _ => unknown::write(&batch, &state)?,
        };
        let unknown_pin = unknown.map(|unknown| self.vault.pin(unknown));
        let pin = self.vault.pin(tree);
        let bytes = batch.finish()?;
        self.unknown = Some((unknown, unknown_pin));
        let totals = state.top.totals;
        self.state = Some(state);
        self.known = Some(self.vault.pin(tree));
        self.unsaved |= changed || fresh;
        if full {
            self.full_ns = Some(now_ns);
        }
        Ok(Tracked { tree, unknown, totals, bytes, full, pin })
    }

    fn state_file(&self) -> PathBuf {
        self.home.join("state")
    }

    /// Writes down what is known, so that the next start need not read everything again.
    pub fn save(&mut self) -> Result<(), vault::Error> {
        if let Some(state) = self.state.as_ref().filter(|_| self.unsaved) {
            self.threads.install(|| state.save(&self.state_file()))?;
            self.unsaved = false;
        }
        Ok(())
    }

    /// What is not taken, as of the last time; a number of them, from behind a path on.
    pub fn skipped(&self, after: &[u8], most: usize) -> Vec<(Vec<u8>, Skipped, u64)> {
        self.state.as_ref().map_or_else(Vec::new, |state| state.top.skipped(after, most))
    }

    /// Why something is not taken, as of the last time.
    pub fn is_skipped(&self, path: &[u8]) -> Option<Skipped> {
        match self.state.as_ref()?.top.at(path)? {
            Node::Skipped(why, _) => Some(*why),
            _ => None,
        }
    }

    /// Takes what stands at single paths into the store, also what is not taken otherwise.
    pub fn take(&self, batch: &vault::Batch, path: &[u8]) -> Result<Option<Held>, vault::Error> {
        restore::take(&self.root, batch, path, &Progress::default())
    }

    /// What a plan is about, as two trees: before and after. `batch` holds what was taken for it.
    pub fn trees_of(&self, batch: vault::Batch, steps: &[Step]) -> Result<Sides, vault::Error> {
        let (before, after) = sides(&batch, steps)?;
        // Pinned first: what is in the store and neither pinned nor written down may go at any time.
        let pins = [self.vault.pin(before), self.vault.pin(after)];
        batch.finish()?;
        Ok(Sides { before, after, pins })
    }

    /// Carries a plan out. It is written down first, and stays so until what was done is on disk: see
    /// [`Ground::sync`].
    pub fn apply(&mut self, plan: &Plan, progress: &Progress) -> Result<Applied, vault::Error> {
        plan.write(&self.home)?;
        let applied = self.carry_out(plan, progress, false)?;
        self.unsynced.push(plan.clone());
        Ok(applied)
    }

    fn carry_out(
        &self,
        plan: &Plan,
        progress: &Progress,
        again: bool,
    ) -> Result<Applied, vault::Error> {
        let store = self.vault.reader()?;
        let (root, name) = (&self.root, plan.name);
        Restorer { root, store: &store, name, progress, again }.apply(&plan.steps)
    }

    /// Takes back what was done of a plan, and forgets it.
    pub fn undo(&mut self, plan: &Plan, done: Vec<Step>) -> Result<Applied, vault::Error> {
        let back = Plan { steps: done, ..*plan }.reversed();
        let applied = self.carry_out(&back, &Progress::default(), false)?;
        rustix::fs::syncfs(self.root.fd())?;
        self.unsynced.retain(|unsynced| unsynced != plan);
        plan.forget(&self.home)?;
        Ok(applied)
    }

    /// Leaves a plan to whoever takes the work tree into use next: it stays written down.
    pub fn leave(&mut self, plan: &Plan) {
        self.unsynced.retain(|unsynced| unsynced != plan);
    }

    /// Waits until what plans have done is on disk, and forgets them.
    pub fn sync(&mut self) -> Result<(), vault::Error> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        rustix::fs::syncfs(self.root.fd())?;
        self.unsynced.drain(..).try_for_each(|plan| plan.forget(&self.home))?;
        // A plan that came back would be carried out once more.
        Ok(File::open(&self.home)?.sync_all()?)
    }

    /// Finishes what a crash has left: plans that were decided are carried out, the others taken back.
    pub fn settle(
        &self,
        mut is_decided: impl FnMut(&[u8; 16]) -> Result<bool, vault::Error>,
    ) -> Result<Vec<(Plan, Applied)>, vault::Error> {
        let mut settled = Vec::new();
        for plan in Plan::left_behind(&self.home)? {
            let plan = match is_decided(&plan.name)? {
                true => plan,
                false => plan.reversed(),
            };
            let (store, progress) = (self.vault.reader()?, Progress::default());
            let (root, name) = (&self.root, plan.name);
            let restorer = Restorer { root, store: &store, name, progress: &progress, again: true };
            let kept = restorer.clear(&plan.steps)?;
            let mut applied = restorer.apply(&plan.steps)?;
            applied.kept.splice(0..0, kept);
            rustix::fs::syncfs(self.root.fd())?;
            plan.forget(&self.home)?;
            settled.push((plan, applied));
        }
        Ok(settled)
    }
}
