//! One test binary, so that it links once. Each file says what belongs into it.
//!
//! Most talk to the real binary over real sockets, with the stock capnp-rpc client, and of the crate use
//! only the generated schema code and its named limits. `engine` and half of `model` drive the engine
//! itself, one floor below the wire; `tidy` reads the tree.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod attack;
mod audit;
mod caveats;
mod chain;
mod conversation;
mod crash;
mod delegation;
mod engine;
mod errors;
mod exchange;
mod fanout;
mod fault;
mod feed;
mod files;
mod files_crash;
mod files_edges;
mod grants;
mod hostile;
mod ledger;
mod model;
mod opencode_data;
mod operate;
mod repair;
mod replay;
mod sessions;
mod shares;
mod stream;
mod support;
mod tidy;
mod timeline;
mod turns;
mod upkeep;
