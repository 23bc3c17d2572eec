//! One connection: bytes in, messages out, and every bound that capnp-rpc itself does not have.
//!
//! Stock capnp-rpc trusts its peer. Anyone who can connect to a plain two-party server can make it
//! allocate 64 MiB with 8 bytes, overflow its stack with a chain of pipelined calls, fill its memory
//! with calls that never return or answers nobody reads, and keep it from ever shutting down. This
//! room is a two-party [`VatNetwork`](capnp_rpc::VatNetwork) of its own that allows none of it:
//!
//! - [`frame`] reads messages whose memory grows with the bytes that really arrive;
//! - [`admission`] is the pure bookkeeping of calls, answers, depth and promises: it admits, refuses
//!   one call, or gives the connection up;
//! - [`outbound`] coalesces small messages into few writes and knows how much waits for the peer;
//! - [`network`] puts the three between the socket and the RPC system.
//!
//! It knows Cap'n Proto's own messages and none of Bowline's objects.

pub mod admission;
pub mod frame;
pub mod network;
pub mod outbound;

pub use network::{Control, Link, turned_away};
