//! Code generated from `schema/*.capnp`; nothing here is written by hand.
//!
//! The manual of every interface is the comment beside it in the schema.

#![allow(missing_docs, clippy::all, clippy::unwrap_used)]

capnp::generated_code!(pub mod audit_capnp);
capnp::generated_code!(pub mod bowline_capnp);
capnp::generated_code!(pub mod feed_capnp);
capnp::generated_code!(pub mod grant_capnp);
capnp::generated_code!(pub mod message_capnp);
capnp::generated_code!(pub mod root_capnp);
capnp::generated_code!(pub mod session_capnp);
capnp::generated_code!(pub mod worktree_capnp);
