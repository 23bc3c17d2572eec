//! Work trees in, trees and objects out: what undo rests on.
//!
//! A state of a work tree is a git tree in a repository of the server's own ([`vault`]). Taking it down costs as much as
//! what has changed: what was found the last time is known ([`state`], [`watch`]), the rest is read ([`walk`]). Putting
//! something back is a plan first ([`restore`]), carried out file by file beneath the root ([`beneath`]), and no content
//! is ever replaced that no snapshot holds.
//!
//! Blocking, and without a clock or randomness of its own. Knows no database and no session: who may do what, and what
//! is wanted for how long, others say.

pub mod beneath;
pub mod collect;
pub mod diff;
pub mod ground;
pub mod pack;
pub mod partial;
pub mod plan;
pub mod restore;
pub mod rules;
pub mod sandbox;
pub mod state;
pub mod tree;
pub mod undo;
pub mod unknown;
pub mod vault;
pub mod walk;
pub mod watch;

#[cfg(test)]
mod tests;
