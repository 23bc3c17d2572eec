//! The nouns: ids, refs, rights, batches, acks, and the pure rules about them.
//!
//! Values only. Nothing here knows a socket, a database, a clock or a source of randomness, so every
//! rule can be tested with plain data and used by the server and by clients alike.

pub mod audit;
pub mod caveats;
pub mod code;
pub mod conditions;
pub mod content;
pub mod context;
pub mod delegation;
pub mod feed;
pub mod grant;
pub mod history;
pub mod ids;
pub mod infos;
pub mod ledger;
pub mod listing;
pub mod page;
pub mod permission;
pub mod registration;
pub mod repository;
pub mod rights;
pub mod session;
pub mod share;
pub mod sturdy_ref;
pub mod timeline;
pub mod turn;
pub mod usage;
pub mod weight;
pub mod worktree;
