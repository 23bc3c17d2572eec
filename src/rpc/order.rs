//! Questions see the changes that were sent before them on the same object.
//!
//! Changes go to the writer and questions to the readers, so a question could be answered before a
//! change that was sent first. Here each change of an object takes a number when it is handed to the
//! writer, and a question waits until all earlier ones are decided.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use tokio::sync::Notify;

/// The changes under way through one object.
#[derive(Default)]
pub(super) struct Order {
    begun: Cell<u64>,
    /// All up to this number are decided, and those of `ahead` too.
    decided_through: Cell<u64>,
    ahead: RefCell<BTreeSet<u64>>,
    moved: Notify,
}

/// A change under way; it counts as decided when this is dropped.
pub(super) struct UnderWay {
    order: Rc<Order>,
    number: u64,
}

impl Order {
    /// One more change is under way.
    pub(super) fn begin(self: &Rc<Self>) -> UnderWay {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        UnderWay { order: self.clone(), number }
    }

    /// Waits until every change begun before this call is decided.
    pub(super) async fn settled(&self) {
        let begun = self.begun.get();
        loop {
            let moved = self.moved.notified();
            if self.decided_through.get() >= begun {
                return;
            }
            moved.await;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut ahead = self.order.ahead.borrow_mut();
        ahead.insert(self.number);
        let mut through = self.order.decided_through.get();
        while ahead.remove(&(through + 1)) {
            through += 1;
        }
        self.order.decided_through.set(through);
        self.order.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_question_waits_for_earlier_changes_and_not_for_later_ones() {
        let order = Rc::new(Order::default());
        assert!(order.settled().now_or_never().is_some(), "nothing to wait for");
        let (one, two) = (order.begin(), order.begin());
        let mut question = Box::pin(order.settled());
        assert!(question.as_mut().now_or_never().is_none());
        let three = order.begin();
        drop(two);
        assert!(question.as_mut().now_or_never().is_none(), "the first is still under way");
        drop(one);
        assert!(question.as_mut().now_or_never().is_some());
        assert!(order.settled().now_or_never().is_none(), "a later question waits for the third");
        drop(three);
        assert!(order.settled().now_or_never().is_some());
        assert!(order.ahead.borrow().is_empty());
    }
}
