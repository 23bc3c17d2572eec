//! Bowline: a capability-RPC server for agent work. This page is the map of the house.
//!
//! Read it with one op in mind: a client redeems a sturdy ref, opens a project, makes a session and
//! appends a message to it, all in one round trip.
//!
//! # The rooms
//!
//! | room | what happens there | what never does |
//! |---|---|---|
//! | [`cli`] | people's door: one file per command | decisions about data |
//! | [`server`] | the process: data directory, sockets, worker threads, an orderly end | rules |
//! | [`upkeep`] | looking after a data directory: verify, rebuild, compaction, leases, the audit trail | knowing what an op means |
//! | [`rpc`] | the wire's door: one file per interface; decode, authorise, call, encode | SQL, rules, a reply before the disk agreed |
//! | [`transport`] | one connection: frames, limits, coalesced writes | anything about Bowline's objects |
//! | [`engine`] | the single writer: once per op, group commit, reply after commit | knowing what an op means; `async` behind its handle |
//! | [`ops`] | the verbs: one file each, input, rule and refusals together | clocks, randomness, I/O of their own, capnp |
//! | [`queries`] | the questions: read-only, on connections of their own | changing anything |
//! | [`worktrees`] | work trees in use: one thread for each, files moved and written down as one | knowing the wire, or how files are moved |
//! | [`snapshot`] | files: work trees in, git trees out, and back, beneath one root | knowing a session, a database or a client |
//! | [`exchange`] | sessions as documents, and what other programs keep of theirs | knowing a server |
//! | [`store`] | memory: one SQLite file, one file of code per table | showing a SQLite type |
//! | [`model`] | the nouns and the pure rules about them, the ledger's first of all | knowing a socket, a database or the time |
//! | [`wire`] | code generated from `schema/` | anything written by hand |
//!
//! [`config`] holds settings read once, [`limits`] every bound by name, and [`clock`] is the only way to
//! know the time.
//!
//! # The doors
//!
//! A room may import only what the arrows show; `tests/it/tidy.rs` fails on any other import. Every room
//! may use [`model`] and [`limits`].
//!
//! ```text
//! main → cli → server → rpc → engine → ops → store      cli → upkeep, exchange, wire, config, clock; rpc → clock
//!               │        ├──→ queries → ops, store      server → engine, queries, store, config, clock
//!               │        ├──→ ops, snapshot, wire       engine → store, clock
//!               │        └──→ worktrees                 store, model, wire, transport, exchange, snapshot: none
//!               ├──→ worktrees → engine, queries, ops,  above them
//!               │                snapshot, clock
//!               ├──→ upkeep → engine, queries, ops,
//!               │             store, clock
//!               └──→ transport
//! ```
//!
//! [`limits`] looks at [`wire`] only to be compared with the schema's own constants. [`model`] and [`exchange`]
//! know it because messages and parts are kept as the wire has them: the schema is the one definition of what they
//! are, and nothing a client said is lost on the way to the disk and back.
//!
//! `Rc` and everything else that cannot leave its thread ends at [`rpc`]. What goes through the engine is
//! plain values; behind its handle all is `Send`, synchronous and free of awaits.
//!
//! # One op from socket to disk and back
//!
//! 1. [`server`] accepts, and hands the socket to the worker with the fewest connections. The connection
//!    gets a `Vat` and nothing else.
//! 2. [`transport`] reads a frame, growing its buffer as bytes arrive, and asks its books whether this
//!    call may run: calls in flight, unfinished answers, depth of the pipeline.
//! 3. `Vat.redeem` finds the grant behind the ref on a reader thread, compares a keyed hash of the
//!    secret, has the writer note it in the audit trail, and returns a live `Root` that holds a claim:
//!    grant, rights, caveats, a place in the connection's scope. The calls pipelined on it follow.
//! 4. `Session.append` reaches `rpc/session.rs` and is decoded into plain ops, each with a digest. The
//!    grant it is held under must still stand, by a table in memory that a revocation reaches before it
//!    returns, and carry the right `append`. The batch is queued before the first await, so calls on one
//!    object take effect in the order they were sent. A full queue says `overloaded` at once.
//! 5. The writer takes what has queued up into one immediate transaction. Per batch it checks that the
//!    grant and the object's epoch are in force, then asks [`model::ledger`] which ops are known, which are
//!    new, and where to stop. Known ones get their recorded answer. Whether a new one may be tried at all,
//!    [`model::conditions`] says: what it depends on, and where it expects the log to end.
//! 6. `ops/put_message.rs` decides about a new one. The op's row, what follows from it, the receipt, the
//!    producer's high-water mark and the audit entry are written together. What the server itself has to
//!    say about it (a delegation that ended with a grant) goes into the logs concerned, in the same
//!    transaction, under a producer of its own.
//! 7. The transaction commits and is synced. Only then are the replies of the whole group released,
//!    encoded, and written to the sockets, several to a write.
//! 8. The writer notes which logs grew, and a thread of its own wakes the feeds that watch them. The first
//!    one has the new page read, the others take the same page, and each tells its own sink what that
//!    wished for, as fast as it returns.
//! 9. What streams is no op: a piece of text says from which byte on it is, and is written beside the log in the
//!    same transactions. It becomes an op when its part is closed: by its author, with the end of its turn, or by
//!    the sweeper in [`upkeep`] when nothing was heard of the turn for as long as its lease.
//! 10. Files take their time and stand in no numbering. `Worktree.restore` goes to the thread of its work tree in
//!     [`worktrees`]: has a call of this name been here before? [`snapshot`] looks at the files, writes a plan, keeps
//!     what is to go and moves one file after the other; then the engine writes down what was done, in one
//!     transaction. If that is refused, the files go back; after a crash what was written down says which way.
//! 11. A crash between 7 and the client: the client connects, redeems and repeats the same op, and gets
//!     the answer of step 5. A commit that reports an error is *unknown*: its callers hear so, the store
//!     is opened again and settled, and the same repeat finds the truth.

pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod exchange;
pub mod limits;
pub mod model;
pub mod ops;
pub mod queries;
pub mod rpc;
pub mod server;
pub mod snapshot;
pub mod store;
pub mod transport;
pub mod upkeep;
pub mod wire;
pub mod worktrees;
