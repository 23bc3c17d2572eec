//! Promise 1 and 2 under `kill -9`: what was acknowledged is there, and nothing is there twice.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::session_capnp::session;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

const ROUNDS: u32 = 25;
const WRITERS: usize = 6;
const SESSIONS: usize = 2;
const IN_FLIGHT: usize = 4;
const KILL_AFTER_MS_MAX: u64 = 120;

/// One writing client across all rounds.
struct Writer {
    name: String,
    producer: Producer,
    /// Ops known to be on disk.
    acked: u64,
    /// Ops that were sent at least once.
    sent: u64,
}

impl Writer {
    fn text(&self, seq: u64) -> String {
        format!("{}-{seq}", self.name)
    }

    /// Sends ops from `first` on in batches of `sizes`, several at a time, until the connection dies or
    /// `last` is acknowledged.
    async fn send(
        &mut self,
        session: &session::Client,
        last: u64,
        sizes: &mut impl Iterator<Item = u64>,
    ) {
        let mut next = self.acked + 1;
        let mut waiting = std::collections::VecDeque::new();
        loop {
            while waiting.len() < IN_FLIGHT && next <= last {
                let end = (next + sizes.next().unwrap() - 1).min(last);
                let texts: Vec<_> = (next..=end).map(|seq| self.text(seq)).collect();
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                self.producer.acked_through = self.acked;
                waiting.push_back((
                    end,
                    batch_at(&self.producer, next, session, &texts).send().promise,
                ));
                self.sent = self.sent.max(end);
                next = end + 1;
            }
            let Some((end, ack)) = waiting.pop_front() else { return };
            let Ok(answer) = ack.await else { return };
            let ack = answer.get().unwrap().get_ack().unwrap();
            assert!(
                !ack.has_stopped(),
                "{}",
                ack.get_stopped().unwrap().get_text().unwrap().to_str().unwrap()
            );
            for outcome in ack.get_outcomes().unwrap() {
                let decided = outcome.which().unwrap();
                assert!(matches!(decided, outcome::Applied(()) | outcome::Duplicate(())));
            }
            self.acked = end;
        }
    }
}

async fn open_sessions(server: &Server) -> Vec<session::Client> {
    let root = root(server).await;
    let project = open_project(&root, &mut Producer::new(), "/crash").pipeline.get_project();
    (0..SESSIONS)
        .map(|n| {
            let id = format!("s{n}");
            // The first round makes them; later ones are refused and find them.
            ignore(create_session(&project, &mut Producer::new(), &id).promise);
            let mut request = project.session_request();
            request.get().set_id(&id);
            request.send().pipeline.get_session()
        })
        .collect()
}

#[test]
fn kill_9_in_the_middle_of_a_load() {
    let mut random = Random::told();
    let dir = tempfile::tempdir().unwrap();
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|n| Writer { name: format!("w{n}"), producer: Producer::new(), acked: 0, sent: 0 })
        .collect();
    let mut unacknowledged_but_there = 0;
    for round in 0..ROUNDS {
        let server = Server::start_in(dir.path(), &[], &[]);
        let (begun, has_begun) = mpsc::channel();
        let kill_after = Duration::from_millis(random.below(KILL_AFTER_MS_MAX));
        let sizes: Vec<u64> = (0..64).map(|_| 1 + random.below(8)).collect();

        std::thread::scope(|scope| {
            let (writers, server, sizes) = (&mut writers, &server, &sizes);
            let client = scope.spawn(move || {
                local(async {
                    let sessions = open_sessions(server).await;
                    begun.send(()).unwrap();
                    let work = writers.iter_mut().enumerate().map(|(n, writer)| {
                        let session = sessions[n % SESSIONS].clone();
                        async move {
                            let mut sizes = sizes.iter().copied().cycle().skip(n * 7);
                            writer.send(&session, u64::MAX / 2, &mut sizes).await;
                        }
                    });
                    futures::future::join_all(work).await;
                });
            });
            has_begun.recv().unwrap();
            // The moment of the crash is the point of the test, so here is a real wait.
            std::thread::sleep(kill_after);
            server.signal(rustix::process::Signal::KILL);
            client.join().unwrap();
        });
        drop(server);

        // A new server on the same files: look, repeat what was in doubt, look again.
        let server = Server::start_in(dir.path(), &[], &[]);
        local(async {
            let sessions = open_sessions(&server).await;
            for (number, seqs) in found(&sessions).await {
                let writer = &writers[number];
                assert_eq!(
                    seqs,
                    (1..=seqs.len() as u64).collect::<Vec<_>>(),
                    "round {round}: {}",
                    writer.name
                );
                assert!(
                    seqs.len() as u64 >= writer.acked,
                    "round {round}: an acknowledged op is lost"
                );
                assert!(seqs.len() as u64 <= writer.sent);
                unacknowledged_but_there += seqs.len() as u64 - writer.acked;
            }
            for (n, writer) in writers.iter_mut().enumerate() {
                let last = writer.sent;
                writer.send(&sessions[n % SESSIONS], last, &mut std::iter::repeat(5)).await;
                assert_eq!(writer.acked, last, "round {round}: a repeat was not answered");
            }
            for (number, seqs) in found(&sessions).await {
                let writer = &writers[number];
                assert_eq!(
                    seqs,
                    (1..=writer.sent).collect::<Vec<_>>(),
                    "round {round}: {}",
                    writer.name
                );
            }
        });
        server.kill_9();
    }
    let acked: u64 = writers.iter().map(|writer| writer.acked).sum();
    println!(
        "{ROUNDS} kills, {acked} ops, {unacknowledged_but_there} found there though unacknowledged"
    );
    assert!(acked > 1000, "too little happened to mean anything");
    assert!(unacknowledged_but_there > 0, "no kill fell between commit and answer");
}

/// Which ops of which writer are in the sessions, in the order of the logs.
async fn found(sessions: &[session::Client]) -> BTreeMap<usize, Vec<u64>> {
    let mut found: BTreeMap<usize, Vec<u64>> = (0..WRITERS).map(|n| (n, Vec::new())).collect();
    for session in sessions {
        for text in texts(session, 1000).await {
            let (writer, seq) = text[1..].split_once('-').unwrap();
            found.get_mut(&writer.parse().unwrap()).unwrap().push(seq.parse().unwrap());
        }
    }
    found
}
