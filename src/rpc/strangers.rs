//! Who shows refs that stand for nothing, and how long they are made to wait for the answer.
//!
//! It is counted by where a peer comes from and not by connection, because connections cost an attacker
//! nothing. Only wrong refs are answered late: whoever shows a right one does not wait, however many others
//! at the same address guess.

use crate::limits::{
    WRONG_REF_MEMORY_MS, WRONG_REF_PAUSE_MS, WRONG_REF_PAUSE_MS_MAX, WRONG_REF_PEERS_MAX,
    WRONG_REFS_FREE,
};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where a peer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Over the network, from there.
    Address(IpAddr),
    /// Over the Unix socket, as this user.
    User(u32),
    /// The system did not say.
    Unknown,
}

/// The wrong refs of all peers, as far back as they are held against them.
#[derive(Default)]
pub struct Strangers(Mutex<HashMap<Peer, Wrong>>);

#[derive(Clone, Copy)]
struct Wrong {
    count: u32,
    last_at_ms: u64,
}

impl Wrong {
    fn is_forgotten(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_at_ms) > WRONG_REF_MEMORY_MS
    }
}

impl Strangers {
    /// A peer has shown a wrong ref: how long it waits for the answer.
    pub(super) fn wrong(&self, peer: Peer, now_ms: u64) -> Duration {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= WRONG_REF_PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, wrong| !wrong.is_forgotten(now_ms));
            // If that does not help, whoever was quiet for longest is forgiven.
            let quiet =
                peers.iter().min_by_key(|(_, wrong)| wrong.last_at_ms).map(|(peer, _)| *peer);
            if let Some(quiet) = quiet.filter(|_| peers.len() >= WRONG_REF_PEERS_MAX) {
                peers.remove(&quiet);
            }
        }
        let wrong = peers.entry(peer).or_insert(Wrong { count: 0, last_at_ms: now_ms });
        if wrong.is_forgotten(now_ms) {
            wrong.count = 0;
        }
        wrong.count = wrong.count.saturating_add(1);
        wrong.last_at_ms = now_ms;
        match wrong.count.checked_sub(WRONG_REFS_FREE + 1) {
            None => Duration::ZERO,
            Some(beyond) => {
                let pause_ms = WRONG_REF_PAUSE_MS << beyond.min(10);
                Duration::from_millis(pause_ms.min(WRONG_REF_PAUSE_MS_MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_waits_longer_each_time_and_is_forgiven_in_the_end() {
        let strangers = Strangers::default();
        let (here, there) = (Peer::User(1), Peer::Address([127, 0, 0, 1].into()));
        let waits: Vec<_> = (0..WRONG_REFS_FREE + 12)
            .map(|_| strangers.wrong(here, 5).as_millis() as u64)
            .collect();
        let free = WRONG_REFS_FREE as usize;
        assert!(waits[..free].iter().all(|wait| *wait == 0));
        assert_eq!(waits[free..free + 3], [50, 100, 200]);
        assert_eq!(waits.last(), Some(&WRONG_REF_PAUSE_MS_MAX));
        assert_eq!(strangers.wrong(there, 5), Duration::ZERO, "somebody else");
        let later_ms = 6 + WRONG_REF_MEMORY_MS;
        assert_eq!(strangers.wrong(here, later_ms), Duration::ZERO, "it was long ago");
    }

    #[test]
    fn only_so_many_peers_are_remembered() {
        let strangers = Strangers::default();
        for user in 0..3 * WRONG_REF_PEERS_MAX as u32 {
            strangers.wrong(Peer::User(user), u64::from(user));
        }
        assert!(strangers.0.lock().unwrap().len() <= WRONG_REF_PEERS_MAX);
    }
}
