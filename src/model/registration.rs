//! A run of a producer announces itself: which epoch it gets, and whom it shuts out.

use crate::model::ids::{InstanceId, ProducerId};
use crate::model::ledger::{Fenced, ProducerState};

/// What a run of a producer says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Who writes.
    pub producer: ProducerId,
    /// Which run of it.
    pub instance: InstanceId,
    /// The epoch it claims; none leaves the choice to the server.
    pub epoch: Option<u32>,
    /// Results up to here need not be kept.
    pub acked_through: u64,
    /// The object's epoch its author believed in, if that matters.
    pub capability_epoch: Option<u64>,
}

/// What the producer's row says from now on.
///
/// The same instance gets the same epoch however often it asks. Another one gets a higher epoch, and the
/// instance before it is shut out.
pub fn register(state: ProducerState, asked: &Registration) -> Result<ProducerState, Fenced> {
    let same = state.instance == Some(asked.instance);
    let epoch = match asked.epoch {
        None if same => state.epoch,
        None => match state.epoch.checked_add(1) {
            Some(next) => next,
            None => return Err(Fenced { current: state.epoch, got: state.epoch }),
        },
        Some(claimed) if claimed > state.epoch || (claimed == state.epoch && same) => claimed,
        Some(claimed) => return Err(Fenced { current: state.epoch, got: claimed }),
    };
    let now =
        if epoch == state.epoch { state } else { state.taken_over(epoch, Some(asked.instance)) };
    let acked_through = asked.acked_through.min(state.high).max(state.acked_through);
    Ok(ProducerState { acked_through, ..now })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InstanceId = InstanceId([1; 16]);
    const B: InstanceId = InstanceId([2; 16]);

    #[test]
    fn a_run_keeps_its_epoch_and_another_takes_a_higher_one() {
        let fresh = ProducerState::default();
        let held =
            ProducerState { epoch: 3, instance: Some(A), high: 9, acked_through: 4, inherited: 2 };
        let unregistered = ProducerState { instance: None, ..held };
        let table = [
            (fresh, A, None, Some(1)),
            (fresh, A, Some(5), Some(5)),
            (held, A, None, Some(3)),    // a repeat
            (held, B, None, Some(4)),    // a takeover
            (held, A, Some(3), Some(3)), // a repeat
            (held, B, Some(3), None),    // two runs claim one epoch: the second is shut out
            (held, B, Some(4), Some(4)),
            (held, A, Some(2), None),
            (unregistered, A, Some(3), None), // somebody wrote under that epoch without registering
            (unregistered, A, None, Some(4)),
            (ProducerState { epoch: u32::MAX, ..held }, B, None, None), // the last epoch there is
        ];
        for (state, instance, epoch, want) in table {
            let asked = Registration {
                producer: ProducerId([0; 16]),
                instance,
                epoch,
                acked_through: 6,
                capability_epoch: None,
            };
            let got = register(state, &asked);
            assert_eq!(got.map(|state| state.epoch).ok(), want, "{state:?} {asked:?}");
            if let Ok(got) = got {
                assert_eq!((got.instance, got.high), (Some(instance), state.high));
                assert_eq!(got.acked_through, 6.min(state.high));
                let same = got.epoch == state.epoch;
                let inherited = if same { state.inherited } else { state.acked_through };
                assert_eq!(got.inherited, inherited, "what the runs before acknowledged");
            }
        }
    }
}
