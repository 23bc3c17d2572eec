//! A small reference for the ledger, written apart from it, and histories that are told to both.
//!
//! The engine is asked about many short histories, one floor below the wire; the real server about a few
//! long ones, with cut connections and kill -9 in the middle, and feeds that must equal the log.

use crate::feed::{Ears, feed};
use crate::support::*;
use bowline::clock::SystemClock;
use bowline::engine::{Compacting, Engine, Refusal, Submission};
use bowline::limits::Limits;
use bowline::model::code::Coded;
use bowline::model::conditions::Conditions;
use bowline::model::grant::Authority;
use bowline::model::ids::{Cursor, GrantId, GrantKey, LogId, MessageId, OpId, ProducerId, RealmId};
use bowline::model::infos::{ObjectKind, Role};
use bowline::model::ledger::{Ack, BatchHeader, Decision, Made, Mode, Outcome};
use bowline::model::page::Page;
use bowline::model::sturdy_ref::{Secret, VerifierKey};
use bowline::model::timeline::Timeline;
use bowline::ops::{
    Action, CreateSession, Op, OpenProject, PutMessage, Refused, RemoveMessage, Sent, SetTitle,
};
use bowline::store::{Reader, Store, grants, messages, meta};
use bowline::wire::bowline_capnp::{BatchMode, ack, outcome};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub const PRODUCERS: u64 = 4;
pub const SESSIONS: u64 = 2;

/// What one op wants. Ids are letters, so that collisions of every kind happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Put(String),
    Remove(String),
    Title(String),
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    what: What,
    depends_on: Vec<u64>,
    expects: Option<u64>,
}

/// One batch of a history.
#[derive(Debug, Clone)]
pub struct Step {
    pub session: usize,
    pub producer: u8,
    pub epoch: u32,
    pub first_seq: u64,
    pub acked_through: u64,
    pub mode: Mode,
    pub ops: Vec<Wanted>,
}

/// Makes histories from any source of numbers: `below(n)` gives one below n. Most batches go on where
/// their producer is, as real clients do; some repeat, overlap, leave a gap, or come from the past.
pub struct Author {
    sent: BTreeMap<(usize, u8), Vec<(Wanted, Mode)>>,
    epochs: BTreeMap<(usize, u8), u32>,
}

impl Author {
    pub fn new() -> Self {
        Self { sent: BTreeMap::new(), epochs: BTreeMap::new() }
    }

    pub fn step(&mut self, below: &mut dyn FnMut(u64) -> u64) -> Step {
        let session = below(SESSIONS) as usize;
        let producer = below(PRODUCERS) as u8;
        let epoch = self.epochs.entry((session, producer)).or_insert(1);
        let epoch = match below(30) {
            0 => {
                *epoch += 1;
                *epoch
            }
            1 => epoch.saturating_sub(1).max(1),
            _ => *epoch,
        };
        let mode = match below(5) {
            0 => Mode::Atomic,
            1 => Mode::Chain,
            _ => Mode::Each,
        };
        let sent = self.sent.entry((session, producer)).or_default();
        let next = sent.len() as u64 + 1;
        let first_seq = match below(12) {
            0 => next + below(3),
            1 => next.saturating_sub(below(4)).max(1),
            _ => next,
        };
        let acked_through = if below(6) == 0 { below(next + 1) } else { 0 };
        let count = 1 + below(5);
        let mut ops = Vec::new();
        let mut mode = mode;
        for seq in first_seq..first_seq + count {
            // What was sent before is mostly sent again as it was.
            if let Some((known, as_sent)) = sent.get(seq as usize - 1)
                && below(8) > 0
            {
                ops.push(known.clone());
                mode = *as_sent;
                continue;
            }
            let letter = char::from(b'a' + below(8) as u8).to_string();
            let what = match below(10) {
                0 => What::Bad,
                1 | 2 => What::Remove(letter),
                3 => What::Title(letter),
                _ => What::Put(letter),
            };
            let depends_on = match below(5) {
                0 => vec![below(seq + 1)],
                _ => Vec::new(),
            };
            let expects = (below(8) == 0).then(|| below(12));
            ops.push(Wanted { what, depends_on, expects });
        }
        if first_seq <= next {
            for (seq, op) in (first_seq..).zip(&ops) {
                if sent.len() < seq as usize {
                    sent.push((op.clone(), mode));
                }
            }
        }
        Step { session, producer, epoch, first_seq, acked_through, mode, ops }
    }
}

/// The reference: one batch at a time, with everything kept in plain collections.
#[derive(Default)]
pub struct Model {
    pub logs: [Vec<What>; SESSIONS as usize],
    messages: [BTreeMap<String, u64>; SESSIONS as usize],
    producers: BTreeMap<(usize, u8), ModelProducer>,
}

#[derive(Default, Clone)]
struct ModelProducer {
    epoch: u32,
    acked: u64,
    /// What was acknowledged before the epoch began.
    inherited: u64,
    decided: Vec<((Wanted, Mode), String)>,
}

impl Model {
    /// The ack in words; with `again` in front of what was decided before.
    pub fn apply(&mut self, step: &Step) -> String {
        let key = (step.session, step.producer);
        let known = self.producers.contains_key(&key);
        let mut producer = self.producers.get(&key).cloned().unwrap_or_default();
        if step.epoch < producer.epoch {
            return "producer-fenced".into();
        }
        let (high, acked) = (producer.decided.len() as u64, producer.acked);
        let new_acked = acked.max(step.acked_through.min(high).min(step.first_seq - 1));
        let mut said: Vec<String> = Vec::new();
        let mut stopped = None;
        let successor = producer.epoch > 0 && step.epoch > producer.epoch;
        let inherited = if successor { acked } else { producer.inherited };
        let last = step.first_seq + step.ops.len() as u64 - 1;
        if step.first_seq > high + 1 {
            stopped = Some("seq-gap");
        } else if step.first_seq <= inherited {
            stopped = Some("seq-forgotten");
            let (next, floor) = (high + 1, acked + 1);
            let head = self.logs[step.session].len();
            return format!("{said:?} head {head} next {next} floor {floor} {stopped:?}");
        } else {
            for (seq, op) in (step.first_seq..=high).zip(&step.ops) {
                let (recorded, outcome) = &producer.decided[seq as usize - 1];
                if seq <= acked {
                    said.push("dropped".to_owned());
                } else if *recorded == (op.clone(), step.mode) {
                    said.push(format!("again {outcome}"));
                } else {
                    stopped = Some("op-reused");
                    break;
                }
            }
            let mixed = step.first_seq <= high && last > high;
            if stopped.is_none() && step.mode == Mode::Atomic && mixed {
                stopped = Some("batch-regrouped");
            }
            if stopped.is_none() {
                let first_fresh = step.first_seq.max(high + 1);
                let repeats = (first_fresh - step.first_seq) as usize;
                let fresh = &step.ops[repeats.min(step.ops.len())..];
                said.extend(self.decide(step, &mut producer, first_fresh, fresh, acked));
            }
        }
        producer.acked = new_acked;
        (producer.epoch, producer.inherited) = (step.epoch, inherited);
        let (next, floor) = (producer.decided.len() + 1, producer.acked + 1);
        // A producer that was never heard of and decided nothing is not remembered.
        if known || !producer.decided.is_empty() {
            self.producers.insert(key, producer);
        }
        let head = self.logs[step.session].len();
        format!("{said:?} head {head} next {next} floor {floor} {stopped:?}")
    }

    fn decide(
        &mut self,
        step: &Step,
        producer: &mut ModelProducer,
        first: u64,
        fresh: &[Wanted],
        acked: u64,
    ) -> Vec<String> {
        let at = step.session;
        let before = (self.logs[at].clone(), self.messages[at].clone());
        let mut said = Vec::new();
        for (seq, op) in (first..).zip(fresh) {
            let code = self.refusal(step, producer, seq, op, acked);
            let outcome = match code {
                Some(code) => code,
                None => {
                    self.logs[at].push(op.what.clone());
                    let cursor = self.logs[at].len() as u64;
                    match &op.what {
                        What::Put(id) => {
                            self.messages[at].insert(id.clone(), cursor);
                        }
                        What::Remove(id) => {
                            self.messages[at].remove(id);
                        }
                        _ => {}
                    }
                    cursor.to_string()
                }
            };
            said.push(outcome.clone());
            producer.decided.push(((op.clone(), step.mode), outcome));
        }
        let failed = |outcome: &String| outcome.parse::<u64>().is_err();
        if step.mode == Mode::Atomic && said.iter().any(failed) {
            (self.logs[at], self.messages[at]) = before;
            for outcome in said.iter_mut().filter(|outcome| !failed(outcome)) {
                *outcome = "batch-undone".into();
            }
            for ((_, outcome), said) in producer.decided[first as usize - 1..].iter_mut().zip(&said)
            {
                *outcome = said.clone();
            }
        }
        said
    }

    fn refusal(
        &self,
        step: &Step,
        producer: &ModelProducer,
        seq: u64,
        op: &Wanted,
        acked: u64,
    ) -> Option<String> {
        if op.depends_on.iter().any(|on| *on == 0 || *on >= seq) {
            return Some("op-malformed".into());
        }
        let before = (step.mode == Mode::Chain && seq > step.first_seq).then(|| seq - 1);
        for on in op.depends_on.iter().copied().chain(before) {
            if on <= acked {
                return Some("dependency-forgotten".into());
            }
            if producer.decided[on as usize - 1].1.parse::<u64>().is_err() {
                return Some("dependency-failed".into());
            }
        }
        let head = self.logs[step.session].len() as u64;
        if op.expects.is_some_and(|expected| expected != head) {
            return Some(format!("cursor-conflict@{head}"));
        }
        let messages = &self.messages[step.session];
        match &op.what {
            What::Bad => Some("id-malformed".into()),
            What::Put(id) if messages.contains_key(id) => Some("message-exists".into()),
            What::Remove(id) if !messages.contains_key(id) => Some("message-not-found".into()),
            _ => None,
        }
    }

    /// The ids of a session's messages, in order.
    pub fn ids(&self, session: usize) -> Vec<String> {
        let mut ids: Vec<_> =
            self.messages[session].iter().map(|(id, at)| (*at, id.clone())).collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// What a feed must tell of a session.
    pub fn told(&self, session: usize) -> Vec<String> {
        let line = |(at, what): (usize, &What)| match what {
            What::Put(id) => format!("{} put {id}", at + 1),
            What::Remove(id) => format!("{} rm {id}", at + 1),
            What::Title(title) => format!("{} title {title}", at + 1),
            What::Bad => panic!("a bad op was applied"),
        };
        self.logs[session].iter().enumerate().map(line).collect()
    }
}

fn op_id(step: &Step, seq: u64) -> [u8; 16] {
    let mut id = [0; 16];
    (id[0], id[1]) = (step.producer + 1, step.session as u8);
    id[2..10].copy_from_slice(&seq.to_le_bytes());
    id
}

// ---- one floor below the wire ----

fn engine_op(step: &Step, seq: u64, wanted: &Wanted) -> Op {
    let id = OpId(op_id(step, seq));
    let sent = format!("{wanted:?}");
    let message = |text: &str| MessageId::parse(text);
    let action: Result<Action, Refused> = match &wanted.what {
        What::Put(at) => {
            let put = PutMessage::new(id, message(at).ok(), Role::User, sent.as_bytes());
            Ok(Action::PutMessage(put))
        }
        What::Remove(at) => Ok(Action::RemoveMessage(RemoveMessage { id: message(at).unwrap() })),
        What::Title(title) => Ok(Action::SetTitle(SetTitle::new(title).unwrap())),
        What::Bad => Err(message("").unwrap_err().into()),
    };
    let conditions =
        Conditions { depends_on: wanted.depends_on.clone(), expects: wanted.expects.map(Cursor) };
    Op::new(id, Sent { bytes: sent.as_bytes(), beside: &[], mode: step.mode }, conditions, action)
}

/// The engine's ack in the model's words.
fn told(answer: Result<Ack, Refusal>) -> String {
    let ack = match answer {
        Ok(ack) => ack,
        Err(refusal) => return refusal.code().name().to_owned(),
    };
    let decision = |decision: &Decision| match decision {
        Decision::Applied { cursor, .. } | Decision::AppliedTo { cursor, .. } => {
            cursor.0.to_string()
        }
        Decision::Unchanged { .. } => "unchanged".into(),
        Decision::Rejected { code, .. } => code.clone(),
        Decision::Conflicted(conflict) => format!("{}@{}", conflict.code(), conflict.actual.0),
    };
    let said: Vec<_> = ack
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Fresh(fresh) => decision(fresh),
            Outcome::Repeat(repeat) => format!("again {}", decision(repeat)),
            Outcome::RepeatDropped => "dropped".into(),
        })
        .collect();
    let stopped = ack.stopped.map(|stop| stop.code().name());
    let (next, floor) = (ack.next_expected_seq, ack.floor);
    format!("{said:?} head {} next {next} floor {floor} {stopped:?}", ack.cursor.0)
}

/// An engine on a real file, with a project and its sessions.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub engine: Engine,
    pub writer: Option<bowline::engine::Writer>,
    pub grant: GrantKey,
    pub sessions: Vec<LogId>,
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A batch without anything special about it.
pub fn header(producer: u8, first_seq: u64) -> BatchHeader {
    BatchHeader::plain(ProducerId([producer; 16]), 1, first_seq)
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("bowline.db")).unwrap();
        let tx = store.begin().unwrap();
        let key = [1; 32];
        meta::create(&tx, RealmId([1; 16]), &key, 1).unwrap();
        let grant = grants::NewGrant {
            id: GrantId([1; 16]),
            verifier: Some(Secret::new([1; 32]).verifier(&VerifierKey(key))),
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            authority: Authority::of_operator(),
            label: "test",
            actor: "",
            parent: None,
            terms: grants::RefTerms::default(),
        };
        let grant = grants::create(&tx, &grant, 1).unwrap();
        tx.commit().unwrap();
        let (engine, writer) =
            Engine::start(store, &Limits::default(), Arc::new(SystemClock), |_| {}).unwrap();
        let mut bench = Self { dir, engine, writer: Some(writer), grant, sessions: Vec::new() };
        let open = Action::OpenProject(OpenProject::new("/w", None, "").unwrap());
        let project = bench.make(LogId::ROOT, 1, open);
        for n in 0..SESSIONS {
            let create = Action::CreateSession(CreateSession::new(None, "").unwrap());
            let session = bench.make(project, n + 1, create);
            bench.sessions.push(session);
        }
        bench
    }

    fn make(&self, log: LogId, seq: u64, action: Action) -> LogId {
        let (id, sent) = (OpId([seq as u8 + log.0 as u8; 16]), [seq as u8]);
        let sent = Sent { bytes: &sent, beside: &[], mode: Mode::Each };
        let op = Op::new(id, sent, Conditions::default(), Ok::<_, Refused>(action));
        let header = header(99, seq);
        let submission = Submission::plain(self.grant, log, header, vec![op]);
        match block_on(self.engine.submit(submission).answer()).unwrap().outcomes.remove(0) {
            Outcome::Fresh(Decision::Applied { made: Made::Project(key), .. }) => key.log,
            Outcome::Fresh(Decision::Applied { made: Made::Session(key), .. }) => key.log,
            other => panic!("{other:?}"),
        }
    }

    pub fn submission(&self, step: &Step) -> Submission {
        let ops = (step.first_seq..).zip(&step.ops);
        let header = BatchHeader {
            epoch: step.epoch,
            acked_through: step.acked_through,
            mode: step.mode,
            ..header(step.producer + 1, step.first_seq)
        };
        let ops = ops.map(|(seq, op)| engine_op(step, seq, op)).collect();
        Submission::plain(self.grant, self.sessions[step.session], header, ops)
    }
}

/// A history made from a list of numbers, which a failing case can be shrunk to.
fn history(numbers: Vec<u16>) -> Vec<Step> {
    let mut numbers = numbers.into_iter();
    let mut author = Author::new();
    let mut steps = Vec::new();
    while numbers.len() > 0 {
        steps.push(author.step(&mut |n| u64::from(numbers.next().unwrap_or(0)) % n));
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn however_batches_interleave_the_engine_equals_the_reference(
        steps in prop::collection::vec(any::<u16>(), 50..1500).prop_map(history)
    ) {
        let mut bench = Bench::new();
        // All of them are queued before the first is waited for, so the writer finds groups.
        let waiting: Vec<_> =
            steps.iter().map(|step| bench.engine.submit(bench.submission(step))).collect();
        let mut model = Model::default();
        block_on(async {
            for (n, (step, answer)) in steps.iter().zip(waiting).enumerate() {
                let want = model.apply(step);
                prop_assert_eq!(told(answer.answer().await), want, "step {} {:?}", n, step);
            }
            Ok(())
        })?;

        // Compacted up to anywhere, the disk says the same, and can be derived again.
        for (at, log) in bench.sessions.iter().enumerate() {
            let through = Cursor(model.logs[at].len() as u64 * 2 / 3);
            let compacting = Compacting { log: *log, through };
            block_on(bench.engine.compact(compacting).answer()).unwrap();
        }
        bench.writer.take().unwrap().finish().unwrap();
        let mut reader = Reader::open(&bench.dir.path().join("bowline.db")).unwrap();
        for (at, log) in bench.sessions.iter().enumerate() {
            let page = Page::new(0, 1000, false);
            let found = reader.look(|read| messages::page(read, *log, &Timeline::default().shown(), page)).unwrap();
            let ids: Vec<_> = found.items.iter().map(|message| message.id.to_string()).collect();
            prop_assert_eq!(ids, model.ids(at));
        }
        let checked = bowline::upkeep::verify::verify(bench.dir.path(), |_| ()).unwrap();
        for check in checked {
            prop_assert_eq!(check.problems, Vec::<String>::new(), "{}", check.name);
        }
    }
}

// ---- over the wire, with crashes ----

fn sessions_of(root: &root::Client) -> Vec<session::Client> {
    let maker = |n: u8| Producer { id: [200 + n; 16], epoch: 1, next: 1, acked_through: 0 };
    let project = open_project(root, &mut maker(0), "/tree").pipeline.get_project();
    let make =
        |n| create_session(&project, &mut maker(n + 1), &format!("s{n}")).pipeline.get_session();
    (0..SESSIONS as u8).map(make).collect()
}

/// The sessions over a connection of their own, and what cuts it.
async fn cuttable(server: &Server) -> (Vec<session::Client>, tokio::task::AbortHandle) {
    let (vat, cut) = connect_to_cut(server).await;
    (sessions_of(&redeem(&vat, &server.root_ref())), cut)
}

type AppendRequest =
    capnp::capability::Request<session::append_params::Owned, session::append_results::Owned>;

fn request(session: &session::Client, step: &Step) -> AppendRequest {
    let mut request = session.append_request();
    let mut batch = request.get().init_batch();
    batch.set_producer(&[step.producer + 1; 16]);
    batch.set_producer_epoch(step.epoch);
    batch.set_first_seq(step.first_seq);
    batch.set_acked_through(step.acked_through);
    batch.set_mode(match step.mode {
        Mode::Each => BatchMode::Each,
        Mode::Chain => BatchMode::Chain,
        Mode::Atomic => BatchMode::Atomic,
    });
    let mut ops = request.get().init_ops(step.ops.len() as u32);
    for (at, wanted) in (0..).zip(&step.ops) {
        let mut op = ops.reborrow().get(at);
        op.set_op_id(&op_id(step, step.first_seq + u64::from(at)));
        if let Some(cursor) = wanted.expects {
            op.reborrow().init_expects().set_cursor(cursor);
        }
        let mut list = op.reborrow().init_depends_on(wanted.depends_on.len() as u32);
        for (at, on) in (0..).zip(&wanted.depends_on) {
            list.set(at, *on);
        }
        match &wanted.what {
            What::Put(id) => op.init_put_message().set_id(id),
            What::Remove(id) => op.set_remove_message(id),
            What::Title(title) => op.set_set_title(title),
            What::Bad => op.set_remove_message(""),
        }
    }
    request
}

fn heard(ack: ack::Reader<'_>) -> String {
    let code = |text: capnp::text::Reader<'_>| text.to_string().unwrap();
    let said: Vec<_> = ack
        .get_outcomes()
        .unwrap()
        .iter()
        .map(|outcome| match outcome.which().unwrap() {
            outcome::Applied(()) => outcome.get_cursor().to_string(),
            outcome::Duplicate(()) => format!("again {}", outcome.get_cursor()),
            outcome::DuplicateDropped(()) => "dropped".into(),
            outcome::Rejected(refusal) => {
                let refusal = refusal.unwrap();
                let said = code(refusal.get_code().unwrap());
                match said.as_str() {
                    "cursor-conflict" => format!("{said}@{}", refusal.get_cursor()),
                    _ => said,
                }
            }
        })
        .collect();
    let stopped = ack.has_stopped().then(|| code(ack.get_stopped().unwrap().get_code().unwrap()));
    let (head, next, floor) = (ack.get_cursor(), ack.get_next_expected_seq(), ack.get_floor());
    format!("{said:?} head {head} next {next} floor {floor} {stopped:?}")
}

/// A refusal heard again sounds as at first, and what was done before is only marked as such.
fn plain(said: &str) -> String {
    said.replace("again ", "")
}

#[test]
fn cuts_and_crashes_change_nothing_and_feeds_equal_the_log() {
    let mut random = Random::told();
    let (mut cuts, mut crashes, mut batches) = (0, 0, 0);
    for _ in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let mut author = Author::new();
        // What the mirror has processed, by place: it crashes with the rest and drops repeats.
        let mut mirrored: BTreeMap<u64, String> = BTreeMap::new();
        let mut left: Vec<Step> = (0..120).map(|_| author.step(&mut |n| random.below(n))).collect();
        left.reverse();
        while !left.is_empty() {
            let server = Server::start_in(dir.path(), &[], &[]);
            let mut in_doubt: Option<Step> = None;
            local(async {
                let (mut sessions, mut cut) = cuttable(&server).await;
                let ears = Rc::new(Ears::default());
                let mirror = sessions_of(&root(&server).await).remove(0);
                let _mirror =
                    feed(&mirror, &ears, |mut wish| wish.set_name("mirror")).await.unwrap();
                while let Some(step) = left.pop() {
                    batches += 1;
                    let sent = request(&sessions[step.session], &step).send().promise;
                    match random.below(12) {
                        // The connection is cut with the answer on its way, and the batch is sent again.
                        0 => {
                            cuts += 1;
                            for _ in 0..random.below(30) {
                                tokio::task::yield_now().await;
                            }
                            cut.abort();
                            drop(sent);
                            (sessions, cut) = cuttable(&server).await;
                            left.push(step);
                            continue;
                        }
                        1 => {
                            // The server is killed with the batch on its way; it is sent again later.
                            crashes += 1;
                            in_doubt = Some(step);
                            for _ in 0..random.below(30) {
                                tokio::task::yield_now().await;
                            }
                            break;
                        }
                        _ => {}
                    }
                    let want = model.apply(&step);
                    let got = match sent.await {
                        Ok(answer) => heard(answer.get().unwrap().get_ack().unwrap()),
                        Err(error) => code(&error).to_owned(),
                    };
                    assert_eq!(plain(&got), plain(&want), "{step:?}");
                }
                for line in ears.lines() {
                    if let Some((place, rest)) = line.split_once(' ')
                        && let Ok(place) = place.parse()
                    {
                        let before = mirrored.insert(place, rest.to_owned());
                        assert!(
                            before.is_none_or(|before| before == rest),
                            "place {place} changed"
                        );
                    }
                }
            });
            left.extend(in_doubt);
            server.kill_9();
        }

        let server = Server::start_in(dir.path(), &[], &[]);
        local(async {
            let sessions = sessions_of(&root(&server).await);
            for (at, session) in sessions.iter().enumerate() {
                let all = model.told(at);
                let ears = Rc::new(Ears::default());
                let from = random.below(all.len() as u64 + 1);
                let _feed = feed(session, &ears, |mut wish| wish.set_after(from)).await.unwrap();
                let mut heard = ears.until(&format!("caught-up {}", all.len())).await;
                heard.pop();
                assert_eq!(heard, all[from as usize..], "a feed from {from} equals the log");
            }
            // The mirror hears the rest, and then has everything.
            let ears = Rc::new(Ears::default());
            let _mirror =
                feed(&sessions[0], &ears, |mut wish| wish.set_name("mirror")).await.unwrap();
            let all = model.told(0);
            for line in ears.until(&format!("caught-up {}", all.len())).await {
                let (place, rest) = line.split_once(' ').unwrap();
                if let Ok(place) = place.parse() {
                    mirrored.insert(place, rest.to_owned());
                }
            }
            let lines: Vec<_> =
                mirrored.iter().map(|(place, rest)| format!("{place} {rest}")).collect();
            assert_eq!(lines, all, "a named subscription misses nothing");
        });
        let status =
            command(dir.path()).args(["verify", "--data"]).arg(dir.path()).output().unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    }
    println!("{batches} batches, {cuts} cut connections, {crashes} crashes");
}
