//! The single writer against a serial model: however batches from many producers interleave, queue up
//! and are grouped into transactions, every ack and the final logs are those of one batch at a time.

use bowline::clock::SystemClock;
use bowline::engine::{Engine, Refusal, Submission};
use bowline::limits::Limits;
use bowline::model::code::Coded;
use bowline::model::conditions::Conditions;
use bowline::model::ids::{GrantId, GrantKey, LogId, MessageId, OpId, ProducerId, RealmId};
use bowline::model::infos::{ObjectKind, Role};
use bowline::model::ledger::{Ack, BatchHeader, Decision, Made, Mode, Outcome};
use bowline::model::page::Page;
use bowline::model::rights::Rights;
use bowline::model::sturdy_ref::{Secret, VerifierKey};
use bowline::ops::{Action, CreateSession, Op, OpenProject, PutMessage, Refused, Sent};
use bowline::store::{Reader, Store, grants, messages, meta};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PRODUCERS: u8 = 4;
const SESSIONS: usize = 2;

/// One batch of a generated history. Contents are letters, so that collisions of every kind happen.
#[derive(Debug, Clone)]
struct Step {
    session: usize,
    producer: u8,
    epoch: u32,
    first_seq: u64,
    acked_through: u64,
    contents: Vec<char>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (
            0..SESSIONS,
            0..PRODUCERS,
            prop_oneof![20 => Just(1u32), 2 => Just(2u32), 1 => Just(3u32)],
            1..30u64,
            prop_oneof![3 => Just(0u64), 1 => 0..30u64],
            prop::collection::vec(prop::char::range('a', 'h'), 1..6),
        )
            .prop_map(|(session, producer, epoch, first_seq, acked_through, contents)| {
                Step { session, producer, epoch, first_seq, acked_through, contents }
            });
    prop::collection::vec(step, 1..120)
}

/// Most steps go on where their producer is, as real clients do; the rest stay as wild as they are.
fn tamed(steps: Vec<Step>) -> Vec<Step> {
    let mut next: BTreeMap<(usize, u8), u64> = BTreeMap::new();
    let mut tamed = Vec::new();
    for (n, mut step) in steps.into_iter().enumerate() {
        let next = next.entry((step.session, step.producer)).or_insert(1);
        match n % 7 {
            0 => {}
            1 => step.first_seq = next.saturating_sub(2).max(1), // overlaps what was sent
            _ => step.first_seq = *next,
        }
        *next = (*next).max(step.first_seq + step.contents.len() as u64);
        tamed.push(step);
    }
    tamed
}

fn plain(bytes: &[u8]) -> Sent<'_> {
    Sent { bytes, beside: &[], mode: Mode::Each }
}

/// A batch without anything special about it.
fn header(producer: u8, first_seq: u64) -> BatchHeader {
    BatchHeader {
        producer: ProducerId([producer; 16]),
        epoch: 1,
        first_seq,
        acked_through: 0,
        capability_epoch: None,
        mode: Mode::Each,
        batch: None,
    }
}

/// What an op says: its letter is its content and its message id, unless it is 'h', which is malformed.
fn op(producer: u8, seq: u64, content: char) -> Op {
    let mut id = [0; 16];
    id[0] = producer;
    id[1..9].copy_from_slice(&seq.to_le_bytes());
    let sent = [content as u8];
    // Ids repeat now and then: a letter is unique to four consecutive numbers of one producer.
    let message = format!("{producer}{content}{}", seq / 4);
    let action: Result<Action, Refused> = match content {
        'h' => Err(MessageId::parse("").unwrap_err().into()),
        _ => Ok(Action::PutMessage(PutMessage::new(
            OpId(id),
            Some(MessageId::parse(&message).unwrap()),
            Role::User,
            &sent,
        ))),
    };
    Op::new(OpId(id), plain(&sent), Conditions::default(), action)
}

/// The reference: one batch at a time, with everything kept in plain collections.
#[derive(Default)]
struct Model {
    sessions: [Vec<String>; SESSIONS],
    producers: BTreeMap<(usize, u8), ModelProducer>,
}

#[derive(Default)]
struct ModelProducer {
    epoch: u32,
    acked: u64,
    decided: Vec<(char, String)>,
}

impl Model {
    /// The ack as text.
    fn apply(&mut self, step: &Step) -> String {
        let key = (step.session, step.producer);
        let known = self.producers.contains_key(&key);
        let mut producer = self.producers.remove(&key).unwrap_or_default();
        if step.epoch < producer.epoch {
            self.producers.insert(key, producer);
            return "producer-fenced".into();
        }
        let high = producer.decided.len() as u64;
        if producer.epoch > 0 && step.epoch > producer.epoch && step.first_seq <= producer.acked {
            producer.acked = producer.acked.max(step.acked_through.min(high));
            let floor = producer.acked + 1;
            let head = self.sessions[step.session].len();
            self.producers.insert(key, producer);
            let said: [&str; 0] = [];
            let stopped = Some("seq-forgotten");
            return format!("{said:?} head {head} next {} floor {floor} {stopped:?}", high + 1);
        }
        let log = &mut self.sessions[step.session];
        let mut said = Vec::new();
        let mut stopped = None;
        let acked_before = producer.acked;
        let high_before = producer.decided.len() as u64;
        for (seq, content) in (step.first_seq..).zip(&step.contents) {
            let expected = producer.decided.len() as u64 + 1;
            if seq > expected {
                stopped = Some("seq-gap");
                break;
            }
            if seq < expected {
                let (recorded, outcome) = &producer.decided[seq as usize - 1];
                if seq <= acked_before {
                    said.push("dropped".to_owned());
                } else if recorded == content {
                    said.push(format!("again {outcome}"));
                } else {
                    stopped = Some("op-reused");
                    break;
                }
                continue;
            }
            let message = format!("{}{content}{}", step.producer, seq / 4);
            let outcome = if *content == 'h' {
                "id-malformed".to_owned()
            } else if log.contains(&message) {
                "message-exists".to_owned()
            } else {
                log.push(message);
                log.len().to_string()
            };
            said.push(outcome.clone());
            producer.decided.push((*content, outcome));
        }
        producer.acked = producer.acked.max(step.acked_through.min(high_before));
        producer.epoch = step.epoch;
        let (next, floor) = (producer.decided.len() + 1, producer.acked + 1);
        // A producer that was never heard of and decided nothing is not remembered.
        if known || !producer.decided.is_empty() {
            self.producers.insert(key, producer);
        }
        format!("{said:?} head {} next {next} floor {floor} {stopped:?}", log.len())
    }
}

/// The engine's ack in the same words.
fn told(answer: Result<Ack, Refusal>) -> String {
    let ack = match answer {
        Ok(ack) => ack,
        Err(refusal) => return refusal.code().name().to_owned(),
    };
    let decision = |decision: &Decision| match decision {
        Decision::Applied { cursor, .. } => cursor.0.to_string(),
        Decision::Unchanged { .. } => "unchanged".into(),
        Decision::Rejected { code, .. } => code.clone(),
        Decision::Conflicted(conflict) => conflict.code().name().to_owned(),
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
    format!(
        "{said:?} head {} next {} floor {} {stopped:?}",
        ack.cursor.0, ack.next_expected_seq, ack.floor
    )
}

struct Bench {
    dir: tempfile::TempDir,
    engine: Engine,
    writer: Option<bowline::engine::Writer>,
    grant: GrantKey,
    sessions: Vec<LogId>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Bench {
    /// An engine on a real file, with a project and its sessions.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("bowline.db")).unwrap();
        let tx = store.begin().unwrap();
        let key = [1; 32];
        meta::create(&tx, RealmId([1; 16]), &key, 1).unwrap();
        let grant = grants::NewGrant {
            id: GrantId([1; 16]),
            verifier: Secret::new([1; 32]).verifier(&VerifierKey(key)),
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            rights: Rights::all(),
            label: "test",
        };
        let grant = grants::create(&tx, &grant, 1).unwrap();
        tx.commit().unwrap();
        let (engine, writer) =
            Engine::start(store, &Limits::default(), Arc::new(SystemClock), |_| {}).unwrap();
        let mut bench = Self { dir, engine, writer: Some(writer), grant, sessions: Vec::new() };
        let project = bench.make(
            LogId::ROOT,
            1,
            Action::OpenProject(OpenProject::new("/w", None, "").unwrap()),
        );
        for n in 0..SESSIONS {
            let create = Action::CreateSession(CreateSession::new(None, "").unwrap());
            let session = bench.make(project, n as u64 + 1, create);
            bench.sessions.push(session);
        }
        bench
    }

    fn make(&self, log: LogId, seq: u64, action: Action) -> LogId {
        let (id, sent) = (OpId([seq as u8 + log.0 as u8; 16]), [seq as u8]);
        let op = Op::new(id, plain(&sent), Conditions::default(), Ok::<_, Refused>(action));
        let header = header(99, seq);
        let submission = Submission { grant: self.grant, log, header, ops: vec![op] };
        match block_on(self.engine.submit(submission).answer()).unwrap().outcomes.remove(0) {
            Outcome::Fresh(Decision::Applied { made: Made::Project(key), .. }) => key.log,
            Outcome::Fresh(Decision::Applied { made: Made::Session(key), .. }) => key.log,
            other => panic!("{other:?}"),
        }
    }

    fn submission(&self, step: &Step) -> Submission {
        let seqs = step.first_seq..;
        Submission {
            grant: self.grant,
            log: self.sessions[step.session],
            header: BatchHeader {
                epoch: step.epoch,
                acked_through: step.acked_through,
                ..header(step.producer, step.first_seq)
            },
            ops: seqs
                .zip(&step.contents)
                .map(|(seq, content)| op(step.producer, seq, *content))
                .collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn interleaved_batches_equal_a_serial_model(steps in steps().prop_map(tamed)) {
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

        // And the disk says the same.
        bench.writer.take().unwrap().finish().unwrap();
        let mut reader = Reader::open(&bench.dir.path().join("bowline.db")).unwrap();
        for (log, want) in bench.sessions.iter().zip(&model.sessions) {
            let found = reader.look(|read| messages::page(read, *log, Page::new(0, 1000, false))).unwrap();
            let ids: Vec<_> = found.items.iter().map(|message| message.id.to_string()).collect();
            prop_assert_eq!(&ids, want);
            let cursors: Vec<_> = found.items.iter().map(|message| message.cursor.0).collect();
            prop_assert_eq!(cursors, (1..=want.len() as u64).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_revoked_grant_is_refused_inside_the_transaction_even_for_a_repeat() {
    let mut bench = Bench::new();
    let step = Step {
        session: 0,
        producer: 1,
        epoch: 1,
        first_seq: 1,
        acked_through: 0,
        contents: vec!['a'],
    };
    block_on(bench.engine.submit(bench.submission(&step)).answer()).unwrap();
    bench.writer.take().unwrap().finish().unwrap();

    let mut store = Store::open(&bench.dir.path().join("bowline.db")).unwrap();
    let tx = store.begin().unwrap();
    grants::revoke_root(&tx, 1).unwrap();
    tx.commit().unwrap();
    let (engine, _writer) =
        Engine::start(store, &Limits::default(), Arc::new(SystemClock), |_| {}).unwrap();
    for first_seq in [1, 2] {
        let again = bench.submission(&Step { first_seq, ..step.clone() });
        let answer = block_on(engine.submit(again).answer());
        assert_eq!(answer, Err(Refusal::Revoked), "seq {first_seq}");
    }
}

#[test]
fn after_the_last_commit_nothing_is_taken_and_everything_taken_was_answered() {
    let mut bench = Bench::new();
    let step = |n: u64| Step {
        session: 0,
        producer: 1,
        epoch: 1,
        first_seq: n,
        acked_through: 0,
        contents: vec![char::from(b'a' + (n % 7) as u8)],
    };
    let waiting: Vec<_> =
        (1..=500).map(|n| bench.engine.submit(bench.submission(&step(n)))).collect();
    bench.writer.take().unwrap().finish().unwrap();
    let late = bench.engine.submit(bench.submission(&step(501)));
    block_on(async {
        let mut kinds = BTreeSet::new();
        for answer in waiting {
            kinds.insert(answer.answer().await.is_ok());
        }
        assert_eq!(kinds, BTreeSet::from([true]));
        assert_eq!(late.answer().await, Err(Refusal::Stopping));
    });
}
