//! One test binary, so that it links once. Each file says what belongs into it.
//!
//! These tests talk to the real binary over real sockets, with the stock capnp-rpc client; of the crate
//! they link only the generated schema code and what the wire shows of it.

#![allow(unreachable_pub, missing_docs)]

mod chain;
mod crash;
mod fault;
mod hostile;
mod support;
