//! One test binary, so that it links once. Each file says what belongs into it.
//!
//! These tests talk to the real binary over real sockets, with the stock capnp-rpc client; of the crate
//! they link only the generated schema code and what the wire shows of it.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod chain;
mod crash;
mod errors;
mod fault;
mod hostile;
mod operate;
mod support;
mod tidy;
mod writer;
