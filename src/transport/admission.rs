//! The books of one connection: which calls run, which answers are kept, how deep they hang.
//!
//! No I/O and no clock; the network tells what passes, and asks what to do with it.
//!
//! *Calls on an answer that is not there yet* wait here, in the order they came, and are handed on when
//! it is. capnp-rpc would queue them itself, but poll the chain recursively, so that a deep one
//! overflows the stack; and when the answer comes, it lets later calls on the same object overtake
//! those it had queued. Handed on here, they keep their order, and no chain ever forms there.
//!
//! *Finish before return.* A peer that loses interest in a call sends `Finish` early. capnp-rpc would
//! drop the running method at its next await, and keep the answer's slot for ever, since no `Return`
//! follows. So the `Finish` waits for the answer too: what was accepted is finished, and the slot freed.

use crate::limits::{
    CAPS_PER_MESSAGE_MAX, Limits, NAMED_PENDING_MAX, PATH_STEPS_MAX, PROMISES_MAX,
    REFUSED_REMEMBERED_MAX, RELEASES_HELD_BACK_MAX,
};
use crate::model::code::Code;
use std::collections::HashMap;

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Hand it on.
    Pass,
    /// Answer the call with this code, and do not hand it on.
    Refuse(Code),
    /// Keep it until this question is answered, behind whatever else waits for that.
    Hold(u32),
    /// Keep it until [`Admission::may_let_go`].
    HoldBack,
    /// Give the connection up: no honest peer does this.
    Abort(&'static str),
}

/// What matters about a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    /// Its number.
    pub question: u32,
    /// The size of its message.
    pub bytes: usize,
    /// Whether the answer goes to the caller, as it must.
    pub to_caller: bool,
    /// The question whose answer it is a call on, if it is one.
    pub target: Option<u32>,
    /// The questions whose answers are among its parameters.
    pub hangs_on: &'a [u32],
    /// Promises of the peer's among its parameters.
    pub promises: &'a [u32],
    /// Whether capabilities of ours are among its parameters.
    pub names_ours: bool,
    /// Capabilities in its parameters, of any kind.
    pub caps: u32,
    /// The longest path into an answer it names.
    pub path_steps: u32,
}

struct Answer {
    /// Which of all calls it is: question numbers are used again.
    serial: u64,
    /// The call it hangs on, the deepest if there are several.
    hangs_on: Option<(u32, u64)>,
    bytes: usize,
    returned: bool,
    /// A finish waits for it.
    finished: bool,
    /// How often it is among the parameters of other calls; capnp-rpc remembers each until it returns.
    named: usize,
    /// Calls that wait for it and name capabilities of ours.
    waiting_with_ours: usize,
}

/// The books.
pub struct Admission {
    calls_in_flight_max: usize,
    call_bytes_in_flight_max: usize,
    answers_unfinished_max: usize,
    pipeline_depth_max: u32,
    answers: HashMap<u32, Answer>,
    serial: u64,
    in_flight: usize,
    bytes_in_flight: usize,
    named: usize,
    refused: HashMap<u32, Code>,
    waiting_with_ours: usize,
    held_back: usize,
    /// Promises the peer made us, with how many promises stand before each.
    promises: HashMap<u32, u32>,
    draining: bool,
}

impl Admission {
    /// Empty books.
    pub fn new(limits: &Limits) -> Self {
        Self {
            calls_in_flight_max: limits.calls_in_flight_max,
            call_bytes_in_flight_max: limits.call_bytes_in_flight_max,
            answers_unfinished_max: limits.answers_unfinished_max,
            pipeline_depth_max: limits.pipeline_depth_max,
            answers: HashMap::new(),
            serial: 0,
            in_flight: 0,
            bytes_in_flight: 0,
            named: 0,
            refused: HashMap::new(),
            waiting_with_ours: 0,
            held_back: 0,
            promises: HashMap::new(),
            draining: false,
        }
    }

    /// From now on new calls are refused.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing is running and nothing new will.
    pub fn is_drained(&self) -> bool {
        self.draining && self.in_flight == 0
    }

    /// A call, or a request for the bootstrap object, came in.
    pub fn call(&mut self, call: &Call<'_>) -> Verdict {
        if !call.to_caller {
            return Verdict::Abort("a call asked for its answer to be sent elsewhere");
        }
        if call.caps > CAPS_PER_MESSAGE_MAX {
            return Verdict::Abort("a call carried too many capabilities");
        }
        if call.path_steps > PATH_STEPS_MAX {
            return Verdict::Abort("a call named a path too long for any answer");
        }
        if self.answers.contains_key(&call.question) {
            return Verdict::Abort("a question number was used twice");
        }
        self.refused.remove(&call.question);

        let hangs_on = || call.target.iter().chain(call.hangs_on);
        let deepest = hangs_on().filter_map(|on| self.pending(*on)).max();
        let depth = 1 + deepest.map_or(0, |(depth, _)| depth);
        let hangs_on_refused = hangs_on().find_map(|on| self.refused.get(on).copied());
        let too_many_bytes =
            self.in_flight > 0 && self.bytes_in_flight + call.bytes > self.call_bytes_in_flight_max;
        let why_not = if let Some(code) = hangs_on_refused {
            Some(code)
        } else if self.draining {
            Some(Code::ShuttingDown)
        } else if depth > self.pipeline_depth_max {
            Some(Code::PipelineTooDeep)
        } else if self.in_flight >= self.calls_in_flight_max
            || too_many_bytes
            || self.named + call.hangs_on.len() > NAMED_PENDING_MAX
            || self.promises.len() + call.promises.len() > PROMISES_MAX
        {
            Some(Code::TooManyCalls)
        } else if self.answers.len() >= self.answers_unfinished_max {
            Some(Code::TooManyAnswers)
        } else {
            None
        };
        match why_not {
            Some(code) => {
                if self.refused.len() >= REFUSED_REMEMBERED_MAX {
                    self.refused.clear();
                }
                self.refused.insert(call.question, code);
                Verdict::Refuse(code)
            }
            None => {
                self.serial += 1;
                let answer = Answer {
                    serial: self.serial,
                    hangs_on: deepest.map(|(_, on)| on),
                    bytes: call.bytes,
                    returned: false,
                    finished: false,
                    named: 0,
                    waiting_with_ours: 0,
                };
                self.answers.insert(call.question, answer);
                self.in_flight += 1;
                self.bytes_in_flight += call.bytes;
                // Only now: of a refused call nothing is remembered.
                for promise in call.promises {
                    self.promises.entry(*promise).or_insert(1);
                }
                for on in call.hangs_on {
                    if let Some(named) = self.answers.get_mut(on).filter(|on| !on.returned) {
                        named.named += 1;
                        self.named += 1;
                    }
                }
                match call.target.filter(|on| self.pending(*on).is_some()) {
                    Some(on) => {
                        if let Some(target) = self.answers.get_mut(&on).filter(|_| call.names_ours)
                        {
                            target.waiting_with_ours += 1;
                            self.waiting_with_ours += 1;
                        }
                        Verdict::Hold(on)
                    }
                    None => Verdict::Pass,
                }
            }
        }
    }

    /// How many unanswered calls there are from this one to the first it hangs on, if it is unanswered
    /// itself. The chain is never longer than what was admitted.
    fn pending(&self, question: u32) -> Option<(u32, (u32, u64))> {
        let mut depth = 0;
        let first = self.answers.get(&question).map(|answer| (question, answer.serial));
        let mut next = first;
        while let Some((question, serial)) = next {
            match self.answers.get(&question) {
                Some(answer) if answer.serial == serial && !answer.returned => {
                    depth += 1;
                    next = answer.hangs_on;
                }
                _ => break,
            }
        }
        first.filter(|_| depth > 0).map(|first| (depth, first))
    }

    /// The peer has no more use for an answer.
    pub fn finish(&mut self, question: u32) -> Verdict {
        self.refused.remove(&question);
        match self.answers.get_mut(&question) {
            Some(answer) if answer.finished => Verdict::Abort("a question was finished twice"),
            Some(answer) if !answer.returned => {
                answer.finished = true;
                Verdict::Hold(question)
            }
            _ => {
                self.answers.remove(&question);
                Verdict::Pass
            }
        }
    }

    /// An answer is being sent; what was held for it can be handed on.
    pub fn returned(&mut self, question: u32, no_finish_needed: bool) {
        if let Some(answer) = self.answers.get_mut(&question).filter(|answer| !answer.returned) {
            answer.returned = true;
            self.in_flight -= 1;
            self.bytes_in_flight -= answer.bytes;
            self.named -= answer.named;
            self.waiting_with_ours -= answer.waiting_with_ours;
            if answer.finished || no_finish_needed {
                self.answers.remove(&question);
            }
        }
    }

    /// The peer lets go of a capability of ours. A call that waits may name it, and was sent first.
    pub fn release(&mut self) -> Verdict {
        match self.waiting_with_ours {
            0 => Verdict::Pass,
            _ if self.held_back >= RELEASES_HELD_BACK_MAX => {
                Verdict::Abort("too many capabilities were let go while a call with some waits")
            }
            _ => {
                self.held_back += 1;
                Verdict::HoldBack
            }
        }
    }

    /// Whether what was held back can be handed on.
    pub fn may_let_go(&mut self) -> bool {
        let may = self.waiting_with_ours == 0;
        if may {
            self.held_back = 0;
        }
        may
    }

    /// Whether any call waits for its answer.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// The peer sent a promise in an answer to us.
    pub fn promise(&mut self, promise: u32) {
        if self.promises.len() < PROMISES_MAX {
            self.promises.entry(promise).or_insert(1);
        }
    }

    /// The peer resolved a promise to the answer of a question. To one that is not there yet would tie a
    /// call to its own answer, a knot that nothing unties.
    pub fn promise_answered(&self, by: u32) -> Verdict {
        match self.pending(by) {
            Some(_) => Verdict::Abort("a promise was resolved to an answer that is not there yet"),
            None => Verdict::Pass,
        }
    }

    /// The peer replaced a promise by another one.
    pub fn promise_replaced(&mut self, promise: u32, by: u32) -> Verdict {
        if promise == by || self.promises.contains_key(&by) {
            return Verdict::Abort("a promise was resolved to one that is known already");
        }
        if self.promises.len() >= PROMISES_MAX {
            return Verdict::Abort("too many promises");
        }
        let depth = self.promises.get(&promise).copied().unwrap_or(1) + 1;
        if depth > self.pipeline_depth_max {
            return Verdict::Abort("a promise was replaced by a promise too often");
        }
        self.promises.insert(by, depth);
        Verdict::Pass
    }

    /// We gave a promise or capability of the peer's back.
    pub fn released(&mut self, import: u32) {
        self.promises.remove(&import);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            calls_in_flight_max: 4,
            call_bytes_in_flight_max: 100,
            answers_unfinished_max: 6,
            pipeline_depth_max: 3,
            ..Limits::default()
        }
    }

    /// A script: `call N [on M] [with M …] [bytes B] [ours 1]`, `return N [kept]`, `finish N`, `release`,
    /// `may-let-go`, `drain`, `drained`; behind `->` what comes of it.
    fn check(script: &str) {
        let mut books = Admission::new(&limits());
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (what, want) = line.split_once("->").unwrap_or((line, "pass"));
            let words: Vec<_> = what.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let got = match words[0] {
                "call" => {
                    let (mut target, mut with, mut bytes) = (None, Vec::new(), 1);
                    let mut names_ours = false;
                    for pair in words[2..].chunks(2) {
                        match pair[0] {
                            "on" => target = pair[1].parse().ok(),
                            "with" => with.push(pair[1].parse().unwrap()),
                            "ours" => names_ours = true,
                            _ => bytes = pair[1].parse().unwrap(),
                        }
                    }
                    let call = Call {
                        question: number(1),
                        bytes,
                        to_caller: true,
                        target,
                        hangs_on: &with,
                        names_ours,
                        caps: with.len() as u32,
                        ..Call::default()
                    };
                    show(books.call(&call))
                }
                "finish" => show(books.finish(number(1))),
                "release" => show(books.release()),
                "may-let-go" => books.may_let_go().to_string(),
                "return" => {
                    books.returned(number(1), words.len() == 2);
                    "pass".into()
                }
                "drain" => {
                    books.drain();
                    if books.is_drained() { "drained".into() } else { "pass".into() }
                }
                "drained" => books.is_drained().to_string(),
                other => panic!("{other}"),
            };
            assert_eq!(got, want.trim(), "{line}");
        }
    }

    fn show(verdict: Verdict) -> String {
        match verdict {
            Verdict::Pass => "pass".into(),
            Verdict::Hold(on) => format!("hold {on}"),
            Verdict::HoldBack => "hold back".into(),
            Verdict::Refuse(code) => code.to_string(),
            Verdict::Abort(why) => why.into(),
        }
    }

    #[test]
    fn calls_in_flight_are_bounded_and_an_answer_makes_room() {
        check(
            "
            call 1
            call 2
            call 3
            call 4
            call 5 -> too-many-calls
            call 6 on 5 -> too-many-calls   
            return 1
            call 5
            call 7 -> too-many-calls
            ",
        );
    }

    #[test]
    fn what_a_waiting_call_names_is_not_let_go_before_it_was_handed_on() {
        check(
            "
            release
            call 1
            call 2 ours 1
            release
            call 3 on 1 ours 1 -> hold 1
            release -> hold back
            return 2
            release -> hold back
            may-let-go -> false
            return 1
            may-let-go -> true
            release
            ",
        );
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let mut books = Admission::new(&limits());
        let call = |question, target, names_ours| Call {
            question,
            to_caller: true,
            target,
            names_ours,
            ..Call::default()
        };
        assert_eq!(books.call(&call(1, None, false)), Verdict::Pass);
        assert_eq!(books.call(&call(2, Some(1), true)), Verdict::Hold(1));
        for _ in 0..RELEASES_HELD_BACK_MAX {
            assert_eq!(books.release(), Verdict::HoldBack);
        }
        assert!(matches!(books.release(), Verdict::Abort(_)));
    }

    #[test]
    fn bytes_in_flight_are_bounded_but_one_call_is_always_let_in() {
        check(
            "
            call 1 bytes 5000
            call 2 bytes 1 -> too-many-calls
            return 1
            call 2 bytes 60
            call 3 bytes 60 -> too-many-calls
            call 4 bytes 40
            ",
        );
    }

    #[test]
    fn answers_that_hold_capabilities_are_bounded_until_finished() {
        check(
            "
            call 1
            return 1 kept
            call 2
            return 2 kept
            call 3
            return 3 kept
            call 4
            return 4 kept
            call 5
            return 5 kept
            call 6
            return 6 kept
            call 7 -> too-many-answers
            finish 3
            call 7
            ",
        );
    }

    #[test]
    fn depth_counts_pending_calls_only() {
        check(
            "
            call 1
            call 2 on 1 -> hold 1
            call 3 on 2 -> hold 2
            call 4 on 3 -> pipeline-too-deep
            call 5 on 4 -> pipeline-too-deep
            return 1 kept
            return 2 kept
            call 4 on 3 -> hold 3
            call 6 on 1
            call 7 with 99 with 4
            call 8 with 7 -> pipeline-too-deep
            ",
        );
    }

    #[test]
    fn an_early_finish_waits_for_the_answer_behind_the_calls_on_it() {
        check(
            "
            call 1
            call 2 on 1 -> hold 1
            finish 1 -> hold 1
            finish 1 -> a question was finished twice
            return 1 kept
            call 1
            return 1 kept
            finish 1
            call 1
            return 1
            finish 1
            return 1
            ",
        );
    }

    #[test]
    fn a_number_in_use_cannot_be_used_again() {
        check(
            "
            call 1
            call 1 -> a question number was used twice
            ",
        );
    }

    #[test]
    fn draining_refuses_new_calls_and_ends_when_the_last_is_answered() {
        check(
            "
            call 1
            drain
            call 2 -> shutting-down
            drained -> false
            return 1
            drained -> true
            ",
        );
    }

    #[test]
    fn nobody_sends_answers_elsewhere_or_floods_us_with_capabilities() {
        let mut books = Admission::new(&limits());
        let elsewhere = Call { question: 1, to_caller: false, ..Call::default() };
        assert!(matches!(books.call(&elsewhere), Verdict::Abort(_)));
        let many = Call { question: 1, to_caller: true, caps: 65, ..Call::default() };
        assert!(matches!(books.call(&many), Verdict::Abort(_)));
    }

    #[test]
    fn a_chain_of_promises_is_bounded() {
        let mut books = Admission::new(&limits());
        books.promise(1);
        assert_eq!(books.promise_replaced(1, 2), Verdict::Pass);
        assert_eq!(books.promise_replaced(2, 3), Verdict::Pass);
        assert!(matches!(books.promise_replaced(3, 4), Verdict::Abort(_)));
        books.released(3);
        assert_eq!(books.promise_replaced(3, 4), Verdict::Pass, "forgotten once given back");
    }

    #[test]
    fn knots_are_not_tied() {
        let mut books = Admission::new(&limits());
        let call =
            Call { question: 1, to_caller: true, promises: &[5], caps: 1, ..Call::default() };
        assert_eq!(books.call(&call), Verdict::Pass);
        assert!(matches!(books.promise_answered(1), Verdict::Abort(_)), "its own answer");
        assert!(matches!(books.promise_replaced(5, 5), Verdict::Abort(_)), "itself");
        assert_eq!(books.promise_replaced(5, 6), Verdict::Pass);
        assert!(matches!(books.promise_replaced(6, 5), Verdict::Abort(_)), "back again");
        books.returned(1, false);
        assert_eq!(books.promise_answered(1), Verdict::Pass);
    }

    #[test]
    fn of_a_refused_call_nothing_is_remembered_but_its_number() {
        let mut books = Admission::new(&limits());
        books.drain();
        for question in 0..1000 {
            let promises = [question * 2, question * 2 + 1];
            let call =
                Call { question, to_caller: true, promises: &promises, caps: 2, ..Call::default() };
            assert!(matches!(books.call(&call), Verdict::Refuse(_)));
        }
        assert_eq!((books.promises.len(), books.answers.len(), books.named), (0, 0, 0));
    }

    #[test]
    fn what_a_pending_answer_is_named_in_is_bounded() {
        let limits = Limits { calls_in_flight_max: 10_000, ..Limits::default() };
        let mut books = Admission::new(&limits);
        assert_eq!(
            books.call(&Call { question: 0, to_caller: true, ..Call::default() }),
            Verdict::Pass
        );
        let named = [0; 64];
        let mut admitted = 0;
        for question in 1..200 {
            let call =
                Call { question, to_caller: true, hangs_on: &named, caps: 64, ..Call::default() };
            admitted += u32::from(books.call(&call) == Verdict::Pass);
            books.returned(question, true);
        }
        assert_eq!(admitted as usize, NAMED_PENDING_MAX / 64);
        books.returned(0, true);
        assert_eq!(books.named, 0, "and forgotten once it has come");
        let long = Call { question: 1, to_caller: true, path_steps: 17, ..Call::default() };
        assert!(matches!(books.call(&long), Verdict::Abort(_)));
    }

    #[test]
    fn what_is_remembered_of_refused_calls_is_bounded() {
        let mut books = Admission::new(&limits());
        books.drain();
        for question in 0..200_000 {
            books.call(&Call { question, to_caller: true, ..Call::default() });
        }
        assert!(books.refused.len() <= REFUSED_REMEMBERED_MAX);
    }
}
